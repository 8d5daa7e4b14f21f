#!/bin/sh
# Checks formatting (clang-format) and, in the sources that differ from the main branch, what
# .clang-tidy lists. Needs a configured build-debug/ for the compile commands.
#
#   scripts/lint.sh                 all formatted? changed sources tidy?
#   scripts/lint.sh --all           all formatted? all sources tidy?
#   scripts/lint.sh --format        all formatted?
#   scripts/lint.sh --fix-format    format all
set -eu
cd "$(dirname "$0")/.."

ours() { git ls-files --cached --others --exclude-standard -- '*.cpp' '*.h' '*.cu' '*.cuh'; }
# Files listed by git may be deleted in the working tree.
existing() { while read -r file; do if [ -f "$file" ]; then echo "$file"; fi; done; }

case ${1:-} in
  --fix-format)
    ours | existing | xargs clang-format -i
    exit 0
    ;;
  --format | --all | '') ;;
  *)
    echo "lint: unknown argument '$1'; there are: --all, --format, --fix-format" >&2
    exit 2
    ;;
esac

ours | existing | xargs clang-format --dry-run -Werror
echo "lint: formatting is clean"
if [ "${1:-}" = --format ]; then exit 0; fi

# Against where this branch left the main branch; without one, everything has changed.
base=$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main 2>/dev/null || true)
if [ "${1:-}" = --all ] || [ -z "$base" ]; then
  sources=$(ours)
else
  sources=$(git diff --name-only "$base"; git ls-files --others --exclude-standard)
fi
sources=$(echo "$sources" | grep -E '^(ridge|examples)/.*\.cpp$' | existing)
if [ -z "$sources" ]; then
  echo "lint: no source has changed"
  exit 0
fi
# clang cannot read the precompiled headers of GCC, and sources include what they use.
commands=$(mktemp -d)
trap 'rm -rf "$commands"' EXIT
sed -E 's/ -Winvalid-pch//; s/ -fpch-preprocess//; s/ -include [^ ]*cmake_pch\.hxx//' \
  build-debug/compile_commands.json >"$commands/compile_commands.json"
echo "$sources" | xargs -P "$(nproc)" -n 1 clang-tidy -p "$commands" --quiet
echo "lint: $(echo "$sources" | wc -l) sources are tidy"

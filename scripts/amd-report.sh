#!/usr/bin/env bash
# On a machine with an AMD GPU: builds Ridge for it, checks operators, faults and `ridge verify`, times a
# few runs, and writes all that came out into one file to send back. The last line says where it is.
# Exit code 1 if something failed, or if there is no card.
#
#   scripts/amd-report.sh [-a ARCHITECTURE] [-o DIRECTORY] [-l SECONDS]
#     -a  what to build for, such as gfx90a (default: what rocm_agent_enumerator shows)
#     -o  where the report and the output of each step go (default: amd-report)
#     -l  limit for each check (default: 900)
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
architectures='' out=amd-report limit=900
usage() {
  sed -n 's/^#   \(scripts.*\)/usage: \1/p' "$0" >&2
  exit 2
}
while getopts a:o:l: option; do
  case $option in
    a) architectures=$OPTARG ;;
    o) out=$OPTARG ;;
    l) limit=$OPTARG ;;
    *) usage ;;
  esac
done
shift $((OPTIND - 1))
if [ $# -gt 0 ]; then usage; fi

found=$(rocm_agent_enumerator 2>/dev/null | grep -v gfx000 | sort -u | paste -sd ';')
if [ -z "$architectures$found" ]; then
  echo "amd-report: rocm_agent_enumerator shows no AMD GPU that you may use (see docs/use/amd.md), so" \
    "nothing was built; -a gfx90a builds all the same" >&2
  exit 1
fi
architectures=${architectures:-$found}
if ! mkdir -p "$out/logs"; then exit 2; fi
out=$(realpath "$out") bin=$root/build-hip/bin report=$out/report.txt failed=0
: >"$report"

say() { echo "$@" | tee -a "$report"; }
step() {  # NAME COMMAND..: its output goes to a log, of which a failure shows the end
  local name=$1 begin=$SECONDS code=0
  shift
  timeout "$limit" "$@" >"$out/logs/$name.log" 2>&1 || code=$?
  if [ $code = 0 ]; then
    say "$(printf '%-10s ok, %d s' "$name" $((SECONDS - begin)))"
    return 0
  fi
  failed=1
  say "$(printf '%-10s FAILED (%d), %d s' "$name" $code $((SECONDS - begin)))"
  tail -n 15 "$out/logs/$name.log" | sed 's/^/    /' | tee -a "$report"
  return $code
}
finish() {  # WHAT
  echo "amd-report: $1" >>"$report"
  tar -C "$(dirname "$out")" -czf "$out.tar.gz" "$(basename "$out")"
  echo "amd-report: $1; send $out.tar.gz back (docs/use/amd.md)"
  exit $failed
}

say "Ridge $(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo 'without its repository'), $(date)"
say "$(uname -srm), $(hipcc --version 2>/dev/null | grep 'HIP version')"
say "Built for $architectures; cards here: ${found:-none}"
step configure cmake -S "$root" --preset hip -DRIDGE_TESTS=ON "-DRIDGE_HIP_ARCHITECTURE=$architectures" ||
  finish "could not be configured"
limit=14400 step build cmake --build "$root/build-hip" -j "$(nproc)" \
  --target ridge_program ridge_gpu_tests || finish "could not be built"
step program "$root/tests/gpu/hip/program.sh" "$bin/ridge"
rocminfo >"$out/logs/rocminfo.log" 2>&1
"$bin/ridge" doctor --device hip >"$out/logs/doctor.log" 2>&1
has_card=$?
say "$(grep -A 2 -E '^GPU' "$out/logs/doctor.log")"
if [ $has_card != 0 ]; then
  echo "amd-report: the program was built, but there is no card that it can use; $out/logs has the output" |
    tee -a "$report"
  exit 1
fi

# Those dtypes that need no card of NVIDIA's.
(cd "$out" && RIDGE_GPU_DTYPES="fp32 bf16 fp16" "$root/scripts/gpu-test.sh" -d hip -b "$bin" -o logs -l "$limit" operators faults verify) |
  tee -a "$report" || failed=1

say "Seconds a step, training the workshop's model (batch 8, 128 tokens):"
cd "$out" || exit 1
for dtype in fp32 bf16; do
  for version in v1 v2 v3 v4 v4-enqueued; do
    log=$out/logs/train-$version-$dtype.log options=()
    if [ $version = v4-enqueued ]; then options=(--disable-pass captured-launches); fi
    if timeout "$limit" "$bin/ridge" train --device hip --version ${version%-*} --dtype $dtype "${options[@]}" \
      --batch-size 8 --seq-len 128 --num-steps 20 --output-dir "$out/logs/$version-$dtype" \
      >"$log" 2>&1; then
      median=$(sed -n 's/^Median time per step: //p' "$log")
    else
      failed=1 median="FAILED: $(tail -n 1 "$log")"
    fi
    say "$(printf '  %-11s  %-4s  %s' $version $dtype "$median")"
  done
done
step roofline "$bin/ridge" roofline --device hip
sed 's/^/  /' "$out/logs/roofline.log" >>"$report"
if [ $failed = 0 ]; then finish "all checks passed"; fi
finish "some checks failed"

#!/bin/sh
# Disassembles the static libraries of a portable build and fails where an object has instructions
# that a processor may lack: AVX only in the copies of the CPU kernels (and in the loops that measure
# peaks, which ask the processor first), AVX-512 only in those compiled for it. Each copy must be
# closed: one global symbol, nothing that the linker merges with other objects or runs at the start.
#
#   instructions.sh LIBRARY...      with the programs OBJDUMP, NM and READELF
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for library in "$@"; do
  "${OBJDUMP:-objdump}" -d --no-show-raw-insn "$library"
done | awk '
  / file format / { object = $1; sub(/:$/, "", object) }
  / <.*>:$/ { function_name = $2 }
  /^ *[0-9a-f]+:/ {
    avx512 = /%zmm|%k[0-7]|%[xy]mm(1[6-9]|2[0-9]|3[01])/
    if (!avx512 && $2 !~ /^v[^e]/) next
    has[object, avx512 ? "avx512" : "avx"] = 1
    if (object ~ /^peak_kernels/ || object ~ /^ridge_cpu_avx512/) next
    if (!avx512 && object == "ridge_cpu_avx2.o") next
    if (!told[object]++) printf "%s: %s in %s\n", object, $0, function_name
    wrong = 1
  }
  END {
    if (!has["ridge_cpu_avx2.o", "avx"]) { print "no AVX in ridge_cpu_avx2.o"; wrong = 1 }
    split("ridge_cpu_avx512.o ridge_cpu_avx512_bf16.o", copies, " ")
    for (i in copies)
      if (!has[copies[i], "avx512"]) { print "no AVX-512 in " copies[i]; wrong = 1 }
    exit wrong
  }'

wrong=0
for copy in ridge_cpu_avx2 ridge_cpu_avx512 ridge_cpu_avx512_bf16; do
  for library in "$@"; do
    (cd "$work" && ar x "$library" $copy.o 2>/dev/null) || true
  done
  object=$work/$copy.o
  symbols=$("${NM:-nm}" --extern-only --defined-only -j "$object")
  if [ "$symbols" != $copy ]; then
    echo "$copy.o defines more than $copy:" $symbols
    wrong=1
  fi
  if "${READELF:-readelf}" -SW "$object" | grep -E 'init_array|ctors| GROUP '; then
    echo "$copy.o has sections that the linker merges or the start runs"
    wrong=1
  fi
done
exit $wrong

#!/bin/sh
# Disassembles objects of CPU kernels and fails where loops of SiLU, GELU or sigmoid are computed
# element by element: nearly all divisions there are theirs, and each loop that the compiler has
# vectorized has more of them on packed operands, in several widths, than on single ones at its end.
#
#   vector_loops.sh OBJECT...      with the program OBJDUMP; takes those of the kernels below
set -eu
kernels="activation batch_norm depthwise_conv linear onednn_conv pointwise silu squeeze_excitation swiglu"
found=0
wrong=0
for object in "$@"; do
  name=$(basename "$object" .cpp.o)
  case " $kernels " in *" $name "*) ;; *) continue ;; esac
  found=$((found + 1))
  "${OBJDUMP:-objdump}" -d --no-show-raw-insn "$object" | awk -v object="$object" '
    $2 ~ /^v?(divps|rcpps|rcp14ps)$/ { packed++ }
    $2 ~ /^v?(divss|rcpss|rcp14ss)$/ { single++ }
    END {
      if (packed > single) exit 0
      printf "%s: %d packed divisions, %d single ones\n", object, packed, single
      exit 1
    }' || wrong=1
done
[ $found -gt 0 ] || { echo "none of these objects is of $kernels"; exit 1; }
exit $wrong

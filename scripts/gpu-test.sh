#!/usr/bin/env bash
# Checks a build on a machine with a GPU that needs no compiler: only the binaries, from a build with
# CUDA elsewhere, and this repository's scripts. Prints a table last; exit code 1 if a check failed.
#
#   scripts/gpu-test.sh [-b BIN] [-d DEVICE] [-o LOGS] [-l SECONDS] [CHECK..]
#     -b  where ridge, ridge_gpu_tests and ridge_parity are (default: build/bin)
#     -d  what --device calls the GPU: cuda (default), or hip for a build for AMD's
#     -o  where the output of each check goes (default: gpu-test-logs)
#     -l  limit for each check (default: 600)
#
# The checks, by default all:
#   operators  every operator on the GPU against the double-precision reference
#   faults     out of memory, no GPU, a lost GPU, interrupts and kills: what is said and what is left
#   verify     every version and pass against the reference, every dtype
#   parity     ten steps in PyTorch and in every version; needs python3 with torch and safetensors
#   memcheck racecheck initcheck
#              compute-sanitizer's tools, on the operator tests and, in every dtype, on verify and
#              parity of all versions of a small model
# RIDGE_GPU_TESTS names the operator tests that sanitizers run, a GoogleTest filter (default: all but
# those of faults), and RIDGE_GPU_DTYPES the dtypes (default: all).
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
bin=$root/build/bin device=cuda logs=gpu-test-logs limit=600
versions=v1,v2,v3,v4
read -ra dtypes <<<"${RIDGE_GPU_DTYPES:-fp32 tf32 bf16 fp16 fp8}"

usage() {
  sed -n 's/^#   \(scripts.*\)/usage: \1/p' "$0" >&2
  exit 2
}
while getopts b:d:o:l: option; do
  case $option in
    b) bin=$OPTARG ;;
    d) device=$OPTARG ;;
    o) logs=$OPTARG ;;
    l) limit=$OPTARG ;;
    *) usage ;;
  esac
done
shift $((OPTIND - 1))
known='operators faults verify parity memcheck racecheck initcheck'
checks=("$@")
[ ${#checks[@]} -gt 0 ] || read -ra checks <<<"$known"
for check in "${checks[@]}"; do
  case " $known " in
    *" $check "*) ;;
    *) echo "gpu-test: there is no check '$check'; there are: $known" >&2 && usage ;;
  esac
done
bin=$(realpath "$bin") && mkdir -p "$logs" && logs=$(realpath "$logs") || exit 2
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT

rows=() failed=0
# What a check's own output says of it, on one line.
said() {  # LOG
  grep -hE 'tests ran|PASSED|FAILED  \] [0-9]|SKIPPED \] [0-9]|runs are|ERROR SUMMARY|RACECHECK SUMMARY|^FAILED|^ridge' \
    "$1" | sed 's/^=* *//; s/^\[ *\([A-Z]*\) *\]/\1/' | tail -n 2 | paste -sd ';' | cut -c1-100
}
check() {  # NAME COMMAND..
  local name=$1 log=$logs/${1// /-}.log begin=$SECONDS code=0 result=passed
  shift
  (cd "$runs" && exec timeout "$limit" "$@") >"$log" 2>&1 || code=$?
  # Tests that find no GPU skip themselves and succeed.
  if [ $code -eq 0 ] && grep -q '^\[  SKIPPED \]' "$log"; then code=skipped; fi
  case $code in
    0) ;;
    124) result="FAILED, over $limit s" ;;
    *) result="FAILED, $code" ;;
  esac
  [ "$code" = 0 ] || failed=1
  rows+=("$name|$result|$((SECONDS - begin))|$(said "$log")")
  echo "gpu-test: $name: $result" >&2
}
missing() {  # NAME WHAT
  failed=1
  rows+=("$1|MISSING|0|$2")
  echo "gpu-test: $1: there is no $2" >&2
}

check_parity() {  # NAME DTYPE OPTION..
  local name="$1 $2" dtype=$2
  shift 2
  if [ "$dtype" = fp8 ]; then return; fi  # which PyTorch's side does not have
  if python3 -c 'import torch, safetensors' 2>/dev/null; then
    check "$name" python3 "$root/tests/parity/parity.py" --device "$device" --versions "$versions" \
      --dtypes "$dtype" "$@"
  else
    missing "$name" "python3 with torch and safetensors"
  fi
}

sanitize() {  # TOOL
  local tool=$1 program
  program=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
  if [ ! -x "$program" ]; then
    missing "$tool" "$program"
    return
  fi
  local under=("$program" --tool "$tool" --error-exitcode 99 --print-limit 20)
  # What parity.py starts: only Ridge's side of it is ours to look into.
  printf '#!/bin/sh\nexec %s "$@" >&2\n' "${under[*]} $bin/ridge_parity" >"$runs/parity-$tool"
  chmod +x "$runs/parity-$tool"
  check "$tool operators" "${under[@]}" \
    "$bin/ridge_gpu_tests" --gtest_filter="${RIDGE_GPU_TESTS:--*Faults*}" --gtest_brief=1
  # Under racecheck the search among cuBLASLt's kernels takes longer than all else.
  local left_out=
  if [ "$tool" = racecheck ]; then left_out=tuned-products; fi
  for dtype in "${dtypes[@]}"; do
    local sizes=(--n-layers 2 --seq-len 65)
    if [ "$dtype" = fp8 ]; then sizes=(--n-layers 3 --seq-len 72); fi  # it takes no odd ones
    check "$tool verify $dtype" "${under[@]}" "$bin/ridge" verify --device "$device" \
      --schedules "$versions${left_out:+ - $left_out}" --dtypes "$dtype" --this-model \
      --hidden-dim 128 --n-heads 2 "${sizes[@]}" --intermediate-dim 192 --vocab-size 211 \
      --batch-size 2 --max-grad-norm 1 --curve-steps 3
    check_parity "$tool parity" "$dtype" --ridge-parity "$runs/parity-$tool" \
      --models "odd sizes" --disable-pass "$left_out"
  done
}

for check in "${checks[@]}"; do
  case $check in
    operators) check operators "$bin/ridge_gpu_tests" --gtest_filter='-*Faults*' --gtest_brief=1 ;;
    faults)  # the old driver is not among what is carried
      check faults "$bin/ridge_gpu_tests" --gtest_filter='*Faults*-*DriverThatIsTooOld*' \
        --gtest_brief=1
      ;;
    verify)
      for dtype in "${dtypes[@]}"; do
        check "verify $dtype" "$bin/ridge" verify --device "$device" --dtypes "$dtype"
      done
      ;;
    parity)
      for dtype in "${dtypes[@]}"; do
        check_parity parity "$dtype" --ridge-parity "$bin/ridge_parity"
      done
      ;;
    *) sanitize "$check" ;;
  esac
done

gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1)
if [ "$device" = hip ]; then gpu=$("$bin/ridge" about | sed -n 's/^Device: hip //p'); fi
echo "${gpu:-no GPU that the driver shows}; the output of every check is in $logs"
{
  echo 'Check|Result|Seconds|Says'
  printf '%s\n' "${rows[@]}"
} | awk -F '|' '
  {
    for (i = 1; i <= 4; ++i) {
      cell[NR, i] = $i
      if (length($i) > width[i]) width[i] = length($i)
    }
  }
  END {
    for (r = 1; r <= NR; ++r)
      printf "%-*s  %-*s  %*s  %s\n", width[1], cell[r, 1], width[2], cell[r, 2], width[3],
        cell[r, 3], cell[r, 4]
  }'
exit $failed

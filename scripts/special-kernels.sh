#!/usr/bin/env bash
# Checks, on a machine with a GPU, the kernels that the tuner chooses among, and measures what the
# special ones are worth: writes docs/results/data/kernels-special.json and makes the results page.
#
#   scripts/special-kernels.sh [-b BIN] [TEXT..]
#     -b  where ridge_gpu_tests, gpu_flash and gpu_special are; without it they are built, into
#         build-cuda/bin
# Texts take only the rows of the table that contain one of them; the page is then left as it is.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=
while getopts b: option; do
  case $option in
    b) bin=$OPTARG ;;
    *) sed -n 's/^#   \(scripts.*\)/usage: \1/p' "$0" >&2 && exit 2 ;;
  esac
done
shift $((OPTIND - 1))
if [ -z "$bin" ]; then
  bin=build-cuda/bin
  cmake --preset cuda -DRIDGE_TESTS=ON -DRIDGE_BENCHMARKS=ON
  cmake --build --preset cuda --target ridge_gpu_tests gpu_flash gpu_special
fi
"$bin/ridge_gpu_tests" --gtest_brief=1 \
  --gtest_filter='*OnGpu*:*Rows.*:Tuned*:SplitBf16Products.*:VisionModes.*'
"$bin/gpu_flash" check
if [ $# -gt 0 ]; then
  "$bin/gpu_special" "$@"
else
  "$bin/gpu_special" --json docs/results/data/kernels-special.json
  benchmarks/results_page.py
fi

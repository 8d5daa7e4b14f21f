#!/bin/sh
# Builds the fuzzers of tests/fuzz and runs each on a number of inputs, one after the other. What
# they learn is kept in <build>/corpus and is where the next run starts.
#
#   scripts/fuzz.sh [INPUTS [FUZZER..]]     default: 1000000, all of: safetensors tokens config trace
#
# FUZZ_BUILD names another build directory than build-fuzz. Exit code 1 if a fuzzer found something;
# the input is then left in <build>/findings.
set -eu
cd "$(dirname "$0")/.."

inputs=${1:-1000000}
case $inputs in
  *[!0-9]* | '')
    echo "fuzz: '$inputs' is no number of inputs; usage: scripts/fuzz.sh [INPUTS [FUZZER..]]" >&2
    exit 2
    ;;
esac
if [ $# -gt 0 ]; then shift; fi
fuzzers=${*:-safetensors tokens config trace}
build=${FUZZ_BUILD:-build-fuzz}

compiler=$(command -v clang++ || command -v clang++-14 || true)
if [ -z "$compiler" ]; then
  echo "fuzz: no clang++ here; on Debian: apt-get install clang libomp-dev" >&2
  exit 2
fi
mkdir -p "$build/findings"
cmake -S . -B "$build" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=None \
  -DRIDGE_FUZZERS=ON -DRIDGE_CUDA=OFF -DRIDGE_TESTS=OFF >"$build/build.log" 2>&1 &&
  cmake --build "$build" --target fuzzers ${FUZZ_JOBS:+-j "$FUZZ_JOBS"} >>"$build/build.log" 2>&1 || {
  tail -n 30 "$build/build.log" >&2
  echo "fuzz: the fuzzers do not build; see $build/build.log" >&2
  exit 2
}

"$build/bin/fuzz_seeds" "$build/seeds"
failed=0
for fuzzer in $fuzzers; do
  mkdir -p "$build/corpus/$fuzzer"
  log=$build/$fuzzer.log
  if "$build/bin/fuzz_$fuzzer" "$build/corpus/$fuzzer" "$build/seeds/$fuzzer" \
    -dict="tests/fuzz/$fuzzer.dict" -runs="$inputs" -max_len=4096 -timeout=60 \
    -artifact_prefix="$build/findings/$fuzzer-" -print_final_stats=1 >"$log" 2>&1; then
    outcome='nothing found'
  else
    outcome="FAILED, see $log"
    failed=1
  fi
  count=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  speed=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
  echo "fuzz: $fuzzer: ${count:-?} inputs, ${speed:-?} a second: $outcome"
done
exit $failed

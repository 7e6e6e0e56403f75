# SPDX-License-Identifier: MIT
# The words people type; the work is in CMakeLists.txt and tools/.  Another build: PRESET=debug.
PRESET ?= release
JOBS ?= 2
# How often `make stress` repeats each test; the random ones take a new seed each time.
STRESS_ROUNDS ?= 1
# How long `make soak` runs.
HOURS ?= 2
# How long `make fuzz` runs each target.
FUZZ_SECONDS ?= 60
BUILD := $(if $(filter release,$(PRESET)),build,build-$(PRESET))
CTEST := tools/ctest_count.sh --test-dir $(BUILD)

.PHONY: all build demo tests test stress soak fault fuzz bench lint format clean
.NOTPARALLEL:
all: deps-build build
# Ninja where there is one; a tree already configured keeps its generator.
build:
	@if command -v ninja >/dev/null; then export CMAKE_GENERATOR="$${CMAKE_GENERATOR:-Ninja}"; fi; \
	    cmake --preset $(PRESET) --log-level=WARNING >/dev/null
	@cmake --build $(BUILD) -j $(JOBS)
# Every program that a test or a bench runs.
tests: deps-test all
	@cmake --build $(BUILD) -j $(JOBS) --target tests
demo: deps-demo all
	@tools/demo.sh $(BUILD)/libtally.so
test: tests
	@$(CTEST) -j $(JOBS) --output-on-failure $(TEST_ARGS)
stress: tests
	@STRESS=1 $(CTEST) -L stress --output-on-failure --repeat until-fail:$(STRESS_ROUNDS)
# HOURS may be a fraction; memory is judged when an hour and more remains after the warm-up.
soak: tests
	@python3 tools/soak.py --build $(BUILD) --hours $(HOURS)
fault: tests
	@STRESS=1 $(CTEST) -L fault --verbose
fuzz: deps-test
	@tools/fuzz.sh $(FUZZ_SECONDS)
bench: deps-bench tests
	@python3 bench/run.py $(BENCH_ARGS)
lint:
	@python3 tools/lint.py
format:
	@clang-format -i $$(tools/c_files.sh)
clean:
	rm -rf build build-*
deps-%:
	@tools/deps.sh $*

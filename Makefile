# `make` lists the targets. Everything they make lies in $(VENV), build/, dist/ and out/.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV ?= .venv
COMPILER ?= $(if $(filter environment command,$(firstword $(origin CXX))),$(CXX),c++)
JOBS ?= 2
ARGS ?=

BIN := $(abspath $(VENV))/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet
PYTEST := $(BIN)/python -m pytest
CMAKE := PATH="$(BIN):$$PATH" CXX="$(COMPILER)" cmake
CTEST := PATH="$(BIN):$$PATH" ctest --output-on-failure --no-tests=ignore -j $(JOBS)
PY_DIRS := .ci $(wildcard src tests benchmarks examples)
CPP_FILES := $(shell find core bindings benchmarks/native -name '*.h' -o -name '*.cc')
SOURCES := $(shell find core bindings src -not -path 'core/tests*' -not -path '*/__pycache__*' -not -name '*.so')

ifndef AT_ONCE  # targets build their surroundings, each for itself
.NOTPARALLEL:
endif
.PHONY: help demo test test-native docs wheel release bench bench-families bench-sampling bench-temporal bench-service bench-cluster zoo soak check stub format clean ready ready-demo

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile

demo: ready-demo  ## the tour: a live graph, exact answers; ARGS are passed on
	@$(BIN)/livegnn demo $(ARGS)

test: ready  ## native tests, then every Python test but the long ones
	@$(CMAKE) -DLIVEGNN_BUILD_TESTS=ON build/package >build/native.log || { cat build/native.log; exit 1; }
	@$(CMAKE) --build build/package -j $(JOBS)
	@$(CTEST) --test-dir build/package
	@$(PYTEST) -n $$(($(JOBS) + 1)) --dist worksteal $(ARGS)  # one more, as tests of services and of processes wait

test-native: $(VENV)/.stamp-needs  ## native tests under AddressSanitizer and UBSan, those with threads under TSan
	@$(CMAKE) -S . -B build/asan -G Ninja -DLIVEGNN_BUILD_TESTS=ON -DLIVEGNN_SANITIZE=address,undefined
	@$(CMAKE) --build build/asan -j $(JOBS)
	@$(CTEST) --test-dir build/asan
	@$(CMAKE) -S . -B build/tsan -G Ninja -DLIVEGNN_BUILD_TESTS=ON -DLIVEGNN_SANITIZE=thread
	@$(CMAKE) --build build/tsan -j $(JOBS)
	@$(CTEST) --test-dir build/tsan -R thread

docs: $(VENV)/.stamp-docs  ## the documentation site, build/site/index.html; fails on a link that leads nowhere
	@$(BIN)/python .ci/pages.py stage build/docs
	@$(BIN)/zensical build --clean --strict
	@$(BIN)/python .ci/pages.py finish build/site
	@echo "[make] open build/site/index.html"

bench: ready  ## the benchmarks of the engine and the store, in small; make bench ARGS=--full for all sizes
	@$(BIN)/python -m benchmarks $(ARGS)

bench-families: ready  ## the benchmarks of extremes, attention, edge attributes, demand and memory
	@$(BIN)/python -m benchmarks families $(ARGS)

bench-sampling: ready  ## the benchmarks of pre-sampling and its serving
	@$(BIN)/python -m benchmarks sampling $(ARGS)

bench-temporal: ready  ## the benchmarks of temporal sampling, caches and training
	@$(BIN)/python -m benchmarks temporal $(ARGS)

bench-service: ready  ## the benchmarks of a deployment and its service; a few minutes
	@$(BIN)/python -m benchmarks service $(ARGS)

bench-cluster: ready  ## the benchmarks of the engine over parts: bytes, time, a cost model; training; tens of minutes
	@$(BIN)/python -m benchmarks.cluster $(ARGS)
	@$(BIN)/python -m benchmarks.cluster_training $(filter --tiny,$(ARGS))

zoo: ready  ## public network classes by from_pyg; LIVEGNN_ZOO names the folder of their checkouts
	@$(BIN)/python -m benchmarks.zoo $(ARGS)

wheel: $(VENV)/.stamp-release  ## a wheel for this Python in dist; .github/workflows/wheels.yml makes all of them
	@rm -f build/wheel/*.whl dist/*.whl
	@CXX="$(COMPILER)" PATH="$(BIN):$$PATH" CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(PIP) wheel --no-build-isolation --no-deps \
	  --config-settings=build-dir=build/wheel/cmake --wheel-dir build/wheel .
	@mkdir -p dist
	@if [ "$$(uname)" != Linux ]; then cp build/wheel/*.whl dist; \
	elif ! PATH="$(BIN):$$PATH" auditwheel repair --wheel-dir dist build/wheel/*.whl >build/wheel/repair.log 2>&1; \
	then cat build/wheel/repair.log; exit 1; fi
	@ls -l dist/*.whl

release: ready  ## before a release: the wheel, installed and run where no compiler is; the docs
	@$(MAKE) wheel
	@$(PYTEST) -m release tests/release
	@$(MAKE) docs

soak: ready  ## an hour of random work, kills and damaged files, then losses on Ray; make soak ARGS="--minutes 5 --seed 7"
	@LIVEGNN_HYPOTHESIS=soak $(PYTEST) -m soak
	@$(BIN)/python -m tests.soak $(ARGS)
	@$(BIN)/python -m tests.soak.clusters --kills 50

check: ready  ## format, lint, types and fast tests; under two minutes
	@$(BIN)/ruff format --check $(PY_DIRS)
	@$(BIN)/clang-format --dry-run -Werror $(CPP_FILES)
	@$(BIN)/ruff check $(PY_DIRS)
	@$(BIN)/mypy
	@$(PYTEST) -n $(JOBS) tests/tidy tests/unit

stub: ready  ## write the types of the compiled module, src/livegnn/_core.pyi
	@$(BIN)/python .ci/stub.py >build/_core.pyi
	@mv build/_core.pyi src/livegnn/_core.pyi

format: $(VENV)/.stamp-dev  ## rewrite the sources in the house format
	@$(BIN)/ruff format $(PY_DIRS)
	@$(BIN)/ruff check --fix --exit-zero $(PY_DIRS)
	@$(BIN)/clang-format -i $(CPP_FILES)

clean:  ## take away what the other targets made
	rm -rf build dist out $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# ---- the environment, one stamp per step

# pip takes one core, and next to it the compiler runs
TWO_AT_ONCE := --silent --no-print-directory -j 2 AT_ONCE=1
ready:  ## install and build what tests and benchmarks need; their targets do so first
	@$(MAKE) $(TWO_AT_ONCE) $(VENV)/.stamp-dev $(VENV)/.stamp-package
ready-demo:  ## install and build what the demo needs
	@$(MAKE) $(TWO_AT_ONCE) $(VENV)/.stamp-demo $(VENV)/.stamp-package

$(VENV)/.stamp-venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "[make] expected Python 3.11 or newer, got '$(PYTHON)'; name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo 'int main() {}' | $(COMPILER) -std=c++20 -fsyntax-only -x c++ - || { \
	  echo "[make] expected a C++20 compiler, got '$(COMPILER)'; install g++ or clang, or name one: make CXX=clang++ ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/dev.txt: pyproject.toml .ci/requirements.py | $(VENV)/.stamp-venv
	@$(BIN)/python .ci/requirements.py dev > $@

# what the build needs, and the library itself
$(VENV)/.stamp-needs: pyproject.toml .ci/requirements.py $(VENV)/dev.txt | $(VENV)/.stamp-venv
	@echo "[make] installing what the build needs"
	@$(BIN)/python .ci/requirements.py build base > $(VENV)/needs.txt
	@$(PIP) install -r $(VENV)/needs.txt -c $(VENV)/dev.txt  # so that what comes later replaces nothing that a build reads
	@mkdir -p build
	@touch $@

# what the site needs: neither the library nor PyTorch, since the reference is read from the sources
$(VENV)/.stamp-docs: pyproject.toml .ci/requirements.py | $(VENV)/.stamp-venv
	@echo "[make] installing what the site needs"
	@$(BIN)/python .ci/requirements.py docs > $(VENV)/docs.txt
	@$(PIP) install -r $(VENV)/docs.txt
	@touch $@

# what the demo needs, which trains a PyG model; torch first, by its exact version, so that nothing later asks for another
$(VENV)/.stamp-demo: $(VENV)/.stamp-needs
	@echo "[make] installing PyTorch and PyG (a few minutes, once)"
	@$(PIP) install torch==2.13.0
	@$(BIN)/python .ci/requirements.py pyg cli > $(VENV)/demo.txt
	@$(PIP) install -r $(VENV)/demo.txt
	@touch $@

# what tests, benchmarks and linters need
$(VENV)/.stamp-dev: $(VENV)/.stamp-demo
	@echo "[make] installing what the tests need"
	@$(PIP) install -r $(VENV)/dev.txt
	@touch $@

# what repairs a wheel
$(VENV)/.stamp-release: $(VENV)/.stamp-needs
	@echo "[make] installing what makes a wheel"
	@$(BIN)/python .ci/requirements.py release > $(VENV)/release.txt
	@$(PIP) install -r $(VENV)/release.txt
	@touch $@

# the package itself, as a user gets it: never editable; build/package is kept, so that only what changed is compiled
# again, and `make test` adds the native tests there
BUILD_MISSING := $(if $(wildcard build/package/CMakeCache.txt),,FORCE)
$(VENV)/.stamp-package: CMakeLists.txt pyproject.toml README.md LICENSE $(SOURCES) $(BUILD_MISSING) | $(VENV)/.stamp-needs
	@echo "[make] building and installing livegnn"
	@CXX="$(COMPILER)" PATH="$(BIN):$$PATH" CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(PIP) install --no-build-isolation --no-deps \
	  --force-reinstall --config-settings=build-dir=build/package --config-settings=cmake.define.LIVEGNN_WERROR=ON .
	@touch $@

FORCE:

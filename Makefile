# makeway: `make run` shows it, `make test` checks it. Everything lives in this checkout.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
GPU_PYTHON ?= python3
BIN := $(VENV)/bin
MEMBERS := schemas policy runtime services/admission services/scheduler services/executor services/telemetry simulator cli
SOURCES := $(addsuffix /src,$(MEMBERS))

.PHONY: help setup run test check test-gpu bench clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

setup: ## make .venv with everything; does nothing when it is current
	@PYTHON="$(PYTHON)" ./tools/setup.sh

run: setup ## start a local cluster, run the sample workload, show what happens, clean up (KEEP=1 leaves it up)
	@$(BIN)/python examples/sample/run.py

check: setup ## the fast part: format, lint, types, import rules, generated files, unit tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(SOURCES)
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m makeway_schemas.generate --check
	$(BIN)/python -m makeway_admission.generate --check
	$(BIN)/pytest -n 2 tests/unit

test: check ## every check: the fast part, then property, integration and system tests on real servers
	$(BIN)/pytest -n 3 --dist loadfile tests/property tests/integration
	$(BIN)/pytest tests/system

test-gpu: setup ## checks that need an NVIDIA card (GPU_PYTHON: a Python with torch); says so where there is none
	$(BIN)/python tests/gpu/check.py --python "$(GPU_PYTHON)"

bench: setup ## the measurements, each printing one JSON line last
	$(BIN)/python bench/pipeline.py
	$(BIN)/python bench/idle.py
	$(BIN)/python bench/shim.py
	$(BIN)/python bench/replay.py

clean: ## remove what setup and the tests made
	rm -rf "$(VENV)" .makeway .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

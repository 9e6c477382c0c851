# `make demo` and `make test` work from a fresh clone, from nothing, and again from a half-finished state.
# PIP_ARGS takes extra arguments for pip, e.g. PIP_ARGS="--index-url URL" for an index of CPU builds.
PYTHON ?= python3
PIP_ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(PIP_ARGS)

.PHONY: demo test lint unit docs clean

demo: $(VENV)/.models
	$(BIN)/burnish demo --out runs/demo

test: $(VENV)/.dev lint
	$(BIN)/python -m pytest -n 2 --dist worksteal tests README.md docs

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/cog --check README.md
	$(BIN)/python docs/generate.py --check

docs: $(VENV)/.dev
	$(PIP) -e ".[docs]"
	$(BIN)/python docs/generate.py
	$(BIN)/zensical build

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# torch first and by its pinned version, so that pip does not take a larger build for a dependency of something else.
$(VENV)/.torch: constraints.txt | $(VENV)/bin/python
	$(PIP) torch
	touch $@

$(VENV)/.models: pyproject.toml constraints.txt $(VENV)/.torch $(VENV)/.kernels
	$(PIP) -e ".[models]"
	touch $@

# Compiled kernels are optional: without a C++ compiler everything runs in plain torch.
$(VENV)/.kernels: $(wildcard kernels/*.* kernels/src/* kernels/burnish_kernels/*.py) | $(VENV)/bin/python
	$(PIP) ./kernels || echo "burnish-kernels was not built, for the reason above; plain torch is used instead (rm $@ tries again)"
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt $(VENV)/.torch $(VENV)/.kernels
	$(PIP) -e ".[models,dev,cluster,workspaces,overlap,ppi,translation]"
	touch $@ $(VENV)/.models

clean:
	rm -rf $(VENV) build kernels/build dist site .pytest_cache .mypy_cache .ruff_cache

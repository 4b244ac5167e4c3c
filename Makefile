# `make run` and `make test` need Python 3.11 and this file, nothing else.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help serve run test lint types docs bench lock wheel clean

help:            ## What can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(READY)

serve: $(READY)  ## The page, on 127.0.0.1
	$(BIN)/python -m kvroom.faces.server

run: $(READY)    ## Set up, then answer the reference case
	@$(BIN)/python -m kvroom.faces.tour

test: $(READY)   ## Set up, then run every test
	$(BIN)/pytest

lint: $(READY)   ## Style, and who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(READY)  ## mypy, strict
	$(BIN)/mypy

docs: $(READY)   ## The documentation, warnings as errors
	$(BIN)/sphinx-build -W -q -b html docs docs/_build/html

bench: $(READY)  ## Measure what the README quotes
	$(BIN)/python benchmarks/cpu_time.py

wheel: $(READY)  ## Build the wheel and the source archive into dist/
	$(BIN)/python -m build --no-isolation --outdir dist . > /dev/null

lock:            ## Pin every dependency anew (needs uv)
	uv pip compile pyproject.toml --all-extras --group test --group web --group lint --group types --group docs --group build --no-header --no-emit-index-url --no-annotate --quiet --python-version 3.11 --output-file requirements.lock

clean:           ## Remove what was built
	rm -rf $(VENV) dist build docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis

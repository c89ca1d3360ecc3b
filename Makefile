# Needs Python 3.11 or newer and make.  The first call sets up .venv; later calls find it ready.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
WORKERS ?= auto
CORE   := not (slow or published or bugs or engines)

.PHONY: help install check test test-slow test-published test-engines test-triage test-ray demo bench calibrate bugs build clean

help:
	@echo "make demo            a published model with a planted defect, found and named"
	@echo "make test            the core tests"
	@echo "make check           types, style, import direction"
	@echo "make test-slow       the long tests     make test-published  the published models"
	@echo "make test-engines    engines of the installed extras"
	@echo "make test-triage     nightly triage     make test-ray        the same on a Ray cluster"
	@echo "make bugs            published faults of old engine versions"
	@echo "make bench           benchmarks         make calibrate       the table of thresholds"
	@echo "make build           wheel and sdist    make clean           removes .venv and builds"

install: $(STAMP)

$(STAMP): pyproject.toml bisect/tapsect/__init__.py
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and "tapsect needs Python 3.11 or newer, $(PYTHON) is %d.%d; call make PYTHON=python3.11" % v[:2])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

check: $(STAMP)
	$(BIN)/ruff check taps bisect tests benchmarks examples
	$(BIN)/ruff format --check taps bisect tests benchmarks examples
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(STAMP)
	$(BIN)/python -m pytest -q -n $(WORKERS) -m "$(CORE)"

test-slow: $(STAMP)
	$(BIN)/python -m pytest -q -n $(WORKERS) -m "slow and not (published or bugs or engines)"

test-published: $(STAMP)
	$(BIN)/python -m pytest -q -n $(WORKERS) -m "published and not (slow or bugs or engines)"

test-engines: $(STAMP)
	$(BIN)/python -m pytest -q -m "engines and not bugs"

test-triage: $(STAMP)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile -m "triage and not slow"

test-ray: $(STAMP)
	$(BIN)/python -m pytest -q -m ray

bugs: $(STAMP)
	$(BIN)/python -m pytest -q -m bugs

demo: $(STAMP)
	$(BIN)/tapsect demo

bench: $(STAMP)
	$(BIN)/python -m benchmarks

calibrate: $(STAMP)
	$(BIN)/python -m benchmarks.calibrate

build: $(STAMP)
	$(BIN)/python -m build

clean:
	rm -rf $(VENV) build dist

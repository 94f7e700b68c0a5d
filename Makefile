# `make demo` and `make test` are all a newcomer needs; both create the virtual environment first.
PYTHON ?= python3
VENV ?= .venv
SOAK_MINUTES ?= 10
SOAK_SEED ?= 0
BIN = $(VENV)/bin

.PHONY: demo test lint soak pages docs package clean

demo: $(VENV)/installed
	$(BIN)/metafun demo --out demo --overwrite

test: lint
	$(BIN)/python -m pytest

lint: $(VENV)/installed-test
	$(BIN)/ruff check src tests scripts tools
	$(BIN)/ruff format --check src tests scripts tools
	$(BIN)/mypy

# Hostile files and kills for SOAK_MINUTES; a failure leaves its smallest file in .cache/soak/failures.
soak: $(VENV)/installed-test
	$(BIN)/python -m tools.soak --minutes $(SOAK_MINUTES) --seed $(SOAK_SEED)

# The tables of README.md and docs/, rendered from results/, and the notebooks of the tutorials.
pages: $(VENV)/installed
	$(BIN)/python -m tools.report
	$(BIN)/python -m tools.notebooks

# The documentation as a site in site/; nothing is fetched. A link that leads nowhere fails; --quiet would hide it.
docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# The wheel and the sdist, each installed into a new environment and run; takes minutes and a package index.
package:
	$(PYTHON) scripts/package.py

clean:
	rm -rf $(VENV) .cache site build dist demo demo-glyphs demo-gp

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test]"
	touch $@

$(VENV)/installed-docs: $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs,play]"
	touch $@

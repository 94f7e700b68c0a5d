# Two commands are all a newcomer needs: `make demo` and `make test`. Both make the virtual environment they use.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo test lint clean

demo: $(VENV)/installed
	$(BIN)/metafun demo --out demo --overwrite

test: lint
	$(BIN)/python -m pytest

lint: $(VENV)/installed-test
	$(BIN)/ruff check src tests scripts
	$(BIN)/ruff format --check src tests scripts
	$(BIN)/mypy

clean:
	rm -rf $(VENV) .cache demo demo-glyphs demo-gp

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test]"
	touch $@

# make test | make gpu-test | make demo | make clean
PYTHON ?= python3.11
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed

.PHONY: test gpu-test demo clean

test: $(STAMP)
	$(PY) -m ruff check .
	$(PY) -m pytest

gpu-test: $(STAMP)
	$(PY) -m pytest -m gpu

demo: $(STAMP)
	$(PY) examples/demo/run.py

# Runs again only when the dependencies changed. torch comes first, so that nothing else picks its version.
$(STAMP): pyproject.toml constraints.txt
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -c constraints.txt torch torchvision
	$(PY) -m pip install -c constraints.txt -e '.[test,demo]'
	touch $@

clean:
	rm -rf $(VENV) demo_output build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

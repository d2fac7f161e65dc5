PYTHON ?= python3
PIP = .venv/bin/pip --disable-pip-version-check
ARGS ?=

.PHONY: demo test check lint format bench clean

## demo: train a few models on Shakespeare, compare them, and write a page to runs/demo
demo: .venv/.ok
	.venv/bin/octavo demo --out runs/demo

## test: run the tests; make test ARGS="-k layout" runs some of them
test: .venv/.ok-dev
	.venv/bin/pytest $(ARGS)

## check: format, lint, types, tests with warnings as errors, the README's commands (tests/test_readme.py)
check: lint
	.venv/bin/pytest -W error $(ARGS)

lint: .venv/.ok-dev
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy

format: .venv/.ok-dev
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

bench: .venv/.ok-dev
	set -e; for bench in benchmarks/bench_*.py; do echo "== $$bench"; .venv/bin/python "$$bench"; done

clean:
	rm -rf .venv build dist runs/demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
	find src -name '*.egg-info' -prune -exec rm -rf {} +

# The stamps say that the installation is finished; an interrupted one is taken up again.
.venv/.ok: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "octavo needs Python 3.11 or newer, not " + sys.version.split()[0] + "; try make PYTHON=python3.11")'
	test -x .venv/bin/pip || $(PYTHON) -m venv .venv
	$(PIP) install -c constraints.txt -e .
	touch $@

.venv/.ok-dev: .venv/.ok
	$(PIP) install -c constraints.txt -e '.[dev]'
	$(PIP) install -c constraints.txt -e '.[peers]' || echo "kenlm did not build (it needs a C++ compiler): the tests against it will be skipped" >&2
	touch $@

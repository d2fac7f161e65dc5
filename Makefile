PYTHON ?= python3
PIP = .venv/bin/pip --disable-pip-version-check
ARGS ?= -n 2 --dist worksteal
BENCH = OCTAVO_BENCH_MACHINE_PRINTED=1 .venv/bin/python benchmarks

.PHONY: demo test test-gpu test-ray test-spark check lint format docs dist release-check bench mutants torture clean

## demo: train every model on Shakespeare, compare them, and write a page to runs/demo
demo: .venv/.ok
	.venv/bin/octavo compare shakespeare --quick --out runs/demo

## test: run the tests; make test ARGS="-k layout" runs some of them
test: .venv/.ok-dev
	.venv/bin/pytest $(ARGS)

## test-gpu: run the tests that need a CUDA device, warnings as errors, and say how many ran; refused without one
test-gpu: .venv/.ok-dev
	.venv/bin/python tests/gpu_tests.py

## test-ray: install Ray, 200 MB and more, and run the tests of experiments on a cluster
test-ray: .venv/.ok-dev
	$(PIP) install -c constraints.txt -e '.[ray]'
	.venv/bin/pytest tests/experiments/test_ray.py

## test-spark: install pyspark (some 450 MB; it needs Java 17) and run the tests of counting and duplicates on Spark
test-spark: .venv/.ok-dev
	$(PIP) install -c constraints.txt -e '.[spark]'
	.venv/bin/pytest -m spark

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
	.venv/bin/python -m octavo.cli.command_index

## docs: build the documentation site into build/site; open build/site/index.html
docs: .venv/.ok-dev
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict

## dist: build wheel and sdist into dist
dist: .venv/.ok-dev
	rm -rf build/lib dist
	.venv/bin/python -m build --no-isolation

## release-check: install the wheel in fresh environments, with every Python from 3.11 to 3.13 here, and compare with it
release-check: dist
	.venv/bin/python tests/release_check.py dist

## bench: measure; make bench TEXT=words.txt KENLM=DIR adds the large text (benchmarks/words.py makes it) and KenLM
bench: .venv/.ok-dev
	.venv/bin/python benchmarks/measure.py
	$(BENCH)/bench_shakespeare.py
	$(BENCH)/bench_recurrent.py
	$(BENCH)/bench_bigram.py
ifdef TEXT
	$(BENCH)/bench_kenlm.py --text $(TEXT) $(if $(KENLM),--kenlm $(KENLM))
	$(BENCH)/bench_scaling.py --text $(TEXT)
	if .venv/bin/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; \
	then $(BENCH)/bench_ngram_gpu.py --text $(TEXT); else echo "no GPU here: bench_ngram_gpu.py is left out"; fi
endif

## mutants: change the code in small ways and see whether the tests notice; make mutants SAMPLE=400 SEED=1 JOBS=2
mutants: .venv/.ok-dev
	.venv/bin/python benchmarks/mutants.py --sample $(or $(SAMPLE),400) --seed $(or $(SEED),1) --jobs $(or $(JOBS),2) \
	--out runs/mutants-$(or $(SAMPLE),400)-$(or $(SEED),1)

## torture: attack octavo with kills, full disks, damaged files, hostile requests; make torture HOURS=8 SEED=1 JOBS=2 CLASSES=kill OUT=DIR
torture: .venv/.ok-dev
	.venv/bin/python benchmarks/torture $(if $(MINUTES),--minutes $(MINUTES)) $(if $(HOURS),--hours $(HOURS)) \
	--seed $(or $(SEED),0) $(if $(JOBS),--jobs $(JOBS)) $(if $(CLASSES),--classes $(CLASSES)) $(if $(OUT),--out $(OUT))

clean:
	rm -rf .venv build dist runs/demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
	find src -name '*.egg-info' -prune -exec rm -rf {} +

# The stamps say that the installation is finished; an interrupted one is taken up again.
.venv/.ok: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "octavo needs Python 3.11 or newer, not " + sys.version.split()[0] + "; try make PYTHON=python3.11")'
	test -x .venv/bin/pip || $(PYTHON) -m venv .venv
	$(PIP) install -c constraints.txt -e '.[fast]'
	touch $@

.venv/.ok-dev: .venv/.ok
	$(PIP) install -c constraints.txt -e '.[dev]'
	$(PIP) install -c constraints.txt -e '.[peers]' || echo "kenlm did not build (it needs a C++ compiler): the tests against it will be skipped" >&2
	touch $@

# make train   install what is missing, train CartPole-v1:ppo until solved      make train ARGS="Acrobot-v1:ppo seed=3"
# make test    install what is missing, run the tests that prove the product: minutes
# make quick   the tests that a change touches, nearest first      make quick BASE=HEAD~3
# make check   what a commit must pass: style, types, docs and the same tests
# make slow    the rest, each over 5 seconds: planted faults, trainings that solve; installs the extra `ci` for it
# make lab     the tests of lab/, which measures and proves the product, quick and slow ones
# make docs    build the documentation site into build/site; `make docs-serve` shows it at http://127.0.0.1:8000
# make evidence-check   the first tenth of one seed of every cheap row of docs/results.md again: are the bits the same?
# make soak    by hand, hours: more of what `make slow` and `make lab` show with little; CONTRIBUTING.md says what
PYTHON ?= python3
BASE ?= HEAD
ARGS ?= CartPole-v1:ppo
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable
# a process for each core, each with one thread of torch; a file stays in one of them, so its fixtures are made once;
# files begin in the order of tests/conftest.py: the longest first, as tests/durations.json has recorded
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --dist loadfile --no-loadscope-reorder
FAST = @$(PYTEST) --ignore tests/lab -m "not slow" && \
	echo "make slow adds long trainings, kernels for other processors and GPUs, MuJoCo, Atari; make lab planted faults: 20 minutes or so"

MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs

.PHONY: train test quick check style types slow lab docs docs-serve evidence-check soak format clean

train: .venv/ready
	@$(BIN)/python train.py $(ARGS)

test: .venv/ready-dev
	$(FAST)

quick: .venv/ready-dev
	@$(BIN)/python -m lab.quick $(BASE)

check: .venv/ready-dev
	@$(MAKE) --no-print-directory --jobs 2 types style
	$(FAST)

style: .venv/ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m lab.write_docs --check

types: .venv/ready-dev
	$(BIN)/mypy

slow: .venv/ready-ci
	$(PYTEST) --ignore tests/lab -m "(slow or nvrtc) and not soak"

lab: .venv/ready-ci
	$(PYTEST) tests/lab -m "not soak"

docs: .venv/ready-docs
	@$(MKDOCS) build --strict

docs-serve: .venv/ready-docs
	@$(MKDOCS) serve --livereload --dev-addr 127.0.0.1:8000

evidence-check: .venv/ready
	@$(BIN)/python -m lab.evidence check

soak: .venv/ready-ci
	$(PYTEST) -m soak --timeout 0

format: .venv/ready-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .numba_cache

.venv/ready: pyproject.toml constraints.txt
	@echo "installing into .venv (once, a minute or two) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(INSTALL) ".[video]"
	@$(BIN)/python -m stride schema > config/schema.json
	@touch $@

.venv/ready-dev: pyproject.toml constraints.txt
	@echo "installing the development tools into .venv (once, a minute or two) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(INSTALL) ".[dev]"
	@$(BIN)/python -m stride schema > config/schema.json
	@touch $@ .venv/ready

.venv/ready-ci: .venv/ready-dev
	@echo "installing what only slow tests want into .venv (once, a minute) ..."
	@$(INSTALL) ".[ci]"
	@touch $@

.venv/ready-docs: pyproject.toml constraints.txt
	@echo "installing what builds the site into .venv (once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(INSTALL) ".[docs]"
	@touch $@

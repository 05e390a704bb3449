# make train   install what is missing, train CartPole-v1:ppo until solved      make train ARGS="Acrobot-v1:ppo seed=3"
# make test    install what is missing, run every test
# make check   what a commit must pass: style, types, docs, all tests but the slow ones
PYTHON ?= python3
ARGS ?= CartPole-v1:ppo
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

.PHONY: train test check format clean

train: .venv/ready
	@$(BIN)/python train.py $(ARGS)

test: .venv/ready-dev
	$(BIN)/pytest

check: .venv/ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python scripts/write_docs.py --check
	$(BIN)/pytest -m "not slow"

format: .venv/ready-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv

.venv/ready: pyproject.toml constraints.txt
	@echo "installing into .venv (once, a minute or two) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(INSTALL) ".[video]"
	@touch $@

.venv/ready-dev: pyproject.toml constraints.txt
	@echo "installing the development tools into .venv (once, a minute or two) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(INSTALL) ".[dev]"
	@touch $@ .venv/ready

# Rewake.  `make` alone lists the targets; every target sets up .venv by itself when it has to.

VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
SOURCE := src lab tests conftest.py scripts examples $(wildcard fuzz)
# pytest-xdist workers for the tests that do not start Spark.
WORKERS ?= auto
# And for those that do, which run beside the others.
SPARK_WORKERS ?= 1
# What soak is to run, of its parts; all of them, if nothing is said.
PARTS ?=

# Settings of another Python environment must not leak into this one.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help run test lint format fuzz bench soak matrix docs doctor clean

help: ## List the targets
	@echo "Usage: make <target>"
	@echo
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "The first target that needs it sets up $(VENV) (Python 3.11 or newer; about 1.7 GB)."

run: $(READY) ## Run the demo
	@$(BIN)/rewake demo

test: lint ## Run every check: lint, types, layers, and the tests, those on Spark beside the others
	@scripts/test $(BIN) $(WORKERS) $(SPARK_WORKERS)

lint: $(READY) ## Check style, formatting, types and the order of the layers
	@echo "==> ruff check"
	@$(BIN)/ruff check --quiet $(SOURCE)
	@echo "==> ruff format --check"
	@$(BIN)/ruff format --quiet --check $(SOURCE) || { echo "run 'make format'" >&2; exit 1; }
	@echo "==> mypy"
	@$(BIN)/mypy --no-error-summary
	@echo "==> lint-imports"
	@$(BIN)/lint-imports --no-cache >$(VENV)/lint-imports.txt || { cat $(VENV)/lint-imports.txt; exit 1; }

format: $(READY) ## Format the code and apply the safe fixes
	@$(BIN)/ruff check --quiet --fix $(SOURCE) || true
	@$(BIN)/ruff format $(SOURCE)

fuzz: $(VENV)/.ready-fuzz ## Fuzz the decoders of stored and received bytes
	@$(BIN)/python fuzz/run.py

bench: $(READY) ## Measure the core and whole queries on this machine
	@$(BIN)/rewake bench core
	@$(BIN)/rewake bench engine

soak: $(VENV)/.ready-connect ## Run whole what test samples: every kill point, 20,000 seeds, the nemesis (hours)
	@scripts/soak $(BIN) $(WORKERS) $(PARTS)

matrix: $(READY) ## Try Python 3.11 to 3.13 and Java 17 to 25, as far as they can be had
	@$(BIN)/python scripts/matrix.py

docs: $(VENV)/.ready-docs ## Build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "open site/index.html"

doctor: $(READY) ## Say what this machine has, what it lacks and what to do
	@$(BIN)/rewake doctor

clean: ## Remove everything that make created, .venv too
	@rm -rf $(VENV) .venv-* site build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find $(SOURCE) -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is written last, so a set-up that failed is done again.
$(READY): pyproject.toml lab/pyproject.toml constraints.txt scripts/setup
	@scripts/setup $(VENV)

$(VENV)/.ready-%: $(READY)
	@echo "==> installing the $* tools"
	@$(BIN)/python -m pip install -qq --no-input -c constraints.txt -e '.[$*]'
	@touch $@

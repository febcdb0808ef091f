# Everything a person runs. `make help` lists the targets.
SHELL := /bin/bash
PYTHON := .venv/bin/python
.DEFAULT_GOAL := help

UNIT := testbed/tests/unit tests/unit
INTEGRATION := testbed/tests/integration tests/integration
E2E := testbed/tests/e2e/test_cluster.py tests/e2e

include testbed/cluster/cluster.mk
include testbed/images/images.mk

.PHONY: help demo test test-fast lint bench-demo bench-builds soak clean-cluster clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 18

.venv/installed: requirements/dev.txt pyproject.toml
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or later is needed: apt-get install python3 python3-venv"; exit 1; }
	@python3 -c 'import ensurepip' 2>/dev/null || { [ "$$(id -u)" = 0 ] && apt-get install -y -qq python3-venv >/dev/null; } || \
	  { echo "Python's venv module is missing: apt-get install python3-venv"; exit 1; }
	@echo "Install the Python environment into .venv (about a minute)"
	@python3 -m venv .venv
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/dev.txt
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: .venv/installed ## From nothing to an answer: cluster, images, operator, one LLMEngine, a rebuild without a failed request
	@$(PYTHON) -m demo

# What fails is tried once more, alone: a busy machine may miss a time limit, and both runs are in the log.
define pytest
@$(PYTHON) -m pytest -q $(1) || { echo "Once more, what failed alone:"; $(PYTHON) -m pytest -q --last-failed $(2); }
endef

test: .venv/installed lint ## The whole suite; sets up what it needs and leaves the cluster up (make clean-cluster)
	@$(PYTHON) -m testbed.cluster build >/dev/null
	$(call pytest,-n 2 --dist worksteal $(UNIT) $(INTEGRATION),$(UNIT) $(INTEGRATION))
	$(call pytest,testbed/tests/e2e/test_cluster_lifecycle.py,testbed/tests/e2e/test_cluster_lifecycle.py)
	$(call pytest,$(E2E),$(E2E))

test-fast: .venv/installed ## Pure tests alone, under a minute
	@$(PYTHON) -m pytest -q -n 2 $(UNIT)

lint: .venv/installed ## ruff, mypy, import-linter
	@.venv/bin/ruff check . && .venv/bin/ruff format --check --quiet . && .venv/bin/mypy && .venv/bin/lint-imports >/dev/null

bench-demo: .venv/installed ## Measure the demo's steps and write docs/benchmarks.md
	@$(PYTHON) -m benchmarks.demo

bench-builds: .venv/installed ## Measure builds for three GPU generations and write docs/benchmarks-builds.md
	@$(PYTHON) -m benchmarks.builds

soak: .venv/installed ## The long runs (about an hour): killed at every write, paused, fought over, nodes lost; see docs/soak.md
	@$(PYTHON) -m testbed.cluster build >/dev/null
	@$(PYTHON) -m pytest -q -s -m soak $(INTEGRATION) $(E2E)

clean-cluster: cluster-down ## Take the cluster down and leave nothing of it behind

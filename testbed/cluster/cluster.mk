# The local cluster. Included by the main Makefile, which sets PYTHON to the virtual environment's interpreter.
PYTHON ?= .venv/bin/python

.PHONY: cluster-build cluster-up cluster-down

cluster-build: ## Build the local cluster's programs (cached by content)
	@$(PYTHON) -m testbed.cluster build

cluster-up: ## Bring the local cluster up
	@$(PYTHON) -m testbed.cluster up

cluster-down: ## Take the local cluster down and remove every trace of it
	@$(PYTHON) -m testbed.cluster down

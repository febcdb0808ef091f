# The images and the pinned requirements; included by the Makefile at the root, where PYTHON is the virtualenv's.
PYTHON ?= .venv/bin/python
UV ?= .venv/bin/uv
# Pins for every platform and Python from 3.11 on, with hashes; no index address gets into the files.
LOCK = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate

.PHONY: images lock

images: ## Build the container images as OCI archives in the cache directory
	$(PYTHON) -m testbed.images build

lock: ## Pin all requirements again (LOCK_FLAGS=--upgrade for newer releases)
	$(LOCK) $(LOCK_FLAGS) pyproject.toml --extra dev --extra steps --extra cli --extra front --output-file requirements/dev.txt
	$(LOCK) $(LOCK_FLAGS) pyproject.toml --extra steps --extra front --constraint requirements/dev.txt --output-file requirements/operator.txt
	$(LOCK) $(LOCK_FLAGS) testbed/hub/requirements.in --constraint requirements/dev.txt --output-file requirements/hub.txt
	$(LOCK) $(LOCK_FLAGS) testbed/images/base/requirements.in --output-file requirements/base.txt
	$(LOCK) $(LOCK_FLAGS) testbed/smollm2/requirements.in --no-deps --output-file requirements/smollm2.txt
	$(LOCK) $(LOCK_FLAGS) testbed/toolchain-standin/requirements.in --no-deps --constraint requirements/dev.txt \
	  --output-file requirements/toolchain-standin.txt

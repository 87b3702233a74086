# SPDX-License-Identifier: Apache-2.0
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ARGS ?=
REVISION = $(shell git rev-parse HEAD 2>/dev/null)
UV := 0.13.9
LOCK = $(BIN)/uv pip compile --quiet --no-config --universal --python-version 3.11 --no-build \
  --generate-hashes --custom-compile-command 'make lock'

.PHONY: run test test-all coverage test-bare lint format docs dashboards screenshots rules manifests soak bench lock image release-check clean help

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(READY) ## Start the exporter on port 19400, without a GPU as a demo (ARGS="--poll.interval=100ms" adds flags)
	@exec $(BIN)/roofline-exporter serve --demo.if-no-driver $(ARGS)

test: $(READY) ## Run the tests but the slow ones, in 8 minutes on 2 quiet cores (ARGS="tests/web -x")
	@$(BIN)/python -m tests.run --quick $(ARGS)

test-all: $(READY) ## Run all tests
	@$(BIN)/python -m tests.run $(ARGS)

coverage: $(READY) ## Run all tests and measure what they cover, which slows them down
	@$(BIN)/python -m tests.run --cov $(ARGS)

test-bare: $(READY) ## Run the tests that look for servers, Docker or a browser as if there were none
	@$(BIN)/python -m tests.run --bare $(ARGS)

lint: $(READY) ## Check style, types and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell dashboards exporter roofline_job tests docs *.md

format: $(READY) ## Format the code and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY) ## Regenerate the generated parts of docs/, and what is loaded as JSON
	$(BIN)/python -m tests.exposition.docs docs/metrics.md
	$(BIN)/python -m tests.cli.config.table docs/configuration.md
	$(BIN)/python -m tests.deploy.series docs/deploy.md
	$(BIN)/python -m tests.deploy.keep deploy/scale
	$(BIN)/python -m tests.deploy.sizing docs/scale.md
	$(BIN)/python -m tests.web.api.schema exporter/web/api/openapi.json
	$(BIN)/python -m tests.specs.bundle exporter/specs/gpus.json
	$(BIN)/python -m tests.specs.job_peaks roofline_job/peaks.json

dashboards: $(READY) ## Regenerate the Grafana dashboards (needs Python 3.11)
	@$(BIN)/python -m dashboards

screenshots: $(READY) ## Take the pictures of docs/images with Chromium (takes 7 minutes)
	@$(BIN)/python -m tests.e2e.screenshots docs/images $(ARGS)

rules: $(READY) ## Write the Prometheus rules from their templates and thresholds.yml
	$(BIN)/python deploy/prometheus/render_rules.py $(ARGS)

manifests: $(READY) ## Write deploy/kubernetes/base from the Helm chart
	$(BIN)/python -m tests.deploy.helm deploy/kubernetes/base/daemonset.yml

soak: $(READY) ## Live a day in 15 minutes on a simulated node; fails if anything is left over (ARGS="--hours=1")
	@$(BIN)/python -m tests.soak.run $(ARGS)

bench: $(READY) ## Measure this exporter beside a peer; prints ratios
	$(BIN)/python -m tests.benchmarks.peers $(ARGS)

lock: $(READY) ## Pin what the image is made of, with hashes (ARGS=--upgrade takes newer versions)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV)
	@$(LOCK) --extra kubernetes -o requirements/image.txt pyproject.toml $(ARGS)
	@$(LOCK) -o requirements/build.txt requirements/build.in $(ARGS)
	@$(LOCK) -o requirements/audit.txt requirements/audit.in $(ARGS)
	@sed -i "s|^ARG PYTHON_IMAGE=.*|ARG PYTHON_IMAGE=$$(sed -n 's/^FROM //p' requirements/Dockerfile)|" Dockerfile

image: ## Build the container image roofline-exporter:latest (ARGS="--build-arg PYTHON_IMAGE=...")
	docker build --tag roofline-exporter --build-arg REVISION=$(REVISION) $(ARGS) .

release-check: $(READY) ## Build wheel, sdist and image, and try each where nothing else is (ARGS="python3.10 python3.14")
	@$(BIN)/python -m tests.deploy.release $(ARGS)

clean: ## Remove everything that the other targets made
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage tests/.cache

# A stamp file instead of the folder: an interrupted installation starts over.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || \
	  { echo "Python 3.10 or newer is needed (found: $$($(PYTHON) --version 2>&1)); set PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "Python's venv module is missing; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $@

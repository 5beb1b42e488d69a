# Every target sets itself up: it needs Python 3.11 or newer and make, nothing else.
#   make demo | test | check | stress | certify | bench | docs | clean | help

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
MINUTES ?= 60
SEED ?= 1
UV_VERSION := 0.13.9

BIN := $(VENV)/bin
READY := $(VENV)/.ready
PROJECTS := pyproject.toml $(wildcard */pyproject.toml plugins/*/pyproject.toml)

export UV_PROJECT_ENVIRONMENT := $(VENV)

.PHONY: help demo test check stress certify bench docs format clean

help: ## Show this list
	@grep -hE '^[a-z]+:.*##' Makefile | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16
	@echo "Another Python beside the first: make test PYTHON=python3.13 VENV=.venv-3.13"

demo: $(READY) ## Read the text in a picture with two pretrained models
	$(BIN)/python examples/ocr.py

test: check ## Run the checks, the kit against our own providers, and all tests; what CI runs
	$(BIN)/ep certify cpu --level mustpass --jobs $(JOBS) --out .cache/compliance/cpu-mustpass \
		--certificate-folder .cache/compliance/cpu-mustpass/certificates
	$(BIN)/ep certify simulator --level mustpass --jobs $(JOBS) --out .cache/compliance/simulator-mustpass \
		--certificate-folder .cache/compliance/simulator-mustpass/certificates
	$(BIN)/pytest -n $(JOBS)

check: $(READY) ## Lint, format, types, import rules, size of the core, links in the documents
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/check_core_size.py
	$(BIN)/python scripts/check_docs.py
	$(BIN)/python scripts/check_certificates.py

stress: $(READY) ## Two memories under faults, interrupts and many threads, for an hour; MINUTES=, SEED=
	PYTHONPATH=tests $(BIN)/python -m stress --minutes $(MINUTES) --seed $(SEED)

certify: $(READY) ## Renew the certificates of our own providers, and the tables made from them
	rm -f plugins/*/src/*/certificates/*.json ep_sdk/src/ep_sdk/certificates/*.json
	$(BIN)/ep certify cpu --jobs $(JOBS) --out .cache/compliance/cpu \
		--certificate-folder plugins/ep_cpu/src/ep_cpu/certificates
	$(BIN)/ep certify simulator --jobs $(JOBS) --out .cache/compliance/simulator \
		--certificate-folder ep_sdk/src/ep_sdk/certificates
	$(BIN)/python scripts/write_support_tables.py

bench: $(READY) ## Measure import cost, cost of a run, and real models beside ONNX Runtime
	$(BIN)/python benchmarks/run.py

docs: $(READY) ## Draw the pictures in docs/ and check every link
	$(BIN)/python scripts/draw_architecture.py
	$(BIN)/python scripts/check_docs.py

format: $(READY) ## Format the code and fix what the linter can fix
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

clean: ## Remove the environment, caches and build results
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf dist */dist plugins/*/dist

$(READY): $(PROJECTS)
	@command -v $(PYTHON) >/dev/null || { echo "make: no $(PYTHON) here; name one with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "make: Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) -V 2>&1); name another with PYTHON=..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
		|| { rm -rf $(VENV); echo "make: Python's venv module is missing (Debian: apt-get install python3-venv)" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "uv==$(UV_VERSION)"
	$(BIN)/uv sync --quiet --python $(BIN)/python
	@touch $@

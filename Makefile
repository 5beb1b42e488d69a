# Every target sets itself up: it needs Python 3.11 or newer and make, nothing else.
#   make demo | test | check | stress | certify | bench | docs | clean | help

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
MINUTES ?= 60
SEED ?= 1
UV_VERSION := 0.13.9

# The providers of this repository whose devices any x86-64 machine can have.
CERTIFIED := cpu simulator opencl openvino
DEVICES_opencl := intel.0 pocl.0
# The CPU provider is certified for each set of instructions that its native code was built for.
LEVELS_cpu := avx512vnni avx512 avx2 portable none
certificates = $(if $(filter simulator,$1),ep_sdk/src/ep_sdk,plugins/ep_$1/src/ep_$1)/certificates

BIN := $(VENV)/bin
READY := $(VENV)/.ready
PROJECTS := pyproject.toml $(wildcard */pyproject.toml plugins/*/pyproject.toml)

export UV_PROJECT_ENVIRONMENT := $(VENV)

# Where the CUDA provider is tested on stand-ins for NVIDIA's libraries: pycuda has no wheel.
CUDA := .cache/cuda
CUDA_PYTHON := $(CUDA)/env/bin/python

.PHONY: help demo test check cuda stress certify bench docs format clean

help: ## Show this list
	@grep -hE '^[a-z]+:.*##' Makefile | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16
	@echo "Another Python beside the first: make test PYTHON=python3.13 VENV=.venv-3.13"

demo: $(READY) ## Read the text in a picture with two pretrained models
	$(BIN)/python examples/ocr.py

test: check $(CERTIFIED:%=mustpass-%) cuda ## Run the checks, the kit against our own providers, and all tests; what CI runs
	$(BIN)/pytest -n $(JOBS)

mustpass-%: $(READY)
	$(BIN)/ep certify $* --level mustpass --jobs $(JOBS) --out .cache/compliance/$*-mustpass \
		$(if $(wildcard plugins/ep_$*/waivers.toml),--waivers plugins/ep_$*/waivers.toml) \
		--certificate-folder .cache/compliance/$*-mustpass/certificates

check: $(READY) ## Lint, format, types, import rules, size of the core, links in the documents
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/check_core_size.py
	$(BIN)/python scripts/check_docs.py
	$(BIN)/python scripts/list_native_sources.py --check
	$(BIN)/python scripts/check_certificates.py

cuda: $(CUDA)/.ready ## The kit and the tests of ep-cuda on stand-ins for CUDA's driver and compiler
	$(CUDA_PYTHON) tests/host_cuda/run.py --cache $(CUDA)/host \
		$(CUDA_PYTHON) -m pytest -q -p no:cacheprovider plugins/ep_cuda/tests
	$(CUDA_PYTHON) tests/host_cuda/run.py --cache $(CUDA)/host --order shuffled --delay 100 \
		$(CUDA_PYTHON) -m ep_tools certify cuda --level mustpass --jobs $(JOBS) \
		--out $(CUDA)/mustpass --certificate-folder $(CUDA)/mustpass/certificates

$(CUDA)/.ready: $(READY)
	ls $(CUDA)/pycuda-*.whl >/dev/null 2>&1 \
		|| $(BIN)/python scripts/build_pycuda_wheel.py --python $(BIN)/python --to $(CUDA)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(CUDA)/env
	$(BIN)/uv pip install --quiet --python $(CUDA_PYTHON) $(CUDA)/pycuda-*.whl "nvidia-cuda-runtime>=13,<14" \
		hypothesis pytest -e ep_core -e ep_sdk -e ep_tools -e "compliance[pytest]" -e plugins/ep_cuda
	@touch $@

stress: $(READY) ## Two memories under faults, interrupts and many threads, for an hour; MINUTES=, SEED=
	PYTHONPATH=tests $(BIN)/python -m stress --minutes $(MINUTES) --seed $(SEED)

certify: $(CERTIFIED:%=certify-%) ## Renew the certificates of our own providers, and the tables made from them
	$(BIN)/python scripts/write_support_tables.py

certify-%: $(READY)
	rm -f $(call certificates,$*)/*.json
	for device in $(or $(DEVICES_$*),""); do for level in $(or $(LEVELS_$*),""); do \
		env $${level:+EP_CPU_INSTRUCTIONS=$$level} $(BIN)/ep certify $* $${device:+--device $$device} --jobs $(JOBS) \
			--out .cache/compliance/$*$$device$$level \
			$(if $(wildcard plugins/ep_$*/waivers.toml),--waivers plugins/ep_$*/waivers.toml) \
			--certificate-folder $(call certificates,$*) || exit 1; done; done

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

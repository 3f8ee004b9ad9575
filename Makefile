# Each target sets up what it needs, says what it is doing, and does nothing twice.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PROTO_READY := .venv-proto/.ready
CLIENTS_READY := .venv-clients/.ready
SCHEMATHESIS_READY := .venv-schemathesis/.ready
LOADTOOLS_READY := .venv-loadtools/.ready
# vLLM's build for the machine: cpu or gpu.
EXTRA ?= cpu
READY := $(VENV)/.ready-$(EXTRA)
ARGS ?=

.PHONY: help setup serve demo test check proto bench fuzz cluster lora conformance cases compat browser remote format clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

setup: $(READY)  ## make .venv with tokenwire, buf and grpcurl in its bin

$(READY): pyproject.toml constraints.txt tools/setup.sh
	@bash tools/setup.sh "$(PYTHON)" "$(VENV)" "$(EXTRA)"
	@touch $@

$(PROTO_READY): tools/constraints-proto.txt
	@echo "setup: .venv-proto, the code generator's own environment"
	@$(PYTHON) -m venv .venv-proto
	@.venv-proto/bin/python -m pip install --quiet -r tools/constraints-proto.txt
	@touch $@

$(CLIENTS_READY): tools/constraints-floor.txt
	@echo "setup: .venv-clients, the client's oldest dependencies"
	@$(PYTHON) -m venv .venv-clients
	@.venv-clients/bin/python -m pip install --quiet -r tools/constraints-floor.txt
	@touch $@

$(SCHEMATHESIS_READY): tests/remote/requirements-schemathesis.txt
	@echo "setup: .venv-schemathesis"
	@$(PYTHON) -m venv .venv-schemathesis
	@.venv-schemathesis/bin/python -m pip install --quiet -r $<
	@touch $@

# The build of torch that .venv has: lm-eval and guidellm need one, and none of a GPU.
$(LOADTOOLS_READY): tests/remote/requirements-loadtools.txt | $(READY)
	@echo "setup: .venv-loadtools, lm-eval and guidellm"
	@$(PYTHON) -m venv .venv-loadtools
	@.venv-loadtools/bin/python -m pip install --quiet "torch==$$($(BIN)/python -c 'import torch; print(torch.__version__)')"
	@.venv-loadtools/bin/python -m pip install --quiet -r $<
	@touch $@

serve: $(READY)  ## serve the embedded model, or what ARGS say (ARGS="models.yaml --http-port 8080")
	@$(BIN)/tokenwire serve $(ARGS)

demo: $(READY)  ## start, ask in four ways, print the answers, stop
	@$(BIN)/python examples/demo.py

test: check  ## check, unit tests, and the real engine behind Ray Serve (about 5 minutes)
	@$(BIN)/python -m pytest --ignore tests/fuzz --ignore tests/cluster --ignore tests/lora --ignore tests/browser --ignore tests/compat $(ARGS)

check: $(READY) $(PROTO_READY) $(CLIENTS_READY)  ## lint, types, import order, contract, generated code (under a minute)
	@echo "check: ruff"        && $(BIN)/ruff check --quiet . && $(BIN)/ruff format --quiet --check .
	@echo "check: mypy"        && $(BIN)/mypy --no-error-summary
	@echo "check: import order" && $(BIN)/lint-imports --no-cache > $(VENV)/lint-imports.log || { cat $(VENV)/lint-imports.log; exit 1; }
	@echo "check: buf lint"    && $(BIN)/buf lint
	@echo "check: buf format"  && $(BIN)/buf format --exit-code --diff --path protos/tokenwire
	@echo "check: buf breaking" && $(BIN)/buf build --as-file-descriptor-set -o - | $(BIN)/buf breaking - --against protos/baseline.binpb --config buf.yaml
	@echo "check: generated code" && PATH="$(CURDIR)/.venv-proto/bin:$$PATH" python protos/generate.py --check
	@echo "check: client at its floors" && PYTHONPATH=clients/python .venv-clients/bin/python -W error tests/floor/client_at_its_floors.py

cluster: $(READY)  ## several models, replicas that die, roll-outs, on clusters of their own (5 minutes)
	@$(BIN)/python -m pytest tests/cluster $(ARGS)

lora: $(READY)  ## LoRA adapters on the real model, against vLLM by itself (5 minutes)
	@$(BIN)/python -m pytest tests/lora -s $(ARGS)

conformance: $(READY) compat browser remote  ## everything that others expect of a server of this kind (30 minutes)
	@$(BIN)/python -m tests.rest.conformance

cases: $(READY)  ## OpenAI cases as raw HTTP: ARGS="--base-url http://localhost:8000", or a service of its own (3 minutes)
	@$(BIN)/python -m tests.rest.conformance $(ARGS)

compat: $(READY)  ## other people's clients against the service (1 minute; the first time installs them)
	@bash tests/compat/setup.sh $(BIN)/python .venv-compat
	@.venv-compat/bin/python -m pytest --confcutdir tests/compat tests/compat

browser: $(READY)  ## the playground in a headless Chromium (1 minute; needs a chromium)
	@$(BIN)/python -m pip install --quiet 'playwright>=1.50'
	@$(BIN)/python -m pytest tests/browser

remote: $(READY) $(SCHEMATHESIS_READY) $(LOADTOOLS_READY)  ## vLLM's own tests, schemathesis, load tools (15 minutes)
	@$(BIN)/python -m tests.remote.run_all

proto: $(READY) $(PROTO_READY)  ## generate the stubs of a changed contract
	@$(BIN)/buf format --write --path protos/tokenwire
	@PATH="$(CURDIR)/.venv-proto/bin:$$PATH" python protos/generate.py

format: $(READY)  ## let ruff and buf write the sources their way
	@$(BIN)/ruff check --quiet --fix . ; $(BIN)/ruff format --quiet .
	@$(BIN)/buf format --write --path protos/tokenwire

bench: $(READY)  ## what conversion and a chunk of REST cost (half a minute)
	@$(BIN)/python benchmarks/conversion.py $(ARGS)
	@$(BIN)/python benchmarks/rest_chunks.py

fuzz: $(READY)  ## 10,000 random requests against the real service (4 minutes)
	@$(BIN)/python -m pytest tests/fuzz -s $(ARGS)

clean:  ## remove the environments (not the cached models)
	@rm -rf .venv .venv-proto .venv-clients .venv-compat .venv-schemathesis .venv-loadtools .mypy_cache .ruff_cache .pytest_cache

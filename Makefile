# Everything a person or a machine does with this repository. `make` alone lists it.

VENV := .venv
BIN := $(VENV)/bin
PACKAGES := agents cli client deploy formats mechanisms offline planning reading topics
# On two cores: tests wait for brokers half of the time.
WORKERS ?= 4
LOOPS := tests/agents/worker/test_warm.py tests/formats/events/binary/test_scanner.py tests/agents/stages/bound/test_open_sessions.py
DEPTH := -m "not thorough"
ifndef BEGAN
BEGAN := $(shell date +%s)
endif
export BEGAN
RUN := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
TOOLS := apt-get install -y --no-install-recommends prometheus chromium
HELM := helm.sh/helm/v3/cmd/helm@v3.21.4

.DEFAULT_GOAL := help
.PHONY: help demo test lint types format prepared loops archive bytecode suite unit thorough e2e cluster dashboards fuzz mutants model bench docs lock release clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(RUN) ## a private release on your screen, from nothing but Python
	@$(BIN)/hush demo $(ARGS)

test: lint ## the gate: lint, types and tests, with a real Apache Kafka: about ten minutes
	@$(MAKE) --no-print-directory -j2 types prepared
	@$(MAKE) --no-print-directory suite

lint: $(DEV) ## style and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .

types: $(DEV) ## strict type check under the one import name
	@mkdir -p .build && ln -sfn .. .build/hushstream
	@MYPYPATH=.build $(BIN)/mypy -m hushstream -m hushstream.__main__ -m hushstream.compiled -m hushstream.errors $(addprefix -p hushstream.,$(PACKAGES))
	@$(BIN)/mypy .ci/release.py .ci/site.py

prepared: export PYTHONDONTWRITEBYTECODE =
prepared: loops archive bytecode ## what hundreds of processes of the tests would each do again

loops: $(DEV) ## compile what every worker loads
	@$(BIN)/python -m pytest -q -n0 -m "not thorough" $(LOOPS) > $(VENV)/.loops || { tail -n 30 $(VENV)/.loops; exit 1; }

archive: $(DEV) ## record the classes that brokers load
	@$(BIN)/python -m hushstream.deploy.many_brokers > $(VENV)/.archive

bytecode: $(DEV) ## compile all modules, tests among them
	@$(BIN)/python -m compileall -q $(PACKAGES) tests benchmarks
	@$(BIN)/python -m pytest -qq -n0 --collect-only > $(VENV)/.collected || { tail -n 30 $(VENV)/.collected; exit 1; }

unit: prepared suite ## tests without lint and types; ARGS="-k ledger" chooses

suite: export PYTHONDONTWRITEBYTECODE =
suite: ## the tests alone, of a tree that is prepared
	@GATE_BEGAN=$(BEGAN) OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup --durations=20 $(DEPTH) $(ARGS)

thorough: $(DEV) ## every test, with promtool, Chromium and helm; all mutants; chaos: hours
	@command -v promtool >/dev/null && command -v chromium >/dev/null || $(TOOLS) || { echo "missing: $(TOOLS)"; exit 1; }
	@command -v helm >/dev/null || GOBIN=$(abspath $(BIN)) go install $(HELM) || echo "no helm: its tests are skipped"
	@PATH="$$PATH:$(abspath $(BIN))" $(MAKE) --no-print-directory test DEPTH=
	@$(BIN)/python -m tests.mutants
	@$(BIN)/python -m pytest -q research
	@$(BIN)/python benchmarks/chaos.py --minutes=10 --harsh

e2e: $(DEV) ## docker-compose.yml on a real engine, then all removed; ARGS=--stand-ins without a registry
	@$(BIN)/python -m tests.e2e $(ARGS)

cluster: $(DEV) ## the chart on a real API server, which Go builds once: half an hour
	@$(BIN)/python -m tests.cluster
	@$(BIN)/python -m pytest -q tests/cluster $(ARGS)

dashboards: $(DEV) ## pictures of the dashboards by Grafana's components, with npm; ARGS="--minutes=8"
	@$(BIN)/python -m tests.dashboards $(ARGS)

mutants: $(DEV) ## mistakes put into a copy, each to be found by its tests; ARGS=--quick
	@$(BIN)/python -m tests.mutants $(ARGS)

model: $(DEV) ## the protocol's model, state by state; ARGS=--mistakes
	@$(BIN)/python -m tests.model $(ARGS)

format: $(DEV) ## apply formatting and safe fixes
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

fuzz: $(DEV) ## hostile input for every parser, ten minutes; ARGS="--minutes=60 --seed=7"
	@$(BIN)/python -m tests.fuzz $(or $(ARGS),--minutes=10)

bench: $(DEV) ## every benchmark, quickly; see benchmarks/ for the long ones
	@for b in benchmarks/[a-z]*.py; do echo "== $$b"; $(BIN)/python $$b --quick || exit 1; done

docs: $(DEV) ## the documentation as a site with search and API reference: .build/site/html
	@$(BIN)/python .ci/site.py
	@PATH=$(BIN):$$PATH NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "open .build/site/html/index.html"

lock: | $(BIN)/python ## resolve dependencies anew into the lock files
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@echo uv | $(BIN)/uv pip compile - $(LOCK_FLAGS) -o requirements-uv.lock
	@printf 'setuptools>=77\nwheel\n' > $(VENV)/build.in
	@$(BIN)/uv pip compile pyproject.toml $(VENV)/build.in --extra dev $(LOCK_FLAGS) -o requirements-dev.lock
	@$(BIN)/uv pip compile pyproject.toml $(VENV)/build.in --extra local --extra plot -c requirements-dev.lock $(LOCK_FLAGS) -o requirements-demo.lock
	@$(BIN)/uv pip compile pyproject.toml $(VENV)/build.in -c requirements-dev.lock $(LOCK_FLAGS) -o requirements.lock

release: $(if $(DRY),test,thorough) ## version, changelog, archives, SBOM and signed tag: VERSION=1.2.3 [DRY=1]
	@$(BIN)/python .ci/release.py "$(VERSION)" $(if $(DRY),--dry-run)

LOCK_FLAGS := --universal --python-version 3.11 --generate-hashes --upgrade --quiet \
  --no-header --no-annotate --no-emit-index-url --no-emit-find-links

clean: ## remove the virtual environment and everything built
	rm -rf $(VENV) .build build dist out *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@sh deploy/venv.sh $(VENV)

$(RUN): requirements-demo.lock pyproject.toml | $(BIN)/python
	@echo "installing locked dependencies into $(VENV), once: 260 MB to fetch, 900 MB on disk"
	@sh deploy/install.sh $(VENV) requirements-demo.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(DEV): requirements-dev.lock $(RUN)
	@echo "installing locked development tools into $(VENV), once"
	@sh deploy/install.sh $(VENV) requirements-dev.lock
	@touch $@

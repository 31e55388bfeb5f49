# Everything a person does with this repository. `make help` lists it. ARGS goes to pytest: `make unit ARGS="-k binding"`.
SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .venv/bin
# `make check` gives these two environments of other interpreters.
UNIT_BIN := $(BIN)
INTEGRATION_BIN := $(BIN)
# A test that a busy machine failed runs once more, three at most, and the summary shows both runs: see docs/development.md.
AGAIN := --reruns 1 --max-suite-reruns 3 --rerun-show-tracebacks
# `make nightly` empties it.
QUICK := -m "not nightly"
# Each lane ends with its slowest tests, so that everybody sees where the minutes go.
LANE = -q $(AGAIN) $(QUICK) --durations=25 --durations-min=2
CODE := core controlplane operator router simulator webui cli host sandbox serve cluster migrations tests benchmarks reproductions scripts docs/site

# Some containers set it. Then each process compiles all its modules again, which takes longer than most tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help up down test nightly first-pages test-cluster test-kubernetes test-vllm test-api-fuzz test-pages test-images images release check lint types layers static docs guard generate cluster reproductions simulation unit coverage integration browser sandbox screenshots clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

up: .venv/ready ## set everything up and run Fairlead on this machine (Ctrl-C stops it)
	@$(BIN)/fairlead up $(ARGS)

down: .venv/ready ## stop what `make up` started
	@$(BIN)/fairlead down

test: .venv/ready ## set everything up and pass every test; four lanes only if they did not pass since their last change
	@$(MAKE) --no-print-directory $(if $(CI)$(ARGS)$(ALL_LANES),$(RESTING),$(addprefix $(PASSED),$(RESTING))) unit
	@$(MAKE) --no-print-directory --jobs=2 integration sandbox

nightly: .venv/ready ## what `make test` leaves out: all examples of property tests, long simulations, many requests that the API's document allows, soaks
	@$(MAKE) --no-print-directory cluster reproductions simulation unit QUICK= ARGS="--hypothesis-profile=all $(ARGS)"
	@$(MAKE) --no-print-directory first-pages test-api-fuzz
	$(BIN)/python -m pytest -q -rs -m nightly tests/chaos tests/integration/operator tests/e2e/sandbox/test_canaries.py

first-pages: .venv/ready ## type every command of docs/ten-minutes.md, which-policy.md and life-of-a-request.md at a sandbox
	$(BIN)/python -m pytest -q -rs tests/e2e/sandbox/test_first_pages.py $(ARGS)

test-cluster: .venv/ready ## the operator's, the chart's and the acceptance tests on the cluster of KUBECONFIG=<file>; never one that matters
	@[ -n "$(KUBECONFIG)" ] || { echo "say which cluster: make test-cluster KUBECONFIG=<file>"; exit 2; }
	@scripts/ensure-helm.sh
	FAIRLEAD_TEST_KUBECONFIG="$(abspath $(KUBECONFIG))" $(BIN)/python -m pytest -q -rs tests/integration/operator tests/integration/chart tests/contract/crds $(ARGS) || [ $$? -eq 5 ]  # 5: ARGS chooses none of these
	PROCESSKUBE_TEST_KUBECONFIG="$(abspath $(KUBECONFIG))" $(BIN)/python -m pytest -q -rs cluster/tests/contract/workloads $(ARGS) || [ $$? -eq 5 ]
	FAIRLEAD_KUBECONFIG="$(abspath $(KUBECONFIG))" $(BIN)/python -m pytest -q -rs tests/e2e/sandbox $(ARGS) || [ $$? -eq 5 ]  # 5: ARGS chooses none of these

test-kubernetes: .venv/ready ## a real autoscaler follows Fairlead, with etcd, kube-apiserver and kube-controller-manager of BINARIES=<folder>
	@[ -n "$(BINARIES)" ] || { echo "say where Kubernetes' programs are: make test-kubernetes BINARIES=<folder>, docs/development.md"; exit 2; }
	@scripts/ensure-helm.sh
	FAIRLEAD_TEST_KUBE_BINARIES="$(abspath $(BINARIES))" $(BIN)/python -m pytest -q -rs -n 0 tests/kubernetes $(ARGS)

test-vllm: .venv/ready ## a router before two real vLLM engines on this machine's processor: 6 GB of downloads and of memory
	@scripts/ensure-vllm.sh
	FAIRLEAD_TEST_VLLM="$(CURDIR)/.venv-tools" $(BIN)/python -m pytest -q -rs tests/vllm $(ARGS)

images: ## images of the four processes, as OCI layouts below OUT (dist): ARCH=amd64,arm64, BASE=<image>|bootstrap
	@scripts/release/images.sh $(or $(OUT),dist)

release: .venv/ready ## all of a release in the folder OUT (dist), pushed to REGISTRY where that is given: docs/releasing.md
	@scripts/release/release.sh $(or $(OUT),dist)

test-images: .venv/ready ## push a release to a registry on this machine and start its images as the chart does: OUT=<folder of one>, else a new one
	@scripts/ensure-helm.sh
	FAIRLEAD_TEST_IMAGES=$(or $(OUT),new) $(BIN)/python -m pytest -q -rs -n 0 tests/images $(ARGS)

cluster: .venv/ready ## the suites of processkube, the sandbox's Kubernetes, in parallel
	$(UNIT_BIN)/python -m pytest $(LANE) -n 2 --dist loadfile --no-loadscope-reorder cluster/tests $(ARGS)

reproductions: .venv/ready ## the sections of docs/benchmarks.md on small runs, in parallel
	$(UNIT_BIN)/python -m pytest $(LANE) -n 2 --dist loadfile --no-loadscope-reorder tests/reproductions $(ARGS)

# The longest files first: one that begins last leaves a core idle.
LONG_RUNS := $(patsubst %,tests/simulation/%.py,test_default_policy pools/test_autoscaling routing/test_learning test_remedies_hold)
simulation: .venv/ready ## pools in virtual time, in parallel
	$(UNIT_BIN)/python -m pytest $(LANE) -n 2 --dist loadfile --no-loadscope-reorder $(addprefix --first=,$(LONG_RUNS)) tests/simulation $(ARGS)

# A file for each of these lanes and each interpreter says when it passed: `make test` leaves a lane out until something below it changes.
RESTING := cluster reproductions simulation browser
PASSED := $(patsubst %/,%,$(dir $(UNIT_BIN)))/passed-
files = uv.lock $(shell find $(1) -type f -not -name '*.pyc')
SIMULATED := reproductions benchmarks core simulator cluster/src tests/support
$(PASSED)cluster: $(call files,cluster sandbox tests/integration/sandbox) | .venv/ready
$(PASSED)reproductions: $(call files,$(SIMULATED) tests/reproductions) | .venv/ready
$(PASSED)simulation: $(call files,$(SIMULATED) controlplane tests/simulation) | .venv/ready
$(PASSED)browser: $(call files,webui/fairlead_web controlplane host sandbox cluster/src core tests/support tests/e2e/web tests/tools) tests/e2e/conftest.py | .venv/ready
$(addprefix $(PASSED),$(RESTING)):
	@$(MAKE) --no-print-directory $(patsubst $(PASSED)%,%,$@) ARGS=
	@touch $@

unit: .venv/ready ## pure and single-process tests, and a suite for each protocol, in parallel
	$(UNIT_BIN)/python -m pytest $(LANE) -n 2 --dist loadfile --no-loadscope-reorder tests/contract tests/unit $(ARGS)

test-api-fuzz: .venv/ready ## send the API what Schemathesis makes of its document, as every role: EXAMPLES=<cases per endpoint>, 60 without it
	FAIRLEAD_FUZZ_EXAMPLES=$(or $(EXAMPLES),60) $(BIN)/python -m pytest -q --timeout=3600 --hypothesis-profile=here tests/integration/api/test_document_holds.py $(ARGS)

test-pages: .venv/ready ## read every page of the running system: for what disagrees while it is changed and hurt, and for what is hard to read
	@scripts/ensure-browser.sh
	FAIRLEAD_TEST_EVERY_PAGE=1 $(BIN)/python -m pytest -q -rs tests/e2e/sandbox/test_pages.py $(ARGS)

coverage: .venv/ready ## which lines and branches those tests reach; sorted, the least covered last
	$(BIN)/python -m pytest -q $(QUICK) -n 2 --dist loadfile --cov --cov-report=term:skip-covered tests/unit tests/contract tests/simulation tests/reproductions cluster/tests $(ARGS)

# Files that wait for processes first, then many short ones, which end together.
WAITING := tests/integration/operator tests/integration/simulator tests/integration/sandbox \
	$(patsubst %,tests/integration/router/test_%.py,processes hostile_kv_events surviving_answers)
integration: .venv/ready ## real Postgres, HTTP, Kubernetes API and processes; four at once, as they mostly wait
	@scripts/ensure-load-tool.sh
	@scripts/ensure-helm.sh
	@scripts/ensure-envoy.sh
	@scripts/ensure-identity-provider.sh
	$(INTEGRATION_BIN)/python -m pytest $(LANE) -n 4 --dist loadfile --no-loadscope-reorder $(addprefix --first=,$(WAITING)) tests/integration $(ARGS)

browser: .venv/ready ## pages in headless Chromium, and in Firefox where it can be had
	@scripts/ensure-browser.sh
	@scripts/ensure-firefox.sh
	@scripts/ensure-identity-provider.sh
	$(BIN)/python -m pytest $(LANE) -n 2 --dist loadfile tests/e2e/web $(ARGS)

# The longest files first: one that begins last leaves two of the three sandboxes idle for minutes.
LONGEST := tests/chaos/test_two_of_everything.py $(patsubst %,tests/e2e/sandbox/test_%.py,engine_rollouts chart serve \
	pools learning pages scaling wheel up_and_down)
sandbox: .venv/ready ## the whole system: acceptance and chaos, in three sandboxes at once, as they also wait
	@scripts/ensure-helm.sh
	@scripts/ensure-browser.sh
	$(BIN)/python -m pytest $(LANE) -n 3 --dist loadfile --no-loadscope-reorder $(addprefix --first=,$(LONGEST)) tests/chaos tests/e2e/sandbox $(ARGS)

screenshots: .venv/ready ## every page of the running sandbox in OUT (screenshots), wide in light and dark, and narrow
	@scripts/ensure-browser.sh
	PYTHONPATH=tests/support $(BIN)/python scripts/screenshots.py $(or $(OUT),screenshots) $(ARGS)

check: guard .venv/ready lint types layers static docs ## what CI runs: unit tests on the oldest Python here, integration tests on the newest
	@environments=$$(scripts/environments.sh) && $(MAKE) --no-print-directory test ALL_LANES=1 $$environments

lint: .venv/ready ## format and lint: Python, templates, scripts
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/djlint --lint --quiet webui/fairlead_web/templates
	@scripts/eslint.sh

types: .venv/ready ## mypy strict, code and tests
	$(BIN)/mypy

static: .venv/ready ## bandit, advisories about locked packages, licenses, secrets
	@scripts/ensure-static-checks.sh
	$(BIN)/python scripts/static_checks.py

docs: .venv/ready ## the documents as a site with search, in dist/site; a warning or a dead link is an error (RELEASES="NAME=FOLDER …": older versions too)
	@scripts/ensure-docs-tools.sh
	@.venv-tools/docs/bin/python -m docs.site.build $(foreach release,$(RELEASES),--release $(release)) $(ARGS)

layers: .venv/ready ## the dependency rules of ARCHITECTURE.md
	$(BIN)/lint-imports

guard: ## no module beside the packages: operator/*.py would break the interpreter itself
	@! ls {core,controlplane,operator,router,simulator,webui,cli,host,sandbox,serve,cluster}/*.py 2>/dev/null

generate: .venv/ready ## write the generated files: CRDs, OpenAPI, the reference pages in docs/, the chart's copies
	$(BIN)/python scripts/generate_crds.py
	$(BIN)/python scripts/generate_inferencepool.py
	$(BIN)/python scripts/generate_settings.py
	$(BIN)/python scripts/generate_metrics.py
	$(BIN)/python scripts/generate_cli.py
	$(BIN)/python scripts/generate_chart.py
	$(BIN)/python -m fairlead_api.openapi docs/openapi.json

clean: ## remove the environment and the sandbox's state
	@[ ! -x $(BIN)/fairlead ] || $(BIN)/fairlead down || true
	rm -rf .venv .venv-tools .fairlead webui/node_modules

.venv/ready: uv.lock pyproject.toml cluster/pyproject.toml scripts/bootstrap.sh scripts/pythons.sh scripts/sync-dependencies.sh
	@scripts/bootstrap.sh

# Every task of the project. `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PY := .venv/bin/python
STAMP := .venv/.installed

# Where a machine forbids it, every worker of pytest rewrites all tests and every command compiles all its imports anew.
unexport PYTHONDONTWRITEBYTECODE

# What the scenarios stand on is brought up once a run, not once a group of them. `make compat` has a cluster a release.
e2e test: export TIERKEEPER_E2E_RUN := $(shell date +%s.%N)

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*?## ' $(MAKEFILE_LIST) | awk -F':.*?## ' '{printf "  %-13s %s\n", $$1, $$2}'

setup: $(STAMP) ## Create .venv with pinned, hashed packages; as root also the Debian packages of the cluster and the tests
	@missing=$$(for p in $$(cat e2e/cluster/packages.txt tests/packages.txt); do \
	   dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done); \
	if [ -z "$$missing" ]; then :; \
	elif [ "$$(id -u)" = 0 ]; then apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; \
	else echo "The local cluster and the browser test need, as root: apt-get install -y --no-install-recommends" $$missing; fi

$(STAMP): requirements-dev.txt pyproject.toml
	@echo "Installing pinned packages into .venv (a minute or two, once)"
	@test -x $(PY) || python3 -m venv .venv
	@.venv/bin/pip install -q --no-compile --require-hashes --no-deps -r requirements-dev.txt
	@.venv/bin/pip install -q --no-deps --no-build-isolation -e .
	@touch $(STAMP)

lock: ## Pin and hash every dependency anew (requirements.txt, requirements-dev.txt)
	.venv/bin/uv pip compile -q pyproject.toml --extra otel --generate-hashes --no-emit-index-url --no-header --python-version 3.11 -o requirements.txt
	.venv/bin/uv pip compile -q pyproject.toml --extra otel --extra sim --group dev --generate-hashes --no-emit-index-url --no-header --python-version 3.11 -o requirements-dev.txt

generate: $(STAMP) ## Write the generated files: the CRD, its copy in the chart, the API reference, the chart's table of values, the licences
	$(PY) -m tierkeeper crd > crds/servicetiers.yaml
	cp crds/servicetiers.yaml charts/tierkeeper/files/servicetiers.yaml
	$(PY) -m tierkeeper crd --docs > docs/api.md
	$(PY) charts/values_table.py
	$(PY) -m supply.licenses

sbom: $(STAMP) ## Write the bill of materials of image and chart: build/sbom.cdx.json (CycloneDX)
	@mkdir -p build
	$(PY) -m supply.sbom > build/sbom.cdx.json

audit: $(STAMP) ## Ask whether a pinned dependency has a known vulnerability (AUDIT=--strict: fail where nobody can be asked)
	$(PY) -m supply.audit $(AUDIT)

lint: $(STAMP) ## Check style, types and import contracts
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports

# Beside the operator's own tests there are those of the simulator and its scoreboard, those of the engine and the load
# that stand in for a fleet, and those of what is shipped around the operator.
SIM := tests/sim tests/bench tests/e2e_engine tests/e2e_load
SHIP := tests/charts tests/rules tests/gitops tests/docs tests/supply
# These wait for something, and for no longer than they say; the others only compute and may be slow.
TIMED := tests/adapters tests/cli tests/control tests/fakes tests/handlers tests/obs tests/plugin tests/e2e_engine tests/e2e_load tests/e2e_support

unit: $(STAMP) ## Run the operator's tests that need no cluster (a minute)
	.venv/bin/pytest tests -m "not built" -q -n 3 --dist worksteal $(addprefix --ignore ,$(SIM) $(SHIP))

sim: $(STAMP) ## Run the tests of the simulator, of the scoreboard, and of the vLLM-shaped engine and its load (a minute)
	.venv/bin/pytest $(SIM) -m "not built" -q -n 2

ship: setup ## Run the tests of chart, alerts, dashboards, GitOps manifests, supply chain and documentation (a minute; the first time builds Helm and Prometheus)
	.venv/bin/pytest $(SHIP) -q -n 2

up: setup ## Start the local cluster: a real Kubernetes on this machine
	$(PY) -m e2e.cluster up

platform: up
	$(PY) -m e2e.tools >/dev/null
	$(PY) -m e2e.platform up

e2e: up ## Run the scenarios on the real local cluster (started if it is down, left up)
	$(MAKE) -j1 exchanged alongside alone

# Scenarios that end or replace the operator, and at their end real vLLM; those that share it, side by side; the demo.
exchanged: $(STAMP)
	.venv/bin/pytest e2e/scenarios -m "exchanged" -q -s --durations=5

alongside: $(STAMP)
	.venv/bin/pytest e2e/scenarios -m "alongside" -q -n 6 --dist loadgroup --no-loadscope-reorder --durations=10

alone: $(STAMP)
	.venv/bin/pytest e2e/scenarios -m "not exchanged and not alongside" -q -s --durations=20

# The processor never waits: while the cluster starts, mypy has it; while the operator is exchanged, tests that need no
# cluster; while the demo plays, those of them that only compute and take what is left over. All tests are imported and
# the simulator runs once, so that no worker compiles them anew, and every program is built before a scenario begins.
test: setup ## Everything, as CI runs it: lint, all tests, the real cluster and its scenarios, the demo
	$(MAKE) -j4 lint compiled audit platform
	$(MAKE) -j2 timed exchanged
	$(MAKE) alongside
	$(MAKE) -j2 alone computed

timed: $(STAMP)
	.venv/bin/pytest $(TIMED) -q -n 2 --dist worksteal

computed: $(STAMP)
	chrt -i 0 .venv/bin/pytest tests -q -n 2 --dist worksteal --timeout 600 $(addprefix --ignore ,$(TIMED))

compiled: $(STAMP)
	.venv/bin/pytest tests e2e/scenarios --collect-only -q >/dev/null
	.venv/bin/pytest tests/sim/test_loop_runs_a_policy_over_a_pool.py -k lower_cap -q --timeout 600

demo: setup ## Watch three tiers keep their promises under recorded traffic (DEMO_OPERATOR=off: without the operator)
	$(PY) -m e2e.demo --operator $(or $(DEMO_OPERATOR),on)

compat: setup ## Try each Kubernetes, Prometheus and vLLM release (an hour and more the first time; ONLY=1.34,prometheus-2)
	$(PY) -m e2e.compat --only "$(ONLY)"

down: ## End the local cluster and leave nothing of it behind; what was built stays in ~/.cache/tierkeeper
	$(PY) -m e2e.cluster down

bench: $(STAMP) ## Measure a tick for 1,000 tiers and the speed of the simulator
	$(PY) -m bench.tick
	$(PY) -m bench.sim_speed

bench-policy: $(STAMP) ## The policy scoreboard beside peers and an oracle (hours, resumable; BENCH=--quick: minutes)
	nice -n 19 $(PY) -m bench.policy $(BENCH)

.PHONY: help setup lock generate sbom audit lint unit sim ship up e2e exchanged alongside alone test platform compiled timed computed demo compat down bench bench-policy

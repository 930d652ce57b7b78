# Two commands: `make serve` runs the server, `make test` runs every test. Both make what they need in .venv.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3.14 python3; do \
	$$p -c 'import sys, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
CONFIG ?= serve_config.yaml
# Ray's own telemetry stays off, in tests and benchmarks too. Ray's token (docs/operations.md, "Dashboard") is asked for
# by every second terminal.
export RAY_USAGE_STATS_ENABLED ?= 0
# What Python compiles is kept, whatever the caller's environment says: a run of the tests starts some hundred processes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: serve help prepare doctor evaluate test test-fast test-slow evals mutants bench load chaos bystander soak stops real-agents clients scoreboard nightly bench-mlx sim coverage \
	check format docs lock clean

serve: .venv/.serve ## run the server in the foreground on 127.0.0.1:8000, with the flags of serve.env
	@$(BIN)/python -P -m deployments preflight $(CONFIG)
	@$(BIN)/python -P -m deployments prepare $(CONFIG)
	@exec $(BIN)/python -P -m deployments serve $(CONFIG)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

prepare: .venv/.serve ## fetch and convert the models that the configuration names
	@$(BIN)/python -P -m deployments prepare $(CONFIG)

doctor: .venv/.serve ## check platform, packages, models, key, memory and every edge of the chain
	@$(BIN)/python -P -m deployments doctor $(CONFIG)

evaluate: .venv/.serve ## is each model good enough on this machine? A report with the evidence: make evaluate EVALUATE="--budget-minutes 5"
	@$(BIN)/python -P -m deployments evaluate $(CONFIG) $(EVALUATE)

test: .venv/.dev ## the whole test suite; what `make nightly` alone runs says docs/decisions/090-tests-that-share-an-app.md
	@$(MAKE) --no-print-directory -j 2 test-fast test-slow WORKERS=2

WORKERS ?= 3
test-fast: .venv/.dev ## what needs no Ray and no model: nearly all laws
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not ray and not model" --hypothesis-profile=quick # half of them wait

test-slow: .venv/.dev ## what needs Ray or the model: it mostly waits, so that the others run meanwhile
	$(BIN)/python -m pytest -n 0 -m "ray or model" --hypothesis-profile=quick

evals: .venv/.dev ## the core on recorded data, as a table; fails below the floor
	$(BIN)/python -m tests.evals

mutants: .venv/.dev ## apply every sabotage of the core and require that a test notices (about half an hour)
	$(BIN)/python -m tests.mutants

bench: .venv/.dev ## this server beside LiteLLM and bare Ray Serve; the table goes into loadtests/README.md
	$(BIN)/python -m loadtests.bench $(BENCH)

load: .venv/.dev ## agent-shaped users on scripted tiers, two minutes; report in loadtests/results/load.html
	$(BIN)/python -m loadtests.load

SEED ?= 1
chaos: .venv/.dev ## kill replicas, actors and the upstream under load, and compare the books: make chaos SEED=3
	$(BIN)/python -m loadtests.chaos --seed $(SEED)

bystander: .venv/.dev ## what others feel while one client sends whatever it likes: make bystander SEED=3
	$(BIN)/python -m loadtests.bystander --seed $(SEED) --write

soak: .venv/.dev ## ten minutes of steady load: memory, open files and journal must be flat
	$(BIN)/python -m loadtests.soak

stops: .venv/.dev ## forty stops in four ways under load: nothing may be left; the table goes into loadtests/README.md
	$(BIN)/python -m loadtests.stops

AGENTS_CACHE ?= $(HOME)/.cache/mlx-stack-agents
real-agents: .venv/.dev ## published agents (hermes, smolagents, OpenHands, aider) on tiers that loop; the table goes into loadtests/README.md
	$(BIN)/python -m loadtests.real_agents --cache $(AGENTS_CACHE) --write

ONLY ?=
clients: .venv/.dev ## published clients (SDKs, agents, proxies), unmodified, in four runs each; the table goes into docs/clients.md: make clients ONLY=codex
	$(BIN)/python -m tests.clients --cache $(AGENTS_CACHE) --write $(if $(ONLY),--only $(ONLY))
	$(if $(ONLY),,$(BIN)/python -m tests.clients.suites --cache $(AGENTS_CACHE) --write)

scoreboard: .venv/.dev ## other people's suites behind other people's layers and behind this server, hours long; the tables go into docs/scoreboard.md
	$(BIN)/python -m loadtests.scoreboard run --model small
	$(BIN)/python -m loadtests.scoreboard run --model large
	for model in small large; do $(BIN)/python -m loadtests.scoreboard table --model $$model --write || exit 1; done

nightly: soak ## soak, five seeds of chaos, each architecture of mlx-lm, the larger models (1.6 GB are fetched), every contract on Ray, each law in full, a tenth of the scoreboard, 2000 simulated worlds, all mutants
	$(BIN)/python -m tests.zoo
	$(BIN)/python -P -m deployments pull
	$(BIN)/python -m pytest -n 0 -m nightly
	$(BIN)/python -m pytest -n 2 -m "not ray and not model"
	$(BIN)/python -m pytest -n 0 -m "model and not ray"
	$(BIN)/python -m pytest -n 2 --dist loadfile --on-ray -m "not ray and not model" tests/contract tests/clients/test_sdks.py
	for seed in 1 2 3 4 5; do $(MAKE) chaos SEED=$$seed || exit 1; done
	$(BIN)/python -m loadtests.scoreboard check --arms on chain --part 0.1
	$(MAKE) sim SEEDS=2000
	$(MAKE) mutants

ROUNDS ?= 5
bench-mlx: .venv/.dev ## measure the engine and the graph on it; the tables go into loadtests/README.md
	$(BIN)/python -m loadtests.mlx_bench --rounds $(ROUNDS)

SEEDS ?= 1000
sim: .venv/.dev ## many simulated worlds: make sim SEEDS=10000
	$(BIN)/python -m tests.sim --seeds $(SEEDS)

coverage: .venv/.dev ## line coverage of the core by its own tests; fails below 95 %
	$(BIN)/python -m pytest -q -n 2 tests/unit/reliability tests/sim tests/unit/deployments/request/test_drive.py --cov=reliability \
		--cov-report=term:skip-covered --cov-fail-under=95

check: .venv/.dev ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/.dev ## put the code into the form that `check` wants
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/.dev ## write the tables of docs/ and the JSON schema anew from the code
	$(BIN)/python -m tools.docs

lock: .venv/.dev ## resolve pyproject.toml anew into the two lock files
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile $(LOCK_FLAGS) pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile $(LOCK_FLAGS) --extra dev -c requirements.lock pyproject.toml -o requirements-dev.lock

LOCK_FLAGS := --universal --generate-hashes --python-version 3.11 --no-annotate --no-header \
	--no-emit-index-url --no-emit-find-links --quiet --extra build

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 to 3.14 is needed (with venv); set PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv .venv

# The C extension (setup.py) is for Linux on x86-64; where that has no compiler, one comes as a package.
NEEDS_COMPILER := test "$$(uname -sm)" = "Linux x86_64" && \
	! command -v cc >/dev/null && ! command -v gcc >/dev/null && ! command -v clang >/dev/null

# The stamps make a repeated `make` a matter of milliseconds. The locks are whole, so nothing is to be resolved: where a
# package asks for another with an extra, pip looks for a newer one than the lock's, and refuses it for want of a hash.
.venv/.serve: requirements.lock pyproject.toml setup.py $(wildcard deployments/tiers/mlx/cpu/*.[ch]) | .venv/bin/python
	@echo "Installing the packages of requirements.lock into .venv: a minute or two, once"
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --require-hashes -r requirements.lock
	@$(NEEDS_COMPILER) || exit 0; awk '/^[a-z]/ {ours = /^ziglang/} ours' requirements-dev.lock > .venv/compiler.lock && \
		$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --require-hashes -r .venv/compiler.lock
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation -e .
	@touch $@

.venv/.dev: .venv/.serve requirements-dev.lock
	@echo "Installing the tools of requirements-dev.lock into .venv, once"
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --require-hashes -r requirements-dev.lock
	@touch $@

clean: ## remove .venv and what was built
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

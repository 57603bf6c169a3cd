# Every target bootstraps .venv first: `make demo` in a fresh clone is all there is to do.
.DEFAULT_GOAL := help
BIN := .venv/bin
LOCK := uv pip compile --universal --python-version 3.12 --generate-hashes \
	--no-annotate --no-header --no-emit-index-url --no-emit-find-links --quiet

help: ## show this
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: .venv/installed ## the whole lineage on this machine, on real input (about 9 minutes)
	@$(BIN)/seaway demo

ui: .venv/installed ## Dagster's UI on what the demo made (PORT=3000)
	@$(BIN)/seaway ui --port $(or $(PORT),3000)

dash: .venv/installed ## evaluations in a browser (PORT=8400)
	@$(BIN)/seaway dash --port $(or $(PORT),8400)

test: .venv/installed ## unit, property, journey and real-data tests
	@$(BIN)/python -m pytest -n 4 -m "not faults"

faults: .venv/installed ## real Slurm, Ray and PostgreSQL, and kill -9 at every step of a job's life
	@$(BIN)/python -m pytest -n 2 -m faults

journeys: .venv/installed ## the stories that take longer than a test suite may: a lab on S3 behind a faulty network
	@SEAWAY_LONG_JOURNEYS=1 $(BIN)/python -m pytest -n 0 tests/journeys/test_s3_lab.py

bench: .venv/installed .venv-peers/installed ## every data stage beside its peers, interleaved in one run
	@$(BIN)/python -m ops.bench

peers: .venv-peers/installed ## the peers of `make bench` (datatrove and others), in .venv-peers

learners: .venv/installed .venv-peers-model/installed ## one update of ours beside OLMoE on torch and Mixtral of levanter (6 GB of packages)
	@$(BIN)/python -m model.bench --peers .venv-peers-model/bin/python

simulate: .venv/installed ## dispatch under faults: SEEDS=10000 worlds over SEAWAY_SIMULATION_JOBS processes
	@$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),10000)

lint: .venv/installed ## format, style, types, import directions
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

lock: .venv/installed ## requirements/*.txt from pyproject.toml: exact versions, hashes, no index address
	@$(BIN)/$(LOCK) pyproject.toml -o requirements/base.txt
	@$(BIN)/$(LOCK) pyproject.toml --extra dev -o requirements/dev.txt
	@$(BIN)/$(LOCK) --group peers -o requirements/peers.txt
	@$(BIN)/$(LOCK) --prerelease allow --group peers-model -o requirements/peers-model.txt

clean: ## the virtual environment, caches, and what the demo made
	@rm -rf .venv .venv-peers .venv-peers-model .seaway build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The lock is complete, so pip resolves nothing (--no-deps) and checks every hash.
.venv/installed: requirements/dev.txt pyproject.toml
	@python=$$(requirements/find-python) && echo "seaway: installing into .venv with $$python" && { [ -x $(BIN)/python ] || $$python -m venv .venv; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.venv-peers/installed: requirements/peers.txt
	@python=$$(requirements/find-python) && echo "seaway: installing peers into .venv-peers" && { [ -x .venv-peers/bin/python ] || $$python -m venv .venv-peers; }
	@.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/peers.txt
	@touch $@

.venv-peers-model/installed: requirements/peers-model.txt
	@python=$$(requirements/find-python) && echo "seaway: installing learners into .venv-peers-model" && { [ -x .venv-peers-model/bin/python ] || $$python -m venv .venv-peers-model; }
	@.venv-peers-model/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/peers-model.txt
	@touch $@

.PHONY: help demo ui dash test faults journeys bench peers learners simulate lint lock clean

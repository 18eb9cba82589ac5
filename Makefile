# Every target sets up .venv itself; all it needs is make and Python 3.11 or later.

PYTHON ?= python3
# Processes of tests: one more than two cores, as some tests wait for a browser or a server.
WORKERS ?= 3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# The tests start some two hundred interpreters, which need not compile the sources each time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow coverage golden bench bench-check real trust worlds false-alarms streams planted payloads drives intervals instruments scale docs reference lint lint-types lint-snippets format clean ros2 motor wrist-loads pushes fuzz interruptions legged dist test-lowest

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## the whole path on a robot that ships with the package: move it, identify it, and name the report
	$(BIN)/thetahat demo --out build/demo

test: $(VENV)/.dev ## run the tests (ARGS="-k name" passes options to pytest)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow" $(ARGS)

test-slow: $(VENV)/.dev ## run the long versions of the checks
	$(BIN)/python -m pytest -m slow $(ARGS)

test-lowest: $(VENV)/.dev ## run the tests with every dependency at the lowest version that pyproject.toml allows (ARGS="tests/cli")
	$(BIN)/python tools/lowest_versions.py build/lowest.txt
	test -x build/lowest/bin/python || $(PYTHON) -m venv build/lowest
	build/lowest/bin/python -m pip install --quiet --disable-pip-version-check --requirement build/lowest.txt
	build/lowest/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	build/lowest/bin/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow" $(ARGS)

coverage: $(VENV)/.dev ## run the tests and say which lines none of them runs (HTML in build/coverage)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow" --cov --cov-report=term:skip-covered --cov-report=html $(ARGS)

fuzz: $(VENV)/.dev ## 10,000 spoiled inputs of every format through the command line (ARGS="--count 500 --first 20000", "--only 17,f23")
	$(BIN)/python -m tests.fuzz $(ARGS)

interruptions: $(VENV)/.dev ## kill -9, full disks and read-only folders over the verbs that write (ARGS="--verbs identify,tool --moments 5")
	$(BIN)/python -m tests.interruptions $(ARGS)

golden: $(VENV)/.dev ## compute the golden numbers of the tests again, and print what changed (ARGS=real/ur10: only these)
	$(BIN)/python -m tests.golden.update $(ARGS)

real: $(VENV)/.dev ## identify the real robots of ../shared/data, and write the tables to build/real
	$(BIN)/python -m benchmarks.real $(ARGS)

trust: $(VENV)/.dev ## random arms with planted truth or faults, identified with defaults (ARGS="arms --count 200", rails, faults, clean)
	$(BIN)/python -m benchmarks.trust $(ARGS)

false-alarms: $(VENV)/.dev ## alarms of the online identifier in hours of motion in which nothing happens, goes on where it was (ARGS="--hours 80")
	$(BIN)/python -m benchmarks.false_alarms $(ARGS)

worlds: $(VENV)/.worlds ## the online loop on twelve arms of other people's packages, in MuJoCo (ARGS="--arms ur5e --friction 0.8")
	$(BIN)/python -m benchmarks.worlds $(ARGS)

streams: $(VENV)/.dev ## the online loop on forty streams whose sensors lie, three robots, in MuJoCo (ARGS="--robots arm4 --out build/streams.jsonl")
	$(BIN)/python -m benchmarks.streams $(ARGS)

planted: $(VENV)/.dev ## payloads, collisions and drift planted in the stream of an identified robot (ARGS="--runs 20 --kinds drift")
	$(BIN)/python -m benchmarks.planted $(ARGS)

motor: $(VENV)/.dev ## a servo on a bench, against its published model (shared data)
	$(BIN)/python -m benchmarks.motor_bench $(ARGS)

payloads: $(VENV)/.worlds ## payloads and drive gains of three simulated arms: errors, and whether intervals hold (ARGS="--runs 10 --tune")
	$(BIN)/python -m benchmarks.payloads $(ARGS)

drives: $(VENV)/.dev ## drives of 50 simulated robots from commanded positions: errors, and whether intervals hold (ARGS="--kinds hobby --count 3", --cma)
	$(BIN)/python -m benchmarks.drives $(ARGS)

ros2: $(VENV)/.dev ## joint states over DDS on loopback: how many arrive, how late (ARGS="--seconds 10")
	$(BIN)/python -m benchmarks.ros2_loopback $(ARGS)

wrist-loads: $(VENV)/.worlds ## loads that a wrist sensor feels on three simulated arms, 0.1 and 0.2 s after lifting (ARGS="--runs 10")
	$(BIN)/python -m benchmarks.wrist_loads $(ARGS)

pushes: $(VENV)/.dev ## external torque on real logs: false alarms, and planted pushes found within 50 ms (ARGS="panda ur10 --rate 6")
	$(BIN)/python -m benchmarks.pushes $(ARGS)

legged: $(VENV)/.dev ## legged robots that stand and sway in MuJoCo: mass, centre of mass, torques, intervals (ARGS="--robots g1 --runs 3")
	$(BIN)/python -m benchmarks.legged $(ARGS)

intervals: $(VENV)/.dev ## whether 95 % intervals hold: simulated logs identified with defaults (ARGS="--runs 200 --write")
	$(BIN)/python -m benchmarks.coverage $(ARGS)

instruments: $(VENV)/.dev ## instrumental variables beside least squares (ARGS="bias --count 100", "alarms --count 250", real)
	$(BIN)/python -m benchmarks.instruments $(ARGS)

bench: $(VENV)/.dev ## measure speed side by side with Pinocchio, and write benchmarks/results.json (ARGS=ratios: only that)
	$(BIN)/python -m benchmarks $(ARGS)

bench-check: $(VENV)/.dev ## fail where a ratio of speeds is more than 15 % below benchmarks/results.json
	$(BIN)/python -m benchmarks.ratios --check

scale: $(VENV)/.dev ## long logs on one and two workers, and again from the store (ARGS=2e7: the full size, 3 GB)
	$(BIN)/python -m benchmarks.scale $(ARGS)

dist: $(VENV)/.dev ## build sdist and wheel, check them, and run the demo of the wheel in a clean environment
	rm -rf dist build/wheel
	$(BIN)/python -m build --quiet --outdir dist
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/python -m pip install --quiet --disable-pip-version-check "$$(echo dist/*.whl)[mujoco]"
	cd build && wheel/bin/thetahat demo --out demo-of-the-wheel

docs: $(VENV)/.dev ## build the documentation into build/docs
	$(BIN)/mkdocs build --strict --site-dir build/docs

reference: $(VENV)/.dev ## bring signatures, members and options in docs/reference up to date with the code
	$(BIN)/python tools/update_reference.py

lint: $(VENV)/.dev ## check style, formatting and types, those of the snippets in README and docs too
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --no-print-directory --jobs=2 --output-sync lint-types lint-snippets

lint-types: $(VENV)/.dev
	$(BIN)/mypy

lint-snippets: $(VENV)/.dev
	$(BIN)/python tools/check_snippets.py

format: $(VENV)/.dev ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove .venv, caches and build products
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp says what was installed; it is stale when pyproject.toml changes. No stamp, no half-made environment.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed; try: make PYTHON=python3.12" >&2; exit 1; }
	@echo "setting up $(VENV) (a few minutes the first time)"
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "the venv module is missing; on Debian: apt-get install python3-venv" >&2; exit 1; }

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[mujoco]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.demo

# Only the robots' files of these packages are read, so nothing that they need is installed.
$(VENV)/.worlds: pyproject.toml $(VENV)/.dev
	$(PIP) --no-deps robosuite dm-control gymnasium-robotics
	@touch $@

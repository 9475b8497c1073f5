# make demo    the main job: Spark's own event log becomes tables and a picture; then two streams are joined
# make demo-live  an auction in Kafka, and a live query on Spark over it that is killed and goes on
# make test    the suite, but for what starts clusters and processes, or asks the RAPIDS planner: make test-services
# make test-fast    what is quick of it, without Spark
# make lint | types | bench | test-deep | pictures | lock | jar | kafka | lake | package | clean
#
# Each makes .venv first (from requirements/dev.txt, by hash) and is quick when there is nothing to make.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := test
.NOTPARALLEL:
.DELETE_ON_ERROR:

# Python keeps what it compiles: the suite starts dozens of processes, which would each compile the package anew.
export PYTHONDONTWRITEBYTECODE :=

RAPIDS_ARTIFACT := com.nvidia:rapids-4-spark_2.13:26.08.1:jar:cuda13
JARS := $(HOME)/.cache/gpu_ops/jars
JAR := $(JARS)/rapids-4-spark_2.13-26.08.1-cuda13.jar
# The broker for tests, and Spark's connector; their versions stand in requirements/*.xml too.
KAFKA := $(HOME)/.cache/gpu_ops/kafka
KAFKA_FOLDERS := $(KAFKA)/kafka-broker-4.1.1 $(KAFKA)/spark-kafka-4.1.3
# Table formats for Spark, which tests read and write.
LAKE := $(HOME)/.cache/gpu_ops/lake
LAKE_FOLDERS := $(LAKE)/spark-delta-4.1.0 $(LAKE)/spark-iceberg-1.11.0

RUN := .venv/bin/python
READY := .venv/ready
# Tests that run queries on Spark share one worker and its JVM (conftest.py). On two cores more workers than cores took
# longer: the suite and the services compute as much as they wait.
PYTEST := $(RUN) -m pytest --dist loadgroup --durations=20
WORKERS ?= 2

# The first that runs and is new enough: a name on the PATH may be a launcher without a Python behind it.
FOUND_PYTHON = $(shell for name in $(or $(PYTHON),python3 python3.13 python3.12 python3.14 python3.11); do \
	"$$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' 2>/dev/null \
	&& { echo "$$name"; break; }; done)
FOUND_VENV = $(shell "$(FOUND_PYTHON)" -c 'import ensurepip, venv; print("yes")' 2>/dev/null)
FOUND_JAVA = $(shell "$(if $(JAVA_HOME),$(JAVA_HOME)/bin/)java" -version 2>&1 \
	| awk -F '"' '/ version "/ { split($$2, part, "."); if (part[1] >= 17) print "yes" }')
FOUND_MAVEN = $(shell command -v mvn)

NO_PYTHON := Python 3.11 to 3.14 is missing (install it, or say where it is: make PYTHON=/path/to/python3)
NO_VENV = the venv module of $(FOUND_PYTHON) is missing (on Debian and Ubuntu: apt-get install python3-venv)
NO_JAVA := Java 17 or newer is missing (install a JRE, or say where it is: JAVA_HOME=/path)
NO_MAVEN := Maven (mvn) is missing: it fetches the RAPIDS jar, Kafka, Delta and Iceberg
NO_NETWORK := Maven (mvn) did not fetch them: it needs the network, and Maven Central or a mirror of it in settings.xml

.PHONY: demo demo-live test test-fast test-services test-deep bench pictures lint types lock jar kafka lake package clean java

demo: java $(READY)
	@$(RUN) -m gpu_ops.apps.demo

demo-live: java $(READY) $(KAFKA_FOLDERS)
	@$(RUN) -m gpu_ops.apps.demo_live

test: java $(READY)
	@$(PYTEST) -n $(WORKERS)

# A few examples for each property, no Spark, and nothing that takes long.
test-fast: $(READY)
	@HYPOTHESIS_PROFILE=fast $(PYTEST) -n $(WORKERS) -m "not spark and not slow"

# What starts clusters and processes or, where RAPIDS_JAR names its jar, asks the RAPIDS planner. GPU_OPS_REQUIRE_SERVICES=1: what cannot start here has failed.
test-services: java $(READY)
	@$(PYTEST) -n $(WORKERS) -m services

# Ten thousand examples for each property, and the tests marked `deep`.
test-deep: java $(READY)
	@HYPOTHESIS_PROFILE=deep $(PYTEST) -n $(WORKERS)
	@HYPOTHESIS_PROFILE=deep $(PYTEST) -n $(WORKERS) -m services

bench: java $(READY)
	@$(RUN) benchmarks/run.py --all
	@$(RUN) -m benchmarks.overlap
	@$(RUN) -m benchmarks.patterns
	@$(RUN) -m benchmarks.row_patterns
	@$(RUN) -m benchmarks.standing
	@$(RUN) -m benchmarks.contexts
	@$(RUN) -m benchmarks.cycles --events 10000000
	@mkdir -p build
	@$(RUN) benchmarks/run.py across-keys --json build/benchmarks.jsonl

# The pictures of docs/, from the examples that stand there; and what docs/benchmarks.md has from benchmarks.jsonl.
pictures: $(READY)
	@$(RUN) docs/draw.py

lint: $(READY)
	@$(RUN) -m ruff check
	@$(RUN) -m ruff format --check
	@.venv/bin/lint-imports --no-logo

types: $(READY)
	@$(RUN) -m mypy

# Versions that still fit stay; `make lock UPGRADE=1` takes the newest of all.
lock: $(READY)
	@.venv/bin/uv pip compile --quiet --universal --python-version 3.11 --python $(RUN) --generate-hashes \
		$(if $(UPGRADE),--upgrade) \
		--no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
		--extra spark --extra plot --group dev --output-file requirements/dev.txt pyproject.toml

jar: $(JAR)
	@echo $(JAR)

# The broker that tests start, and Spark's connector: all jars of each in a folder. It prints where both are.
kafka: $(KAFKA_FOLDERS)
	@echo $(KAFKA)

# The jars of Delta and Iceberg for Spark, each in a folder. It prints where both are.
lake: $(LAKE_FOLDERS)
	@echo $(LAKE)

# What a cluster is sent (docs/spark.md): `make package`, with ENVIRONMENT=cpu, gpu-cu12 or gpu-cu13 for an environment too.
package: $(READY)
	@$(RUN) spark_conf/package.py dist $(if $(ENVIRONMENT),--environment $(ENVIRONMENT))

clean:
	rm -rf .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Where both are missing, one line says so.
java:
	@$(if $(FOUND_JAVA),:,$(error $(NO_JAVA)$(if $(wildcard $(RUN))$(FOUND_PYTHON),,; $(NO_PYTHON))))

$(READY): requirements/dev.txt pyproject.toml
	@$(if $(FOUND_PYTHON),,$(error $(NO_PYTHON)))$(if $(FOUND_VENV),,$(error $(NO_VENV)))
	@echo 'Making .venv with $(FOUND_PYTHON) (minutes the first time)' >&2
	@test -x $(RUN) || "$(FOUND_PYTHON)" -m venv .venv
	@$(RUN) -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/dev.txt
	@$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

# Under another name until it is whole: an interrupted download is no jar.
$(JAR):
	@$(if $(FOUND_MAVEN),,$(error $(NO_MAVEN)))echo 'Fetching $(RAPIDS_ARTIFACT) (576 MB)' >&2
	@mkdir -p $(JARS)/part
	@mvn --batch-mode --quiet -Dstyle.color=never dependency:copy -Dartifact=$(RAPIDS_ARTIFACT) \
		-DoutputDirectory=$(JARS)/part >&2
	@mv $(JARS)/part/$(@F) $@

# Likewise. The folder is called like its list of jars, with the version behind it.
$(KAFKA_FOLDERS) $(LAKE_FOLDERS):
	@$(if $(FOUND_MAVEN),,$(error $(NO_MAVEN)))echo 'Fetching $(@F)' >&2
	@rm -rf $(@D)/part/$(@F)
	@name='$(@F)'; mvn --batch-mode --quiet --update-snapshots -Dstyle.color=never --file "requirements/$${name%-*}.xml" \
		dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(@D)/part/$(@F) >&2 \
		|| { echo '$(NO_NETWORK)' >&2; exit 1; }
	@mv $(@D)/part/$(@F) $@

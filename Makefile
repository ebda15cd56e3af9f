# Everything runs in .venv, which is made when it is first needed and renewed when pyproject.toml changes.
# All that it takes is make and Python 3.11 or later; name another one with PYTHON=python3.13.

ifndef PYTHON
PYTHON := $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$python; break; fi; done)
endif

BIN := .venv/bin
INSTALL := $(BIN)/python -m tests.support.installing
ARGS ?=

# The tests start hundreds of Python processes, each of which would compile every module anew. What is installed for
# them is compiled when it is first imported, too: most of it never is, and pip would compile it all on one core.
unexport PYTHONDONTWRITEBYTECODE

# Tests that wait for a broker or a JVM leave a core idle, which one more worker than cores fills.
WORKERS := $$(( $$($(BIN)/python -c 'import os; print(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)') + 1 ))

# No broker of its own process, no Java, no client library: what `make quick` runs.
QUICK := tests/unit tests/node tests/golden tests/simulation

.PHONY: help run quick soak simulation restarts test cli compare lint check format reference pipeline pipeline-kills prove spark-jobs spark-versions spark-clusters needs-java flights streams churn exactly-once checker property crash poisoned damages bench bench-cli bench-console bench-spark bench-spark-memory instructions growth profile golden dist docs site pictures clean attacks fuzz day

help:  ## what there is to make
	@sed -n 's/^\([a-z-]*\): .*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

run: .venv/.run  ## run the broker on 127.0.0.1:9092 (ARGS="--data DIR" and the like are passed on)
	@exec $(BIN)/barnabas $(ARGS)

quick: .venv/.quick  ## run the tests that need Python alone, for each save (ARGS="-k fetch" and the like are passed on)
	$(BIN)/python -m pytest -q -n auto --dist loadfile --capture=sys $(QUICK) $(ARGS)

soak: .venv/.quick  ## run them 50 times, each in an order of its own, with every core busy (ARGS="--times 5")
	$(BIN)/python -m tests.soak $(ARGS) $(QUICK)

simulation: .venv/.quick  ## crash a broker in memory by 500 seeds (ARGS="--seeds 50", "--cluster" for three, "--shares" with share groups, or a seed's number)
	$(BIN)/python -m tests.simulation $(ARGS)

restarts: .venv/.quick  ## compare all that is visible before and after restarts in memory, by 200 seeds (ARGS="--seeds 50", "--cluster" for three brokers, "--disk" on a real disk, or a seed's number)
	$(BIN)/python -m tests.simulation.restarts $(ARGS)

test: .venv/.dev reference  ## run the tests (ARGS="tests/unit -x" and the like are passed on)
	SIMULATED_SEEDS=60 $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(ARGS)

cli: .venv/.dev reference  ## play the command line's scenes to barnabas and Apache Kafka, one node and three of each (the tests draw some on three)
	DRAW=all $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup tests/cli $(ARGS)

compare: .venv/.dev reference  ## play every script to Apache Kafka and to barnabas (the tests play some to Kafka)
	COMPARE=all $(BIN)/python -m pytest tests/compare $(ARGS)

lint: .venv/.dev  ## check style, types, which floor imports which, and the prose of the documents
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/proselint check --config .proselintrc.json *.md docs/*.md docs/decisions/*.md

check: lint test  ## lint and test

format: .venv/.dev  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Fetched ahead of the tests, where Java and Maven are there, since a test's time is limited. Without
# them the tests that compare with Apache Kafka skip and say so.
reference: .venv/.dev  ## fetch Apache Kafka's jars, which some tests compare with, Spark's Kafka connector, and the oldest PySpark
	@KAFKA_VERSION=4.3.1 tests/kafka/kafka classpath >/dev/null || echo 'Tests that need an older Kafka will be skipped.'
	@tests/kafka/kafka archive || echo 'Tests that need Apache Kafka will be skipped.'
	@$(BIN)/python -m barnabas.spark.connector || echo 'Tests that need Spark will be skipped.'
	@$(BIN)/python -m tests.spark.versions.oldest || echo 'The test on the oldest PySpark will be skipped.'

pipeline: needs-java .venv/.pipeline  ## flights through PySpark, exactly once, from a broker of its own to a picture
	@$(BIN)/python -m examples.flights_pipeline $(ARGS)

prove: .venv/.dev  ## try the programs of examples/prove against all hazards, and find the mistake of each (ARGS="java --brokers 3 --quick")
	CLASSPATH="$$(tests/kafka/kafka classpath)"; export CLASSPATH; $(BIN)/python -m examples.prove $(ARGS)

pipeline-kills: .venv/.dev reference  ## kill the pipeline 45 times over the whole year, with either sink and broker
	$(BIN)/python -m tests.spark.kills $(ARGS)

spark-jobs: needs-java .venv/.dev reference  ## kill five kinds of jobs 105 times on either broker: workers, executors, drivers, brokers (ARGS="--jobs join --brokers barnabas")
	$(BIN)/python -m tests.spark.jobs $(ARGS)

spark-versions: needs-java .venv/.dev  ## the sink on every PySpark, Python and kafka-python that it is meant for, and a table
	$(BIN)/python -m tests.spark.versions $(ARGS)

spark-clusters: needs-java .venv/.dev  ## the sink on a standalone master with two workers, packages coming each way, and a table
	$(BIN)/python -m tests.spark.clusters $(ARGS)

needs-java:
	@[ -n "$$JAVA_HOME" ] || command -v java >/dev/null || { echo 'Spark needs Java 17 or later, and there is' \
	  'neither JAVA_HOME nor a java on the path. Debian' \
	  'and Ubuntu have it as openjdk-17-jre-headless, Homebrew as openjdk@17.' >&2; exit 1; }

flights: .venv/.dev reference  ## send a real data set through every client and codec, with a crash between
	$(BIN)/python -m tests.clients.flights $(ARGS)

streams: .venv/.dev reference  ## count the flights' words with Kafka Streams, exactly once, killed ten times
	$(BIN)/python -m tests.clients.flights.streams $(ARGS)

churn: .venv/.dev reference  ## Kafka Streams, Connect and a registry on compacted topics for an hour, killed all the while
	$(BIN)/python -m tests.churn $(ARGS)

exactly-once: .venv/.dev  ## consume, transform and produce in transactions, killed 200 times
	$(BIN)/python -m tests.clients.consume_transform_produce $(ARGS)

checker: .venv/.dev reference  ## let clients and broker crash amid transactions, and search what they saw for anomalies (ARGS="--cluster": three; "--shares": share consumers)
	$(BIN)/python -m tests.clients.checker $(ARGS)

property: .venv/.dev  ## try every property with forty times as many examples as the tests do
	EXAMPLES=40 $(BIN)/python -m pytest -n auto -o timeout=1800 tests/property tests/spark/test_arrow_batches.py tests/unit/protocol/test_record_walk.py tests/node/test_fair_memory.py $(ARGS)

crash: .venv/.dev  ## kill a broker at every operation on its files (the tests try a few of them)
	CRASH_POINTS=all $(BIN)/python -m pytest tests/crash -o timeout=1800 $(ARGS)

poisoned: .venv/.quick  ## start on poisoned internal topics and metadata logs, by 500 seeds each (the tests try ten)
	POISONED_ROUNDS=500 $(BIN)/python -m pytest -n auto -o timeout=1800 tests/node/test_poisoned_topics.py tests/node/test_poisoned_metadata.py $(ARGS)

damages: .venv/.quick  ## start on 340 damaged data folders (the tests try forty)
	DAMAGES=340 $(BIN)/python -m pytest -n auto -o timeout=1800 tests/node/test_damaged_folders.py $(ARGS)

fuzz: .venv/.dev  ## feed 2 million damaged inputs to what reads bytes before a client is known (ARGS="--inputs 20000")
	$(BIN)/python -m tests.fuzz $(ARGS)

attacks: .venv/.quick  ## let one client hold up the others by all it can, with 2 million damaged frames (the tests: 2,000, and a quarter of the APIs)
	DRAW=all ATTACK_SCALE=20 ATTACK_FRAMES=2000000 $(BIN)/python -m pytest tests/process/test_attacks.py $(ARGS)

bench: .venv/.dev reference  ## measure beside Apache Kafka
	$(BIN)/python -m tests.bench $(ARGS)

growth: .venv/.dev  ## measure what a request costs a broker that has little of a thing, and one that has much
	$(BIN)/python -m tests.bench.growth $(ARGS)

instructions: .venv/.dev  ## count what requests cost in instructions, whatever else the machine does (ARGS="--beside CHECKOUT")
	$(BIN)/python -m tests.bench.instructions $(ARGS)

profile: .venv/.dev  ## where the time of a Produce, a Fetch and a transaction goes, hop by hop
	$(BIN)/python -m tests.bench.hops $(ARGS)

day: .venv/.dev reference  ## what ten million transactions leave in the internal topics, beside Apache Kafka
	$(BIN)/python -m tests.bench.day $(ARGS)

bench-cli: .venv/.dev  ## measure `barnabas produce` and `consume` beside kcat
	$(BIN)/python -m tests.bench.command_line $(ARGS)

bench-console: .venv/.dev  ## measure the console in a browser: first paint, how soon a change is seen, what a broker pays
	$(BIN)/python -m tests.bench.console $(ARGS)

bench-spark: needs-java .venv/.dev reference  ## measure the sink for PySpark beside Spark's own, on both brokers
	$(BIN)/python -m tests.bench.spark $(ARGS)

bench-spark-memory: needs-java .venv/.dev reference  ## measure what the sink for PySpark holds in memory beside Spark's own (ARGS="--rows 10000000")
	$(BIN)/python -m tests.bench.spark_memory $(ARGS)

golden: .venv/.dev  ## make the golden vectors of messages anew by Apache Kafka's own classes
	$(BIN)/python -m tests.golden.remake

dist: .venv/.dev  ## build what is released, and check it as an index would (URL="https://…" is the address of the repository, for the links)
	@test -n "$(URL)" || { echo 'make dist URL=https://… : the page of a release links to the repository.' >&2; exit 1; }
	PROJECT_URL="$(URL)" $(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

docs: .venv/.dev  ## renew the tables in the documents that come from the code
	$(BIN)/python docs/tables.py $(ARGS)
	$(BIN)/python -m tests.node.transaction_walk

site: .venv/.dev  ## build the book as a site, in build/site; a link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

pictures: .venv/.dev  ## make the pictures of the console anew, by a scene of their own
	$(BIN)/python docs/pictures.py $(ARGS)

clean:  ## remove what make and the tools made
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .benchmarks
	find . -name __pycache__ -prune -exec rm -rf {} +

.venv/bin/python:
	@test -n '$(PYTHON)' || { echo 'This needs Python 3.11 or later.' >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.run: .venv/bin/python pyproject.toml
	$(INSTALL) --editable '.[compression]'
	@touch $@

.venv/.quick: .venv/bin/python pyproject.toml
	$(INSTALL) --no-compile --editable '.[quick]'
	@touch $@ .venv/.run

.venv/.pipeline: .venv/bin/python pyproject.toml
	@echo 'Installing PySpark (some 450 MB) and what else the pipeline needs into .venv (900 MB), once: a minute or some.'
	$(INSTALL) --editable '.[pipeline]'
	@touch $@ .venv/.run

.venv/.dev: .venv/bin/python pyproject.toml
	@echo 'Installing PySpark (some 450 MB) and the tools into .venv, once; that may take some minutes.'
	$(INSTALL) --no-compile --editable '.[dev]'
	@touch $@ .venv/.run .venv/.quick .venv/.pipeline

# The door for people. `make run` and `make test` need Python 3.11 or later and nothing else set up beforehand.
#
#   run      set up .venv on first use, start the hub from gateways.toml
#   test     lint, then run the tests of our own code (ARGS= goes to pytest)
#   lint     ruff, mypy, layers
#   wheel    build the wheel with the hot modules compiled by mypyc (optional: the plain files do the same, slower)
#   bench    measure side by side with mosquitto, RabbitMQ and Apache Kafka, about ten minutes (ARGS= names measurements);
#            bench-all: everything, about an hour
#   interop  run what needs programs of others, which it installs: stock clients of every door, Spark, a browser,
#            schemathesis, Kafka Connect and MirrorMaker 2, PostgreSQL in a temporary folder, as an unprivileged user
#            (ARGS= goes to pytest)
#   sim      simulate crashes from one seed on (SEED=, ROUNDS=, ARGS=--every-write)
#   soak     2,000 rounds of the simulator, twenty with a crash at every write, properties by chance, ten thousand random sessions, a link that is cut for ten minutes, then 1,000 hubs killed under load, 200 killed under attack, then
#            the order service and its hub killed a hundred times for each door (some hours); and a disk that is full, where one may be mounted
#   fuzz     send mutations of real conversations to every door, an hour at each, side by side (SEED=, SECONDS=, ARGS=)
#   sanitize run the native modules' tests under AddressSanitizer (needs libasan, which comes with gcc; ARGS= goes to pytest)
#   agree    for an hour (SECONDS=), under AddressSanitizer: native and plain code make the same of whatever chance says
#   demo     this machine as a device, Spark behind the hub, and a page that shows it (needs Java 17 or later)
#   docs     write the generated pages again
#   lock     resolve pyproject.toml anew into requirements/*.lock (asks the package registry)
#   setup    everything above needs, Spark too
#   clean    take away what was built; keeps .venv and data

VENV   := .venv
PYTHON := $(VENV)/bin/python
PIP    := $(PYTHON) -m pip --quiet --disable-pip-version-check
# A registry that stalls is waited for; what it builds in between asks as patiently.
export PIP_RETRIES         ?= 10
export PIP_DEFAULT_TIMEOUT ?= 60
# Tests start hundreds of Python processes: what one of them has read, the others need not read again.
unexport PYTHONDONTWRITEBYTECODE
# `$(COMPILED) -m pytest` runs on the compiled wheel of these very sources, `$(PYTHON) -m pytest` on the plain files.
COMPILED := $(PYTHON) scripts/wheel.py python
CONFIG ?= gateways.toml
SEED   ?= 1
ROUNDS ?= 100
SECONDS ?= 3600
AGREE   := tests/gateways/mqtt/test_native_publishes.py tests/kernel/write/test_body.py tests/kernel/log/test_frame_writer.py \
           tests/relay/test_marking.py
ARGS   ?=

# Stock clients and peers that do not come from PyPI, as command:package of Debian. mvn, npm and go fetch those of Java,
# Node and Go; where Go is 1.21 or later, its MQTT client is tested, too.
TEST_NEEDS  := gcc:gcc
INTEROP_NEEDS := mvn:maven npm:npm go:golang-go curl:curl kcat:kcat mosquitto_pub:mosquitto-clients amqp-publish:amqp-tools java:default-jre-headless openssl:openssl chromium:chromium pg_ctlcluster:postgresql
DEMO_NEEDS  := java:default-jre-headless
BENCH_NEEDS := openssl:openssl mosquitto:mosquitto epmd:erlang-base rabbitmqctl:rabbitmq-server java:default-jre-headless mvn:maven

# Twice as many processes as processors: for half of their time tests wait for clocks, disks and each other. Files are
# shared out in the order of tests/conftest.py, which says what stays together.
PROCESSES ?= $(shell expr 2 \* $$(getconf _NPROCESSORS_ONLN))
PYTEST := -m pytest -n $(PROCESSES) --dist loadscope --no-loadscope-reorder
INTEROP_TESTS := tests/interop tests/spark tests/openapi tests/console tests/gatehouse/demo tests/connect tests/databases
OWN_TESTS := tests $(addprefix --ignore=,$(INTEROP_TESTS))
# What ARGS= names is run in place of all of them.
these = $(if $(filter tests/%,$(ARGS)),,$(1)) $(ARGS)
# What runs on the hot modules is tested twice: compiled where there is a compiler, and plain, once for each state of
# them: tests/plain.passed says of which it has passed, and is committed with the change.
PLAIN_TESTS := tests/kernel tests/gateways tests/properties --ignore=tests/gateways/admission

RUN_STAMP   := $(VENV)/.stamp-run
TEST_STAMP  := $(VENV)/.stamp-test
INTEROP_STAMP := $(VENV)/.stamp-interop
SPARK_STAMP := $(VENV)/.stamp-spark
DEMO_STAMP  := $(VENV)/.stamp-demo

.PHONY: run lock test clients lint wheel bench bench-all docs setup clean demo agree fuzz interop sanitize sim soak

run: $(RUN_STAMP)
	@exec $(PYTHON) scripts/wheel.py serve $(CONFIG)

test: $(TEST_STAMP)
	@sh scripts/need.sh "the tests" $(TEST_NEEDS)
	@$(MAKE) --no-print-directory --jobs=2 lint wheel
	$(COMPILED) $(PYTEST) $(call these,$(OWN_TESTS))
	@$(PYTHON) scripts/wheel.py plain $(PYTEST) $(PLAIN_TESTS)

# Beside lint: mypyc takes as long as that does, on the other processor.
wheel: $(TEST_STAMP)
	@$(PYTHON) scripts/wheel.py build

interop: $(INTEROP_STAMP)
	@sh scripts/need.sh "the interop tests" $(TEST_NEEDS) $(INTEROP_NEEDS)
	@$(MAKE) --no-print-directory --jobs=2 clients wheel
	$(COMPILED) $(PYTEST) $(call these,$(INTEROP_TESTS))

clients: $(INTEROP_STAMP)
	@$(PYTHON) scripts/stock_clients.py
	@$(PYTHON) scripts/stock_clients.py connect

lint: $(TEST_STAMP)
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy
	$(VENV)/bin/lint-imports --no-logo

bench: $(TEST_STAMP)
	@sh scripts/need.sh "the benchmarks" $(BENCH_NEEDS)
	$(COMPILED) -m bench $(ARGS)

bench-all: ARGS += --all
bench-all: bench

sim: $(TEST_STAMP)
	$(PYTHON) -m tests.simulation $(SEED) --rounds $(ROUNDS) $(ARGS)

soak: $(TEST_STAMP)
	@sh scripts/need.sh "the tests" $(TEST_NEEDS)
	$(COMPILED) -m tests.simulation $(SEED) --rounds 2000
	$(COMPILED) -m tests.simulation 1 --rounds 20 --length 30 --every-write
	GATEHOUSE_EXAMPLES=random $(COMPILED) $(PYTEST) tests/properties tests/relay/test_simulation.py
	GATEHOUSE_SESSIONS=10000 $(COMPILED) $(PYTEST) tests/kernel/sessions/test_random.py
	GATEHOUSE_CUT_S=600 $(COMPILED) $(PYTEST) --timeout=2400 tests/relay/test_networks.py
	$(COMPILED) -m tests.faults --rounds 1000 --seed $(SEED)
	$(COMPILED) -m tests.faults.attack --kills 200 --seed $(SEED)
	$(COMPILED) -m tests.faults.orders --kills 100 --seed $(SEED)
	$(COMPILED) -m tests.faults.full_of_halves || test $$? = 3

fuzz: $(TEST_STAMP)
	$(COMPILED) -m tests.fuzz --seed $(SEED) --seconds $(SECONDS) $(ARGS)

# The native modules, with a guard at both ends of every buffer.
sanitize: $(TEST_STAMP)
	$(PYTHON) scripts/sanitize.py pytest -q tests/gateways/connections tests/gateways/tls tests/gateways/websocket $(AGREE) $(ARGS)

agree: $(TEST_STAMP)
	$(PYTHON) scripts/sanitize.py --seconds $(SECONDS) pytest -q $(AGREE) $(ARGS)

demo: $(DEMO_STAMP)
	@sh scripts/need.sh "the demo" $(DEMO_NEEDS)
	@exec $(COMPILED) -m gatehouse.demo $(ARGS)

lock: | $(PYTHON)
	@$(PYTHON) scripts/lock.py

docs: $(RUN_STAMP)
	$(PYTHON) -m gatehouse.reference

setup: $(RUN_STAMP) $(TEST_STAMP) $(INTEROP_STAMP) $(SPARK_STAMP)
	@sh scripts/need.sh "the tests" $(TEST_NEEDS) $(INTEROP_NEEDS)
	@$(PYTHON) scripts/stock_clients.py
	@$(PYTHON) scripts/wheel.py build

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

$(PYTHON):
	@sh scripts/make_venv.sh $(VENV)

# Stamps: made once, and again when the locks change. What is installed, direct or not, has its version and the hashes of
# its files in requirements/*.lock, and is built with what is there: pip fetches nothing else. What the tests need
# includes what the hub needs, and so on: whoever asks for more first waits for one installation.
INSTALL = $(PIP) install --require-hashes --no-build-isolation
PROJECT = $(PIP) install --no-deps --no-build-isolation --editable client --editable .

$(RUN_STAMP): pyproject.toml client/pyproject.toml requirements/run.lock | $(PYTHON)
	@echo "installing what the hub needs into $(VENV) (first use, or its list has changed)"
	@$(INSTALL) -r requirements/run.lock
	@$(PROJECT)
	@touch $@

$(TEST_STAMP): $(RUN_STAMP) requirements/test.lock
	@echo "installing what the tests need into $(VENV) (first use, or its list has changed)"
	@$(INSTALL) -r requirements/test.lock
	@touch $@

$(INTEROP_STAMP): $(TEST_STAMP) requirements/interop.lock
	@echo "installing what the interop tests need into $(VENV) (first use, or its list has changed)"
	@$(INSTALL) -r requirements/interop.lock
	@touch $@

$(SPARK_STAMP): $(RUN_STAMP) requirements/spark.lock
	@echo "installing what the Spark part needs into $(VENV) (first use, or its list has changed)"
	@$(INSTALL) -r requirements/spark.lock
	@touch $@

$(DEMO_STAMP): $(SPARK_STAMP) requirements/demo.lock
	@echo "installing what the demo needs into $(VENV) (first use, or its list has changed)"
	@$(INSTALL) -r requirements/demo.lock
	@touch $@

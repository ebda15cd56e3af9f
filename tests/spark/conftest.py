"""The Spark session that tests of this folder share, and the brokers that they run against.

Every test that uses it is of one of two groups, which take about as long: a worker runs all of a group, with one JVM.
Without Java, pyspark or the connector's jars they skip and say what is missing.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Generator, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import barnabas
from tests.support import apache_kafka as kafka_runner
from tests.support import spark_session
from tests.support.requirements import need_apache_kafka, need_program
from tests.support.unclosed import collect_unclosed_sockets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# kafka-python reads its schemas through a deprecated function while it is imported.
with warnings.catch_warnings(), contextlib.suppress(ImportError):
    warnings.simplefilter("ignore", DeprecationWarning)
    import barnabas.spark


# A second compiler costs a short session more than it gains: the shared one, and those of processes that tests start.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_JVM)
# Of the shared session alone: the job that is killed has Spark's own, and so has what is measured.
QUICK_WORKERS = {"spark.python.daemon.module": "tests.support.spark_workers"}

BROKERS = ("barnabas", "kafka")

OF_THE_SINK = {"test_sink", "test_hazards", "test_shuffling"}
"""Modules of the one group; the others are of the other."""


ONE_RUN_IN = 6
"""Of what is tried on Apache Kafka, which changes with the sink alone, a run tries one in so many."""


def pytest_itemcollected(item: pytest.Item) -> None:
    if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
        broker = item.callspec.params.get("bootstrap", item.callspec.params.get("server"))
        if broker == "kafka":
            item.add_marker(pytest.mark.one_run_in(ONE_RUN_IN))
    if "spark" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.xdist_group("sink" if item.path.stem in OF_THE_SINK else "spark"))
        # Not amid py4j's talk, if it can be helped: what is read after that makes no sense.
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(900))
        # py4j leaves its sockets to the garbage collector.
        item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
        item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    yield
    collect_unclosed_sockets()


class SharedSession:
    """The session of all tests: started for the first one that wants it, and anew where its JVM has died.

    A test that times out amid py4j's talk can take the JVM with it; the next one is not to pay for that.
    """

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._session: SparkSession | None = None

    def get(self) -> SparkSession:
        if self._session is not None and not self._is_alive():
            self._forget()
        if self._session is None:
            self._session = make_session(self._folders.mktemp("spark"))
        return self._session

    def stop(self) -> None:
        from py4j.protocol import Py4JError

        if self._session is not None:
            with contextlib.suppress(Py4JError, OSError):  # a JVM that has ended needs no stop
                self._session.stop()

    def _is_alive(self) -> bool:
        from py4j.protocol import Py4JError

        assert self._session is not None
        try:
            return not self._session.sparkContext._jsc.sc().isStopped()
        except (Py4JError, OSError, AttributeError):  # the last where the context was stopped on this side
            return False

    def _forget(self) -> None:
        """End what is left of it, and what pyspark knows of it, so that the next session has a JVM of its own."""
        from py4j.protocol import Py4JError
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        assert self._session is not None
        context, gateway = self._session.sparkContext, SparkContext._gateway
        if gateway is not None:
            gateway.proc.kill()
            gateway.proc.communicate()
        with warnings.catch_warnings(), contextlib.suppress(Py4JError, OSError):
            warnings.simplefilter("ignore", RuntimeWarning)  # that there is no JVM to stop it in
            context.stop()
        context.stop()  # what is left of it on this side
        SparkContext._gateway = SparkContext._jvm = SparkSession._instantiatedSession = None
        self._session = None


@pytest.fixture(scope="session")
def needs_spark() -> None:
    """All that a Spark session takes; the test skips where it is missing."""
    need_program("java")
    pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")
    from barnabas.spark import connector

    if not connector.is_fetched():
        pytest.skip("needs the jars of Spark's Kafka connector, which `make reference` fetches")


@pytest.fixture(scope="session")
def shared_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSession]:
    need_program("java")
    pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")
    shared = SharedSession(tmp_path_factory)
    yield shared
    shared.stop()


@pytest.fixture
def spark(shared_session: SharedSession) -> SparkSession:
    """A session on two cores, with Spark's own Kafka connector."""
    return shared_session.get()


def make_session(folder: Path, master: str = "local[2]", **settings: Any) -> SparkSession:
    """A quiet session; the test skips where one can't be had."""
    from barnabas.spark import connector

    try:
        session = spark_session.make_session(folder, master, **{**QUICK_WORKERS, **settings})
    except connector.MissingError as error:
        pytest.skip(str(error))
    session.sparkContext.setLogLevel("OFF")
    return session


@pytest.fixture(scope="session")
def barnabas_bootstrap() -> Iterator[str]:
    with barnabas.Broker() as broker:
        yield broker.bootstrap


# Of the package, so that it ends with the last test here: a JVM that idles costs processor.
@pytest.fixture(scope="package")
def kafka_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    need_apache_kafka()
    with kafka_runner.running(tmp_path_factory.mktemp("kafka-for-spark")) as kafka:
        yield kafka.bootstrap


@pytest.fixture(scope="package", params=BROKERS)
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Where a broker is that all tests share: barnabas and Apache Kafka in turn."""
    return str(request.getfixturevalue(f"{request.param}_bootstrap"))


_numbers = count()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Makes names that no other test has: `name("out")`."""
    number = f"{os.getpid()}-{next(_numbers)}"
    return lambda kind: f"{kind}-{number}"

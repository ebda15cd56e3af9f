"""Fixtures that tests of several folders share."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

import hypothesis
import pytest

import barnabas
from tests.support import apache_kafka as kafka_runner
from tests.support.apache_kafka import ApacheKafka
from tests.support.requirements import REQUIRE_ALL, need_apache_kafka, need_program

pytest_plugins = [
    "pytester",
    "tests.support.drawn",
    "tests.support.fewer_reports",
    "tests.support.hangs",
    "tests.support.shared_compiling",
    "tests.support.temporary_folders",
]

# How quickly examples are drawn says something of the machine alone.
hypothesis.settings.register_profile(
    "here", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("here")

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)

_brokers = pytest.StashKey[list[barnabas.Broker]]()


@pytest.fixture(scope="session")
def needs_java() -> str:
    """The path of `java`; the test skips where there is none."""
    return need_program("java")


@pytest.fixture(scope="session")
def needs_kcat() -> str:
    """The path of `kcat`; the test skips where there is none."""
    return need_program("kcat")


@pytest.fixture(scope="session")
def needs_kafka() -> Callable[..., str]:
    """Apache Kafka's tools, as `support.apache_kafka.tool`; the test skips where they can't be had."""
    need_apache_kafka()
    return kafka_runner.tool


@pytest.fixture(scope="session")
def apache_kafka(
    needs_kafka: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApacheKafka]:
    """One Apache Kafka for all tests of the session, with its settings as `tests/kafka/kafka` writes them."""
    with kafka_runner.running(tmp_path_factory.mktemp("apache-kafka")) as kafka:
        yield kafka


@pytest.fixture
def barnabas_broker(request: pytest.FixtureRequest) -> Iterator[Callable[..., barnabas.Broker]]:
    """Starts brokers for this test: `barnabas_broker(config={...})` takes what `barnabas.Broker` takes."""
    started: list[barnabas.Broker] = []
    request.node.stash[_brokers] = started

    def start(**options: object) -> barnabas.Broker:
        broker = barnabas.Broker(**options)  # type: ignore[arg-type]
        started.append(broker.start())
        return broker

    yield start
    for broker in started:
        broker.stop()


LONGEST_FIRST = ("spark", "compare", "clients", "interop", "crash", "process")
"""Folders of tests whose groups take minutes: begun last, one core would wait for the other."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long groups first, and otherwise in the order that was drawn."""
    places = {f"tests/{folder}/": place for place, folder in enumerate(LONGEST_FIRST)}

    def rank(item: pytest.Item) -> tuple[int, bool]:
        folder = item.nodeid[: item.nodeid.find("/", len("tests/")) + 1]
        return places.get(folder, len(places)), item.get_closest_marker("xdist_group") is None

    items.sort(key=rank)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected and imported stays: no collection of garbage looks for any in it, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    # Under xdist one worker runs all tests that use Apache Kafka, so that only one of it is started. Marked as soon as
    # it can be: xdist looks at the marks when all is collected, before or after such a hook of ours.
    if "apache_kafka" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.xdist_group("apache_kafka"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for broker in item.stash.get(_brokers, []):
            report.sections.append((f"what {broker!r} printed", broker.log))
    return _as_failure_where_all_is_required(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    return _as_failure_where_all_is_required(report)


def _as_failure_where_all_is_required(report: Report) -> Report:
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"BARNABAS_REQUIRE_ALL is set, and this would skip: {report.longrepr}"
    return report

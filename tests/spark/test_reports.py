"""Each batch's report reaches whoever asked for it, and tells where its time went."""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

from barnabas.spark import BatchReport, ExactlyOnceKafkaSink, transaction
from barnabas.spark import transaction as explained
from tests.spark.outputs import create

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Name = Callable[[str], str]
REPORT = BatchReport(4, False, 2, 10, 700, 1.0, 2.0, 3.0, 4.0, ())


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "write_batch", lambda *given, **named: (REPORT, None))


def sink(on_report: Callable[[BatchReport], object] | None) -> ExactlyOnceKafkaSink:
    return ExactlyOnceKafkaSink("127.0.0.1:1", query="q", topic="t", on_report=on_report)


@pytest.mark.usefixtures("written")
def test_a_batchs_report_reaches_the_listener() -> None:
    told: list[BatchReport] = []
    frame: Any = None
    sink(told.append)(frame, 4)
    assert told == [REPORT]


@pytest.mark.usefixtures("written")
def test_a_listener_that_fails_fails_no_batch(caplog: pytest.LogCaptureFixture) -> None:
    def fail(report: BatchReport) -> None:
        raise ZeroDivisionError("of the listener")

    frame: Any = None
    with caplog.at_level(logging.ERROR):
        assert sink(fail).write(frame, 4) is REPORT
    (record,) = [
        each for each in caplog.records if each.name == "barnabas.spark.sink"
    ]  # its text may be JSON
    assert "on_report failed for batch 4, which is committed" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


def test_a_pickled_sink_keeps_its_listener() -> None:
    assert pickle.loads(pickle.dumps(sink(print))).on_report is print


def test_the_parts_of_a_batchs_time_are_distinguished(
    spark: SparkSession, barnabas_bootstrap: str, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that only the requests move: an hour for each of these."""
    clock = {"s": 0.0}
    hours = {"init_producer_id": 1, "add_partitions": 2, "open_transactions": 4, "end_transaction": 8}

    def takes(request: str, number: int) -> None:
        original = getattr(transaction.Wire, request)

        def call(connection: Any, *given: Any, **named: Any) -> Any:
            clock["s"] += number * 3600
            return original(connection, *given, **named)

        monkeypatch.setattr(transaction.Wire, request, call)

    topic = create(barnabas_bootstrap, name("out"), 2)
    one = ExactlyOnceKafkaSink(
        barnabas_bootstrap, query=name("q"), topic=topic, transaction_timeout_ms=900_000
    )
    rows = spark.range(10).selectExpr("cast(id as string) value")
    for request, number in hours.items():
        takes(request, number)
    shown = SimpleNamespace(monotonic=lambda: time.monotonic() + clock["s"], sleep=time.sleep)
    monkeypatch.setattr(transaction, "time", shown)
    monkeypatch.setattr(explained, "time", shown)
    report = one.write(rows, 0)
    one.close()
    spent = (report.prepare_ms, report.write_ms, report.check_ms, report.commit_ms)
    assert [int(each // 3_600_000) for each in spent] == [3, 0, 4, 8]
    assert (report.records, report.tries) == (10, 1)

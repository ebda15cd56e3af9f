"""What the driver decides, without Spark or a broker: reports, markers, source offsets."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

from pyspark.sql.types import StringType, StructField, StructType

from barnabas.spark import ExactlyOnceKafkaSink, marker
from barnabas.spark import plan as reports
from barnabas.spark.errors import (
    DuplicateWriteError,
    MarkerError,
    RowError,
    SourceOffsetsError,
    SpeculationError,
    StageRepeatedError,
    TryFailedError,
    WrittenTwiceError,
)
from barnabas.spark.marker import Marker
from barnabas.spark.plan import PartitionReport
from barnabas.spark.stream import LoggedOffsets, parse_offsets
from barnabas.spark.wire import Record
from protocol.records.batch import read_records


def wrote(partition: int | None, attempt: int, topic: str | None = "t", stage_attempt: int = 0) -> list[Any]:
    return [topic, partition, attempt, 5, 1, 100, 0, 4, None, None, None, stage_attempt]


def failed(error: str, reason: str = "why", stage_attempt: int = 0) -> list[Any]:
    return [None, None, 1, 0, 0, 0, -1, -1, error, reason, 9, stage_attempt]


def test_reports_come_in_the_order_of_partitions() -> None:
    checked = reports.check([wrote(1, 7), wrote(0, 8), wrote(0, 7, "s")])
    assert [(one.topic, one.partition) for one in checked] == [("s", 0), ("t", 0), ("t", 1)]
    assert checked[1] == PartitionReport("t", 0, 8, 5, 1, 100, 0, 4)


def test_a_partition_written_by_two_attempts_fails_the_try() -> None:
    with pytest.raises(WrittenTwiceError, match="partition 1 of t was written by the task attempts 7 and 9"):
        reports.check([wrote(1, 7), wrote(0, 7), wrote(1, 9)])


def test_a_task_that_wrote_nothing_is_no_partitions_report() -> None:
    assert [one.attempt for one in reports.check([wrote(None, 7, None), wrote(1, 8)])] == [8]


@pytest.mark.parametrize("partition", [1, None])
def test_a_stage_that_spark_repeated_fails_the_try(partition: int | None) -> None:
    again = wrote(partition, 9, None if partition is None else "t", stage_attempt=1)
    with pytest.raises(StageRepeatedError, match="repeated a stage"):
        reports.check([wrote(0, 7), again])


def test_a_repeated_stages_failure_is_named_after_it() -> None:
    with pytest.raises(StageRepeatedError):
        reports.check([wrote(0, 7), wrote(0, 9, stage_attempt=1), failed("DuplicateWriteError", "", 1)])


def test_an_error_that_no_try_mends_goes_ahead_of_a_repeated_stage() -> None:
    with pytest.raises(RowError):
        reports.check([wrote(0, 7, stage_attempt=1), failed("RowError")])


def test_a_tasks_error_is_raised_with_its_type() -> None:
    with pytest.raises(DuplicateWriteError, match="why"):
        reports.check([wrote(0, 1), failed("DuplicateWriteError")])


def test_an_error_that_no_try_mends_goes_ahead_of_others() -> None:
    with pytest.raises(RowError):
        reports.check([failed("TryFailedError"), failed("RowError")])


def test_an_error_of_an_unknown_name_is_tried_again() -> None:
    with pytest.raises(TryFailedError, match="why"):
        reports.check([failed("ValueError")])


@pytest.mark.parametrize("written", [Marker("here", 3), Marker("here", 3, "digest")])
def test_a_marker_is_read_as_it_was_written(written: Marker) -> None:
    (record,) = read_records(marker.encode(written, "q").data)
    assert record.key == b"q/here"
    assert marker.decode(Record(0, record.key, record.value), "topic") == written


@pytest.mark.parametrize("value", [None, b"", b"x", b"[]", b'{"version": 2}', b'{"version": 1}'])
def test_an_invalid_marker_is_refused(value: bytes | None) -> None:
    with pytest.raises(MarkerError, match="the record at offset 7 of topic isn't a marker"):
        marker.decode(Record(7, b"q", value), "topic")


@pytest.mark.parametrize(
    ("sources", "same"),
    [
        (['{"in":{"0":5}}'], True),
        (['{"in":{"0":5}}', "-"], True),
        (['{"logOffset":1}'], False),  # a number that tells nothing of the contents
        (['{"in":{"0":5}}', '{"logOffset":1}'], False),
        (["0"], False),
        (["not JSON"], False),
    ],
)
def test_a_batch_of_the_same_offsets_of_kafka_is_the_same(sources: list[str], same: bool) -> None:
    first, second = (
        LoggedOffsets("file", "\n".join(["v1", f'{{"batchTimestampMs":{time_ms}}}', *sources]))
        for time_ms in (1, 2)
    )
    assert first.digest == replace(first, text=first.text + "\n").digest
    assert (first.digest == second.digest) is same
    other = replace(first, text=first.text + "-")
    assert other.digest != first.digest


def log(*sources: Any) -> str:
    lines = [source if isinstance(source, str) else json.dumps(source) for source in sources]
    return "\n".join(["v1", '{"batchWatermarkMs":0}', *lines])


def test_the_offset_logs_kafka_sources_are_the_groups_offsets() -> None:
    text = log({"in": {"0": 5, "1": 7}}, {"other": {"0": 1}})
    assert parse_offsets(text, "file") == {"in": {0: 5, 1: 7}, "other": {0: 1}}


def test_of_two_sources_of_one_topic_the_one_behind_counts() -> None:
    assert parse_offsets(log({"in": {"0": 5}}, {"in": {"0": 3, "1": 9}}), "file") == {"in": {0: 3, 1: 9}}


def test_other_sources_are_skipped() -> None:
    assert parse_offsets(log("-", "17", {"logOffset": 3}, {"in": {"0": 5}}), "file") == {"in": {0: 5}}


def test_a_query_without_a_source_of_kafkas_has_no_offsets_to_commit() -> None:
    with pytest.raises(SourceOffsetsError, match="no Kafka source, according to file"):
        parse_offsets(log("17", {"logOffset": 3}), "file")


def test_an_offset_log_of_another_version_is_refused() -> None:
    with pytest.raises(SourceOffsetsError, match="file has version 'v2'"):
        parse_offsets("v2\n{}\n{}", "file")


@pytest.mark.parametrize("told", ["true", "True", " TRUE "])  # to Spark all the same
def test_a_session_that_speculates_is_refused_ahead_of_any_request(told: str) -> None:
    settings = {"spark.speculation": told}
    batch: Any = SimpleNamespace(
        schema=StructType([StructField("value", StringType())]),
        isStreaming=False,
        sparkSession=SimpleNamespace(conf=SimpleNamespace(get=settings.get)),
    )
    sink = ExactlyOnceKafkaSink("127.0.0.1:1", query="q", topic="t")
    with pytest.raises(SpeculationError, match=r"spark\.speculation=true"):
        sink.write(batch, 0)
    sink.close()

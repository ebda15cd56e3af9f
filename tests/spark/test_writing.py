"""What a task makes of its attempt, of brokers' answers and of what goes wrong, without Spark or a broker."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pyspark = pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

import pyarrow as pa

from barnabas.spark import errors as codes
from barnabas.spark import hanging, tasks
from barnabas.spark import hanging as sequences
from barnabas.spark import tasks as writing
from barnabas.spark import wire as wire_records
from barnabas.spark.arrow_batches import Batch
from barnabas.spark.errors import DuplicateWriteError, ResponseError, TryFailedError
from barnabas.spark.plan import SEQUENCES, Blob, PartitionReport, Plan, Target
from barnabas.spark.tasks import Here, Partition, Writer
from barnabas.spark.wire import Appended, Identity, Pending
from barnabas.spark.wire_connection import OpenTransaction
from tests.spark.plans import plan

PLAN = replace(
    plan(1, batch_bytes=1000, t=2),
    bootstrap="127.0.0.1:1",
    transactional_id="id",
    producer_id=7,
    epoch=3,
    leaders=(1, 1),
)


def blob(records: int, target: int = 0, size: int = 9) -> Blob:
    return Blob(target, Batch(records, bytearray(61), b"x" * size))


def rows(blobs: Iterator[Blob], is_again: bool = False) -> list[dict[str, Any]]:
    return [row for batch in writing.report(PLAN, Here(0, 11, is_again), blobs) for row in batch.to_pylist()]


@pytest.mark.parametrize(("number", "is_again"), [(0, False), (1, True)])
def test_a_task_knows_whether_it_was_tried_before(
    monkeypatch: pytest.MonkeyPatch, number: int, is_again: bool
) -> None:
    context = SimpleNamespace(
        partitionId=lambda: 2,
        taskAttemptId=lambda: 11,
        attemptNumber=lambda: number,
        stageId=lambda: 4,
    )
    monkeypatch.setattr(pyspark.TaskContext, "get", lambda: context)
    assert Here.of_this_task() == Here(2, 11, is_again, 4)


def test_a_task_that_was_tried_before_writes_nothing() -> None:
    taken: list[int] = []

    def blobs() -> Iterator[Blob]:
        taken.append(1)
        yield blob(1)

    (row,) = rows(blobs(), is_again=True)
    assert (row["error"], row["topic"]) == ("TaskRepeatedError", None)
    assert "tried a task again" in row["reason"]
    assert not taken


def test_whatever_fails_in_a_task_is_reported_with_its_place() -> None:
    def blobs() -> Iterator[Blob]:
        raise ZeroDivisionError("by nothing")
        yield

    (row,) = rows(blobs())
    assert row["error"] == "TryFailedError"
    assert "test_writing.py:" in row["reason"]
    assert row["reason"].endswith("ZeroDivisionError: by nothing")


def test_a_package_that_a_worker_lacks_is_named_with_its_python() -> None:
    def blobs() -> Iterator[Blob]:
        raise ModuleNotFoundError("No module named 'zstandard'")
        yield

    (row,) = rows(blobs())
    assert row["error"] == "WorkerError"
    for told in (sys.executable, "No module named 'zstandard'", "PYSPARK_PYTHON"):
        assert told in row["reason"]


@pytest.mark.parametrize("name", ["snappy", "lz4", "zstd"])
def test_a_compression_that_a_worker_lacks_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(wire_records.codec, name, None)
    values = pa.RecordBatch.from_arrays([pa.array([b"x"], pa.binary())], ["value"])
    (row,) = rows(tasks.build(replace(PLAN, compression=name), [values], [0], 1))
    assert row["error"] == "WorkerError"
    for told in (sys.executable, f"compression={name!r}", wire_records.PACKAGES[name]):
        assert told in row["reason"]


def test_an_error_that_is_no_text_is_shown() -> None:
    def blobs() -> Iterator[Blob]:
        raise FileNotFoundError("no file \udcff")
        yield

    (row,) = rows(blobs())
    assert row["reason"].endswith("no file \\udcff")


def test_only_the_beginning_of_a_long_error_is_shown() -> None:
    def blobs() -> Iterator[Blob]:
        raise ValueError("x" * 10_000_000)
        yield

    (row,) = rows(blobs())
    assert len(row["reason"]) == writing.MOST_TOLD


def test_a_task_without_rows_reports_that_it_ran() -> None:
    (row,) = rows(iter(()))
    assert (row["attempt"], row["topic"], row["error"]) == (11, None, None)


def test_a_task_leaves_no_archive_for_the_next_one_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = ("partitionId", "taskAttemptId", "attemptNumber", "stageId")
    context = SimpleNamespace(**dict.fromkeys(numbers, lambda: 0))
    monkeypatch.setattr(pyspark.TaskContext, "get", lambda: context)
    archives = ["/spark/python/lib/pyspark.zip/pyspark/sql", "/jars/kafka-clients-3.9.0.jar", "C:\\a.zip\\b"]
    others = ["/lib/python3.12", "/home/jars/here", "/a.zipped/b"]
    for path in [*archives, *others]:
        monkeypatch.setitem(sys.path_importer_cache, path, None)
    list(tasks.write_rows(PLAN)(iter(())))
    assert not sys.path_importer_cache.keys() & set(archives)
    assert sys.path_importer_cache.keys() >= set(others)


def test_a_worker_imports_no_pandas() -> None:
    """Which takes it as long as all else together, and much of its memory."""
    work = (
        "import pickle, sys, numpy as np, pyarrow as pa\n"
        "from barnabas.spark import tasks\n"
        f"plan = pickle.loads({pickle.dumps(PLAN)!r})\n"
        "strings = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b'x'))\n"
        "rows = pa.RecordBatch.from_arrays([strings, strings], ['key', 'value'])\n"
        "blobs = list(tasks.build(plan, [rows], [0, 1], 1))\n"
        "list(tasks.report(plan, tasks.Here(0, 1, True), iter(blobs)))\n"
        "sys.exit('pandas' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", work], check=True)


def test_none_of_many_topics_is_looked_up_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 3,000 of them that took 2.8 s of each 8 MB."""
    names = [f"t{number}" for number in range(20)]
    targets = tuple(Target(name, partition) for name in names for partition in range(2))
    limits = dict.fromkeys(names, 1000)
    plan = replace(PLAN, topic=None, targets=targets, leaders=(1,) * 40, max_message_bytes=limits)
    rows = pa.RecordBatch.from_arrays(
        [pa.array(names * 2), pa.array([b"x"] * 40, pa.binary())], ["topic", "value"]
    )
    looked: list[str] = []
    monkeypatch.setattr(Plan, "targets_of", lambda self, topic: looked.append(topic) or range(40))
    blobs = list(tasks.build(plan, [rows], list(range(1, 40, 2)), 1))
    assert sorted(one.target for one in blobs) == list(range(1, 40, 2))
    assert not looked


class Answers:
    """A connection that takes everything, and answers with these offsets.

    sent: the partitions of each request, in order. waited: how many requests were sent when an answer was waited for.
    """

    def __init__(self, *offsets: int) -> None:
        self.offsets = list(offsets)
        self.sent: list[list[int]] = []
        self.waited: list[int] = []

    def send(self, leader: int, transactional_id: str, batches: Any) -> Pending:
        self.sent.append([one.partition for one in batches])
        return Pending([(one.topic, one.partition) for one in batches], None)

    def wait(self, pending: Pending) -> list[Appended]:
        self.waited.append(len(self.sent))
        return [Appended(self.offsets.pop(0), -1) for _ in pending.places]


def writer(*offsets: int) -> Writer:
    connection: Any = Answers(*offsets)
    return Writer(PLAN, connection, leaders=[1, 1])


def test_consecutive_batches_are_taken() -> None:
    one = writer(5, 8, 20)
    for _ in range(3):
        one.send(blob(3))
    one.finish()
    assert one.partitions[0] == Partition(0, 9, 9, 3, 210, 5, 22)


@pytest.mark.parametrize("offset", [4, 5, 7])
def test_a_batch_that_does_not_follow_the_last_one_is_a_duplicate(offset: int) -> None:
    one = writer(5, offset)
    one.send(blob(3))
    one.send(blob(3))
    with pytest.raises(DuplicateWriteError, match=f"at offset {offset}"):
        one.finish()


def many(targets: int, **plan: Any) -> tuple[Writer, Any]:
    """A writer to so many partitions, whose batches all are appended at the offsets 0, 1, …"""
    connection: Any = Answers(*range(1000))
    told = replace(
        PLAN,
        targets=tuple(Target("t", number) for number in range(targets)),
        leaders=(1,) * targets,
        max_message_bytes={"t": 1 << 30},
    )
    return Writer(replace(told, **plan), connection, leaders=list(told.leaders)), connection


def test_small_batches_of_many_partitions_travel_together() -> None:
    one, connection = many(100)
    for target in range(100):
        one.send(blob(1, target))
    assert not connection.sent
    one.finish()
    assert connection.sent == [list(range(100))]
    assert sorted(one.partitions) == list(range(100))


def test_a_request_leaves_once_it_is_large() -> None:
    one, connection = many(10)
    for target in range(10):
        one.send(blob(1, target, writing.REQUEST_BYTES // 4))
    assert connection.sent == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert not connection.waited


def test_a_partitions_next_batch_waits_for_the_last_ones_answer() -> None:
    one, connection = many(2)
    for target in (0, 1, 0):
        one.send(blob(1, target))
    assert (connection.sent, connection.waited) == ([[0, 1]], [1])
    one.finish()
    assert connection.sent == [[0, 1], [0]]
    assert [part.sequence for part in one.partitions.values()] == [2, 1]


def test_requests_and_bytes_on_their_way_are_bounded() -> None:
    one, connection = many(20)
    for target in range(10):
        one.send(blob(1, target, writing.REQUEST_BYTES))
    assert connection.waited == list(range(writing.IN_FLIGHT, 10))
    one, connection = many(20)
    for target in range(4):
        one.send(blob(1, target, writing.IN_FLIGHT_BYTES // 2))
    assert connection.waited == [1, 2, 3]
    one, connection = many(20)
    one.send(blob(1, 0, 2 * writing.IN_FLIGHT_BYTES))
    assert connection.sent == [[0]]


def open_at(partition: int, last_sequence: int, producer_id: int = 7, epoch: int = 3) -> OpenTransaction:
    return OpenTransaction("t", partition, 1, producer_id, epoch, -1, 0, last_sequence)


def wrote(partition: int, records: int) -> PartitionReport:
    return PartitionReport("t", partition, 1, records, 1, 1, 0, records - 1)


def compare(found: Any, *written: PartitionReport) -> None:
    def open_transactions(leaders: Any) -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    connection: Any = SimpleNamespace(open_transactions=open_transactions)
    sequences.check(connection, Identity(7, 3), lambda: {"t": {0: 1, 1: 1}}, written)


def test_partitions_that_hold_the_reported_records_pass() -> None:
    others = [open_at(0, 99, producer_id=8), open_at(1, 99, epoch=2)]
    compare([open_at(0, 4), *others], wrote(0, 5))


def test_sequences_that_began_at_0_again_pass() -> None:
    compare([open_at(0, SEQUENCES - 1)], wrote(0, SEQUENCES))
    compare([open_at(0, 0)], wrote(0, SEQUENCES + 1))


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ([open_at(0, 5)], "holds records up to the sequence 5 .* reported records up to the sequence 4"),
        ([open_at(0, 3)], "holds records up to the sequence 3 .* reported records up to the sequence 4"),
        ([], "partition 0 of t holds nothing"),
        ([open_at(0, 4, epoch=2)], "partition 0 of t holds nothing"),
        ([open_at(0, 4), open_at(1, 0)], "partition 1 of t holds .* sequence 0 .* reported nothing"),
    ],
)
def test_a_partition_that_holds_something_else_fails_the_try(found: list[OpenTransaction], told: str) -> None:
    with pytest.raises(TryFailedError, match=told):
        compare(found, wrote(0, 5))


@pytest.mark.parametrize("code", [codes.TOPIC_AUTHORIZATION_FAILED, codes.UNSUPPORTED_VERSION])
def test_where_producers_cannot_be_seen_the_tasks_are_believed_and_a_warning_appears_once(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    hanging._warned.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            compare(ResponseError(code, "Refused", "DescribeProducers of t-0"), wrote(0, 5))
    assert caplog.text.count("DescribeProducers of t-0: Refused") == 1


def test_another_error_of_the_broker_is_not_passed_over() -> None:
    with pytest.raises(ResponseError):
        compare(ResponseError(codes.UNKNOWN_TOPIC_OR_PARTITION, "Unknown", "what"), wrote(0, 5))

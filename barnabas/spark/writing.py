"""One task's writing: batches are stamped and sent, one at a time to each partition, and what came of it reported."""

from __future__ import annotations

import platform
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self

import pyarrow as pa

from barnabas.spark import arrow_batches, codes, reports, wire
from barnabas.spark.codes import NoAnswerError, ResponseError, as_sink_error
from barnabas.spark.errors import (
    DuplicateWriteError,
    RecordTooLargeError,
    SinkError,
    TryFailedError,
    WorkerError,
)
from barnabas.spark.plan import SEQUENCES, Blob, Plan
from barnabas.spark.schemas import arrow_schema
from barnabas.spark.wire import Pending, Wire

# Requests on their way at a time, to as many partitions: one is sent while the next is built.
IN_FLIGHT = 4
# Answers after which the same batch may be sent again: where it was appended after all, the broker says so.
SENT_AGAIN = {*codes.LEADER_MOVES, *codes.COORDINATOR_MOVES, codes.NOT_ENOUGH_REPLICAS}
SENDINGS = 6
PAUSE_S = 0.05
FRESH = -1

SCHEMA = arrow_schema(reports.SCHEMA)


@dataclass(frozen=True, slots=True)
class Here:
    """Where this code runs. attempt: unique in the application. is_again: whether the task was tried before."""

    task: int
    attempt: int
    is_again: bool

    @classmethod
    def of_this_task(cls) -> Self:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise TryFailedError("this runs outside of a Spark task")
        return cls(context.partitionId(), context.taskAttemptId(), context.attemptNumber() > 0)


@dataclass(slots=True)
class Partition:
    """How far one partition got."""

    target: int
    sequence: int = 0
    records: int = 0
    batches: int = 0
    bytes: int = 0
    first_offset: int = -1
    last_offset: int = -1


@dataclass(slots=True)
class Sent:
    """A batch on its way, and its answer to come."""

    partition: Partition
    batch: arrow_batches.Batch
    pending: Pending


@dataclass(slots=True)
class Writer:
    """Sends blobs. Raises a SinkError as soon as anything speaks against the try."""

    plan: Plan
    connection: Wire
    partitions: dict[int, Partition] = field(default_factory=dict)
    leaders: list[int] = field(default_factory=list)
    in_flight: deque[Sent] = field(default_factory=deque)

    def send(self, blob: Blob) -> None:
        """Sends a batch once there is room on the way; one at a time for each partition, to keep their order.

        Raises RecordTooLargeError, and what came of the batches that it waited for.
        """
        partition = self.partitions.setdefault(blob.target, Partition(blob.target))
        while len(self.in_flight) >= IN_FLIGHT or any(sent.partition is partition for sent in self.in_flight):
            self._finish(self.in_flight.popleft())
        data = blob.batch.data
        target = self.plan.targets[blob.target]
        limit = self.plan.max_message_bytes[target.topic]
        if len(data) > limit:
            raise RecordTooLargeError(
                f"a record batch of {len(data)} bytes, with {blob.batch.records} record(s), is larger than "
                f"max.message.bytes={limit} of the topic {target.topic}"
            )
        arrow_batches.stamp(data, self.plan.producer_id, self.plan.epoch, partition.sequence)
        partition.sequence = (partition.sequence + blob.batch.records) % SEQUENCES
        self.in_flight.append(Sent(partition, blob.batch, self._begin(partition, data)))

    def finish(self) -> None:
        while self.in_flight:
            self._finish(self.in_flight.popleft())

    def _begin(self, partition: Partition, data: bytearray) -> Pending:
        target = self.plan.targets[partition.target]
        leader = self.leaders[partition.target]
        return self.connection.send(leader, self.plan.transactional_id, target.topic, target.partition, data)

    def _finish(self, sent: Sent) -> None:
        partition, batch = sent.partition, sent.batch
        target = self.plan.targets[partition.target]
        appended = self._answer(sent)
        if appended.log_append_time_ms != FRESH or appended.base_offset <= partition.last_offset:
            raise DuplicateWriteError(
                f"partition {target.partition} of {target.topic} holds a batch of the same sequences already, "
                f"at offset {appended.base_offset}: another attempt wrote it, with what contents can't be known"
            )
        if not partition.batches:
            partition.first_offset = appended.base_offset
        partition.last_offset = appended.base_offset + batch.records - 1
        partition.records += batch.records
        partition.batches += 1
        partition.bytes += len(batch.data)

    def _answer(self, sent: Sent) -> wire.Appended:
        for number in range(SENDINGS):
            try:
                return self.connection.wait(sent.pending)
            except ResponseError as error:
                if error.code not in SENT_AGAIN or number == SENDINGS - 1:
                    raise
            time.sleep(PAUSE_S * 2**number)
            self._find_leaders()
            sent.pending = self._begin(sent.partition, sent.batch.data)
        raise AssertionError("the last sending returns or raises")

    def _find_leaders(self) -> None:
        found = self.connection.leaders(list(self.plan.max_message_bytes))
        self.leaders = [found[topic][number] for topic, number in self.plan.targets]


def report(plan: Plan, here: Here, blobs: Iterable[Blob]) -> Iterator[pa.RecordBatch]:
    """Write the blobs, then say what was written; or that this failed, and why. Rows of `reports.SCHEMA`.

    Whatever it is that fails: where it left the task, Spark would try that again, and the second attempt's reason
    hide the first one's.
    """
    try:
        partitions = _write(plan, here, blobs)
    except SinkError as error:
        yield _rows([_no_partition(here, type(error).__name__, str(error))])
        return
    except ImportError as error:
        yield _rows([_no_partition(here, WorkerError.__name__, _missing(error))])
        return
    except Exception as error:
        yield _rows([_no_partition(here, TryFailedError.__name__, _unexpected(error))])
        return
    rows: list[tuple[object, ...]] = [
        (
            *plan.targets[one.target], here.attempt, one.records, one.batches, one.bytes,
            one.first_offset, one.last_offset, None, None,
        )
        for one in partitions
    ]  # fmt: skip
    yield _rows(rows or [_no_partition(here, None, None)])


def _write(plan: Plan, here: Here, blobs: Iterable[Blob]) -> list[Partition]:
    if here.is_again:
        raise DuplicateWriteError(
            "Spark tried a task again, whose first attempt may have written already; why that one failed stands in "
            "Spark's log"
        )
    iterator = iter(blobs)
    first = next(iterator, None)
    if first is None:
        return []  # nor is a connection made
    connection = Wire(plan.bootstrap, plan.client, plan.request_timeout_ms)
    try:
        connection.connect()
        writer = Writer(plan, connection, leaders=list(plan.leaders))
        writer.send(first)
        for blob in iterator:
            writer.send(blob)
        writer.finish()
        return list(writer.partitions.values())
    except NoAnswerError as error:
        raise TryFailedError(f"a task lost its broker: {error}") from error
    except ResponseError as error:
        raise as_sink_error(error) from error
    finally:
        connection.close()


def _no_partition(here: Here, error: str | None, reason: str | None) -> tuple[object, ...]:
    return None, None, here.attempt, 0, 0, 0, -1, -1, error, reason


def _missing(error: ImportError) -> str:
    return (
        f"a worker's Python, {sys.executable} of version {platform.python_version()}, lacks what the sink needs: "
        f"{type(error).__name__}: {error}. Install it there (pip install 'barnabas[spark]'), or have PYSPARK_PYTHON "
        "name another Python"
    )


def _unexpected(error: Exception) -> str:
    *_, frame = traceback.extract_tb(error.__traceback__)
    return f"a task failed at {frame.filename}:{frame.lineno}: {type(error).__name__}: {error}"


def _rows(rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(list(column), one.type) for column, one in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

"""What the driver tells the tasks: the transaction's identity, where records may go, and which task writes where. And
what the tasks report back, which the driver checks and the user can read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from barnabas.spark.arrow_batches import Batch
from barnabas.spark.catalyst import REPEATED
from barnabas.spark.errors import (
    BY_NAME,
    SinkError,
    StageRepeatedError,
    TaskRepeatedError,
    TryFailedError,
    WrittenTwiceError,
)

SEQUENCES = 1 << 31
"""A producer has this many sequence numbers in a partition before they start at 0 again."""


class Target(NamedTuple):
    """A partition to write to."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a task needs to know.

    targets: every partition of every topic, topic by topic; a target's number is its index here.
    leaders: the node id of each target's leader.
    max_message_bytes: by topic.
    owners: how many tasks write. Target number t belongs to task `owner_of(t)`.
    """

    bootstrap: str
    client: dict[str, Any]
    request_timeout_ms: int
    transactional_id: str
    producer_id: int
    epoch: int
    batch_id: int
    topic: str | None
    compression: str
    max_batch_bytes: int
    targets: tuple[Target, ...]
    leaders: tuple[int, ...]
    max_message_bytes: dict[str, int]
    owners: int

    def owner_of(self, target: int) -> int:
        # By the partition's number and not the target's, so that every task owns some of every topic. The batch id
        # shifts it, so that all tasks get their turn if there are fewer partitions than owners.
        return (self.targets[target].partition + self.batch_id) % self.owners

    @property
    def batch_bytes(self) -> int:
        """The largest record batch before compression, unless it holds a single record."""
        return min([self.max_batch_bytes, *self.max_message_bytes.values()])

    def targets_of(self, topic: str) -> range:
        return self.ranges()[topic]

    def ranges(self) -> dict[str, range]:
        """Return each topic's targets, found in one pass: there may be thousands of topics."""
        found: dict[str, range] = {}
        for number, (topic, _) in enumerate(self.targets):
            found[topic] = range(found[topic].start if topic in found else number, number + 1)
        return found


class Blob(NamedTuple):
    """A record batch and its target."""

    target: int
    batch: Batch


# --- Spark's schemas as text, and Arrow's types for them ----------------------------------------------------

TYPES = {"string": pa.string(), "int": pa.int32(), "long": pa.int64(), "boolean": pa.bool_()}


def arrow_schema(columns: str) -> pa.Schema:
    """Return the Arrow schema of `name type, name type, …`, as `mapInArrow` takes it, with the types of `TYPES`."""
    pairs = (column.split() for column in columns.split(", "))
    return pa.schema([(name, TYPES[kind]) for name, kind in pairs])


# --- Reports ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """The records that one task wrote to one partition.

    attempt: Spark's id of the task's attempt, unique in the application.
    first_offset, last_offset: of its records. Other producers' records and markers may lie between them.
    bytes: the size of the record batches as sent.
    """

    topic: str
    partition: int
    attempt: int
    records: int
    batches: int
    bytes: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The outcome of a micro-batch.

    skipped: nothing was written, because the marker said that it was committed before.
    tries: how many it took. A try with an unanswered commit counts, even if the marker shows that it succeeded.
    bytes: the size of the record batches as sent.

    The times of the last try, one after the other:

    prepare_ms: getting a new epoch, reading the marker, looking up the topics, adding their partitions.
    write_ms: the Spark job. For a skipped batch, computing it.
    check_ms: writing the batch's marker and the source's offsets, and checking that all reported records are there.
    commit_ms: ending the transaction (EndTxn), up to the coordinator's answer.
    """

    batch_id: int
    skipped: bool
    tries: int
    records: int
    bytes: int
    prepare_ms: float
    write_ms: float
    check_ms: float
    commit_ms: float
    partitions: tuple[PartitionReport, ...]


SCHEMA = (
    "topic string, partition int, attempt long, records long, batches long, bytes long, "
    "first_offset long, last_offset long, error string, reason string, stage int"
)
"""A task's rows: one for each partition that it wrote to, or one with the name of an error and its reason, or one
without a topic if it wrote nothing. `stage` is the id of the task's stage; only errors have it."""


def check(rows: Iterable[Sequence[object]]) -> tuple[PartitionReport, ...]:
    """Return the tasks' reports, if each partition was written by one attempt only.

    rows: the columns of `SCHEMA`, and after them the attempt at the stage (`catalyst.attempt`).

    Raises StageRepeatedError if the stage had several attempts, WrittenTwiceError if two tasks wrote a partition,
    and otherwise a task's error, preferring one that another try wouldn't repair.
    """
    found: dict[tuple[str, int], PartitionReport] = {}
    errors: list[SinkError] = []
    stage_attempts = set()
    for *fields, error, reason, stage, stage_attempt in rows:
        stage_attempts.add(stage_attempt)
        if error is not None:
            told = BY_NAME.get(str(error), TryFailedError)(str(reason))
            if isinstance(told, TaskRepeatedError):
                told.stage = int(str(stage))
            errors.append(told)
            continue
        if fields[0] is None:
            continue
        report = PartitionReport(*fields)  # type: ignore[arg-type]
        other = found.setdefault((report.topic, report.partition), report)
        if other is not report:
            errors.append(
                WrittenTwiceError(
                    f"partition {report.partition} of {report.topic} was written by the task attempts "
                    f"{other.attempt} and {report.attempt}"
                )
            )
    if stage_attempts - {0}:
        errors.insert(0, StageRepeatedError(REPEATED))
    if errors:
        raise min(errors, key=lambda one: one.retried)
    return tuple(found[key] for key in sorted(found))

"""What the driver tells the tasks (the transaction's identity, where records may go, which task writes where), and what
they report of what was written, which the driver checks and the user can look at.
"""

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
"""Of a producer in a partition, before they begin at 0 again."""


class Target(NamedTuple):
    """A partition to write to."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a task needs to know.

    targets: every partition of every topic, topic by topic; a target's number is its place here.
    leaders: of each target, the node id.
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
        # By the partition's number and not the target's, so that every task owns some of every topic; shifted from
        # batch to batch, so that none is left out where there are fewer tasks than owners.
        return (self.targets[target].partition + self.batch_id) % self.owners

    @property
    def batch_bytes(self) -> int:
        """The largest record batch, before compression, unless it holds a single record."""
        return min([self.max_batch_bytes, *self.max_message_bytes.values()])

    def targets_of(self, topic: str) -> range:
        return self.ranges()[topic]

    def ranges(self) -> dict[str, range]:
        """Each topic's targets, by one look at all of them: there may be thousands of topics."""
        found: dict[str, range] = {}
        for number, (topic, _) in enumerate(self.targets):
            found[topic] = range(found[topic].start if topic in found else number, number + 1)
        return found


class Blob(NamedTuple):
    """A record batch and where it goes."""

    target: int
    batch: Batch


# --- Spark's schemas as text, and what Arrow calls them -----------------------------------------------------

TYPES = {"string": pa.string(), "int": pa.int32(), "long": pa.int64(), "boolean": pa.bool_()}


def arrow_schema(columns: str) -> pa.Schema:
    """Of `name type, name type, …`, as `mapInArrow` takes it, with the types of `TYPES`."""
    pairs = (column.split() for column in columns.split(", "))
    return pa.schema([(name, TYPES[kind]) for name, kind in pairs])


# --- Reports ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """What one task wrote to one partition.

    attempt: Spark's id of the task's attempt, unique in the application.
    first_offset, last_offset: of its records; those of other producers, and markers, may lie between.
    bytes: of the record batches as they were sent.
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
    """What a micro-batch came to.

    skipped: the marker said that it had been committed before; nothing was written.
    tries: how many it took. A try whose commit was not answered counts, though the marker shows that it held.
    bytes: of the record batches as they were sent.

    Of the last try, one behind the other:

    prepare_ms: a new epoch, the marker, the topics, adding their partitions.
    write_ms: the Spark job. Of a batch that was skipped, computing it.
    check_ms: the batch's marker, the source's offsets, and whether all is there that was reported.
    commit_ms: the transaction's end alone (EndTxn), up to the coordinator's answer.
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
"""A task's rows: one for each partition that it wrote to; or one with the name of an error and its reason; or one
without a topic, where it wrote nothing. stage: the id of the task's stage, with an error alone."""


def check(rows: Iterable[Sequence[object]]) -> tuple[PartitionReport, ...]:
    """The tasks' reports, if each partition was written by one attempt only.

    rows: of `SCHEMA`, and behind its columns the attempt at the stage (`catalyst.attempt`).

    Raises StageRepeatedError where there was more than one, WrittenTwiceError where a partition was written by two
    tasks, and the error that a task reported; the first that no other try would mend ahead of others.
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

"""What was written: tasks report it, the driver checks it, and the user can look at it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from barnabas.spark import stages
from barnabas.spark.errors import (
    BY_NAME,
    SinkError,
    StageRepeatedError,
    TaskRepeatedError,
    TryFailedError,
    WrittenTwiceError,
)


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

    rows: of `SCHEMA`, and behind its columns the attempt at the stage (`stages.attempt`).

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
        errors.insert(0, StageRepeatedError(stages.REPEATED))
    if errors:
        raise min(errors, key=lambda one: one.retried)
    return tuple(found[key] for key in sorted(found))

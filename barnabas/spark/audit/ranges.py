"""How the work is split, and what one task does with its share."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from barnabas.spark.audit.scan import RangeScan
from barnabas.spark.codes import ResponseError
from barnabas.spark.wire import EARLIEST, READ_UNCOMMITTED
from barnabas.spark.wire_log import OFFSET_OUT_OF_RANGE, Bounds, RawLog, count_from

SMALLEST_RANGE, LARGEST_RANGE = 50_000, 5_000_000
RANGES_PER_SLOT = 4


class Range(NamedTuple):
    """Offsets of a partition, the last one excluded, and what a task must know of its log."""

    topic: str
    partition: int
    start: int
    end: int
    log_start: int
    compacts: bool


SCHEMA = (
    "topic string, partition int, range_start long, producer_id long, commits_first boolean, open_offset long, "
    "open_records long, records long, commits long, aborts long, markers long, aborted_records long, compacted long, "
    "unexplained long, first_unexplained long, expired long"
)
"""A range's rows: its sums; each producer's first marker in it (`commits_first`); and what each producer left open at
its end (`open_offset`, `open_records`). What a row doesn't say is null."""

COLUMNS = [column.split()[0] for column in SCHEMA.split(", ")]


def split(bounds: Iterable[Bounds], slots: int, largest: int | None = None) -> list[Range]:
    """Ranges of about the same size: several for each slot, but none so small that asking costs more than reading.

    largest: how many offsets a range may have, if not as many as that makes.
    """
    bounds = list(bounds)
    if largest is None:
        offsets = sum(one.end_offset - one.start_offset for one in bounds)
        largest = max(SMALLEST_RANGE, min(LARGEST_RANGE, offsets // (slots * RANGES_PER_SLOT)))
    return [
        Range(
            one.topic,
            one.partition,
            start,
            min(start + largest, one.end_offset),
            one.start_offset,
            one.compacts,
        )
        for one in bounds
        for start in range(one.start_offset, one.end_offset, largest)
    ]


def scan(
    ranges: Sequence[Range], bootstrap: str, client: Mapping[str, Any], timeout_ms: int
) -> Iterator[dict[str, Any]]:
    """Read the ranges and yield their rows. Raises TimeoutError where a log ends ahead of a range's end."""
    log = RawLog(bootstrap, client, timeout_ms)
    try:
        for one in ranges:
            yield from _rows(one, _scan(log, one, timeout_ms))
    finally:
        log.close()


def _scan(log: RawLog, one: Range, timeout_ms: int) -> RangeScan:
    scan = RangeScan(one.start, one.end, one.log_start, one.compacts, count_from)
    deadline_s = time.monotonic() + timeout_ms / 1000
    while not scan.is_done:
        before = scan.position
        try:
            scan.take(log.fetch(one.topic, one.partition, scan.position))
        except ResponseError as error:
            if error.code != OFFSET_OUT_OF_RANGE:
                raise
            leader = log.leaders([one.topic])[one.topic][one.partition]
            scan.expire(log.offset(one.topic, one.partition, leader, EARLIEST, READ_UNCOMMITTED))
        if scan.position > before:
            deadline_s = time.monotonic() + timeout_ms / 1000
        elif time.monotonic() > deadline_s:
            raise TimeoutError(
                f"{one.topic}-{one.partition} gave nothing at offset {scan.position} in {timeout_ms} ms, "
                f"though its end was at {one.end} or later"
            )
    return scan


def _rows(one: Range, scan: RangeScan) -> Iterator[dict[str, Any]]:
    where = {"topic": one.topic, "partition": one.partition, "range_start": one.start}
    yield {**where, **asdict(scan.sums)}
    for producer_id, commits in scan.first_ends.items():
        yield {**where, "producer_id": producer_id, "commits_first": commits}
    for producer_id, pending in scan.pending.items():
        yield {
            **where,
            "producer_id": producer_id,
            "open_offset": pending.first_offset,
            "open_records": pending.records,
        }

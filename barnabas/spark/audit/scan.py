"""Counts the batches of a range of offsets, and splits the work into ranges.

Tasks read a partition in ranges and know nothing of each other. A batch counts in the range that holds its first
offset. The range in which the partition's log starts also counts the batch that the start lies in. A transaction's end
may lie in another range than its records. Then they stay `pending` for the caller that sees all ranges.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from barnabas.spark.batch_format import (
    CONTROL,
    HEADER,
    LENGTH_END,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL,
    Header,
    read_header,
    read_varint,
)
from barnabas.spark.errors import ResponseError
from barnabas.spark.wire import EARLIEST, READ_UNCOMMITTED
from barnabas.spark.wire_log import OFFSET_OUT_OF_RANGE, Bounds, RawLog, count_from

# Kafka's ControlRecordType
ABORT, COMMIT = 0, 1


class UnreadableBatchError(Exception):
    """A batch that this audit can't count: its format is older than Kafka 0.11, or it is a marker without a type."""


@dataclass(slots=True)
class Pending:
    """Records of a transaction whose end wasn't seen."""

    first_offset: int
    records: int


@dataclass(slots=True)
class Sums:
    """The offsets of a range, counted by kind. `records` are outside of transactions or committed.

    compacted: there is no record, because compaction removed it. unexplained: no record, and no reason.
    expired: removed by retention while the range was read. commits, aborts: markers by type; `markers` includes others,
    too.
    """

    records: int = 0
    commits: int = 0
    aborts: int = 0
    markers: int = 0
    aborted_records: int = 0
    compacted: int = 0
    unexplained: int = 0
    first_unexplained: int | None = None
    expired: int = 0


@dataclass(slots=True)
class RangeScan:
    """Scans the offsets from `start` up to `end` of a log that starts at `log_start`.

    count_from: counts the records of a batch (its bytes) with this offset or a later one.
    position: the offset to fetch from next.
    first_ends: producer id → True if its first marker in this range commits.
    """

    start: int
    end: int
    log_start: int
    compacts: bool
    count_from: Callable[[bytes, int], int]
    sums: Sums = field(default_factory=Sums)
    pending: dict[int, Pending] = field(default_factory=dict)
    first_ends: dict[int, bool] = field(default_factory=dict)
    position: int = field(init=False)

    def __post_init__(self) -> None:
        self.position = self.start

    @property
    def is_done(self) -> bool:
        return self.position >= self.end

    def take(self, data: bytes) -> None:
        """Count the batches of one fetch from `position`. Raises UnreadableBatchError."""
        for header, at in _walk(data):
            last_offset = header.base_offset + header.last_offset_delta
            if last_offset < self.position:
                continue
            if header.base_offset >= self.end:
                self._gap(self.end)
            else:
                self._gap(header.base_offset)
                self._batch(header, last_offset, data, at)
            if self.is_done:
                return

    def expire(self, log_start: int) -> None:
        """Note that retention removed everything before this offset before it was read."""
        until = min(max(log_start, self.position), self.end)
        self.sums.expired += until - self.position
        self.position = until

    def _gap(self, until: int) -> None:
        if until <= self.position:
            return
        if self.compacts:
            self.sums.compacted += until - self.position
        else:
            if self.sums.first_unexplained is None:
                self.sums.first_unexplained = self.position
            self.sums.unexplained += until - self.position
        self.position = until

    def _batch(self, header: Header, last_offset: int, data: bytes, at: int) -> None:
        self.position = last_offset + 1
        first, count = header.base_offset, header.record_count
        if first < self.start:
            if self.start > self.log_start:
                return  # it counts in the range before this one
            first = self.log_start
            # Only compaction makes a batch hold fewer records than offsets.
            if count == header.last_offset_delta + 1:
                count = last_offset - first + 1
            else:
                count = self.count_from(data[at : at + LENGTH_END + header.length], first)
        self.sums.compacted += last_offset - first + 1 - count
        if count == 0:
            return  # compaction keeps it for the producer's sequence
        if header.attributes & CONTROL:
            self.sums.markers += count
            self._marker(header.producer_id, _marker_type(data, at + HEADER.size))
        elif header.attributes & TRANSACTIONAL:
            self.pending.setdefault(header.producer_id, Pending(first, 0)).records += count
        else:
            self.sums.records += count

    def _marker(self, producer_id: int, kind: int) -> None:
        if kind not in (ABORT, COMMIT):
            return
        commits = kind == COMMIT
        if commits:
            self.sums.commits += 1
        else:
            self.sums.aborts += 1
        self.first_ends.setdefault(producer_id, commits)
        ended = self.pending.pop(producer_id, None)
        if ended is None:
            return
        if commits:
            self.sums.records += ended.records
        else:
            self.sums.aborted_records += ended.records


def _walk(data: bytes) -> Iterator[tuple[Header, int]]:
    at = 0
    # A message in an old format may be shorter than a batch's header. Its magic byte is at the same place.
    while len(data) - at > MAGIC_AT:
        if data[at + MAGIC_AT] != MAGIC:
            raise UnreadableBatchError(
                f"the batch at offset {int.from_bytes(data[at : at + 8], 'big')} has the old format "
                f"{data[at + MAGIC_AT]}"
            )
        if len(data) - at < HEADER.size:
            return
        header = read_header(data, at)
        if len(data) - at < LENGTH_END + header.length:
            return
        yield header, at
        at += LENGTH_END + header.length


def _marker_type(data: bytes, at: int) -> int:
    """Return the type in a control record: its key is a version and the type, two bytes each."""
    _, at = read_varint(data, at)  # the record's length
    at += 1  # attributes
    for _ in range(2):  # deltas of timestamp and offset
        _, at = read_varint(data, at)
    size, at = read_varint(data, at)
    if size < 4:
        raise UnreadableBatchError("a control record without a type")
    return int.from_bytes(data[at + 2 : at + 4], "big")


# --- How the work is split, and what one task does with its share -------------------------------------------

SMALLEST_RANGE, LARGEST_RANGE = 50_000, 5_000_000
RANGES_PER_SLOT = 4


class Range(NamedTuple):
    """A range of a partition's offsets, without its end, and what a task must know about the log."""

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
its end (`open_offset`, `open_records`). Fields that a row doesn't use are null."""

COLUMNS = [column.split()[0] for column in SCHEMA.split(", ")]


def split(bounds: Iterable[Bounds], slots: int, largest: int | None = None) -> list[Range]:
    """Return ranges of about equal size: several per slot, but none so small that asking costs more than reading.

    largest: the largest number of offsets in a range, in place of the size that follows from this.
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
    """Read the ranges and yield their rows. Raises TimeoutError if a log ends before a range's end."""
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
                f"{one.topic}-{one.partition} returned nothing at offset {scan.position} for {timeout_ms} ms, "
                f"although its end was at {one.end} or later"
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

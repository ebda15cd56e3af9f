"""The audit's counting, against a model of a log that is walked record by record."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import pytest

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.audit.scan import Pending, RangeScan, Sums, UnreadableBatchError
from barnabas.spark.batch_format import CONTROL, HEADER, LENGTH_END, TRANSACTIONAL

COMMIT_MARKER, ABORT_MARKER = 1, 0


@dataclass
class Batch:
    """Offsets from base to last, of which `kept` have records. marker: its type, None for data."""

    base: int
    last: int
    kept: list[int]
    producer_id: int = -1
    transactional: bool = False
    marker: int | None = None

    def encode(self, magic: int = 2) -> bytes:
        attributes = (TRANSACTIONAL if self.transactional else 0) | (0 if self.marker is None else CONTROL)
        body = b""
        if self.marker is not None and self.kept:
            key = bytes([0, 0, 0, self.marker])
            record = bytes([0, 0, 0, len(key) << 1]) + key + bytes([1, 0])
            body = bytes([len(record) << 1]) + record
        elif self.kept:
            body = bytes(7)
        length = HEADER.size - LENGTH_END + len(body)
        delta = self.last - self.base
        header = (self.base, length, 0, magic, 0, attributes, delta, 0, 0, self.producer_id, 0, 0)
        return HEADER.pack(*header, len(self.kept)) + body


@dataclass
class Log:
    batches: list[Batch] = field(default_factory=list)
    gaps: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else 0

    def fetch(self, offset: int, batches: int) -> bytes:
        found = [batch for batch in self.batches if batch.last >= offset][:batches]
        # What is behind them is cut, as a broker cuts it.
        return (
            b"".join(batch.encode() for batch in found)
            + b"".join(
                batch.encode()[:30] for batch in self.batches if found and batch.base > found[-1].last
            )[:30]
        )

    def count_from(self, batch: bytes, offset: int) -> int:
        base = HEADER.unpack_from(batch)[0]
        (found,) = (one for one in self.batches if one.base == base)
        return sum(one >= offset for one in found.kept)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    log = Log()
    for _ in range(draw(st.integers(1, 25))):
        base = log.end
        if draw(st.integers(0, 9)) == 0:
            hole = draw(st.integers(1, 4))
            log.gaps += range(base, base + hole)
            base += hole
        producer_id = draw(st.integers(0, 3))
        kind = draw(st.sampled_from(["plain", "data", "data", "marker"]))
        if kind == "marker":
            marker = draw(st.sampled_from([COMMIT_MARKER, ABORT_MARKER]))
            log.batches.append(Batch(base, base, [base], producer_id, True, marker))
            continue
        offsets = list(range(base, base + draw(st.integers(1, 5))))
        kept = offsets if draw(st.booleans()) else draw(st.lists(st.sampled_from(offsets), unique=True))
        if kind == "data" and not kept:
            kept = offsets
        log.batches.append(Batch(base, offsets[-1], sorted(kept), producer_id, kind == "data"))
    return log


def expected(log: Log, log_start: int) -> tuple[Sums, dict[int, Pending]]:
    """What one walk over all of the log finds."""
    sums = Sums()
    pending: dict[int, Pending] = {}
    for batch in log.batches:
        kept = [offset for offset in batch.kept if offset >= log_start]
        sums.compacted += sum(offset >= log_start for offset in range(batch.base, batch.last + 1)) - len(kept)
        if not kept:
            continue
        if batch.marker is not None:
            sums.markers += 1
            ended = pending.pop(batch.producer_id, Pending(0, 0)).records
            if batch.marker == COMMIT_MARKER:
                sums.commits += 1
                sums.records += ended
            else:
                sums.aborts += 1
                sums.aborted_records += ended
        elif batch.transactional:
            first = max(batch.base, log_start)
            pending.setdefault(batch.producer_id, Pending(first, 0)).records += len(kept)
        else:
            sums.records += len(kept)
    unexplained = [offset for offset in log.gaps if offset >= log_start]
    sums.unexplained = len(unexplained)
    sums.first_unexplained = unexplained[0] if unexplained else None
    return sums, pending


def scanned(log: Log, start: int, end: int, log_start: int, batches: int) -> RangeScan:
    scan = RangeScan(start, end, log_start, compacts=False, count_from=log.count_from)
    while not scan.is_done:
        before = scan.position
        scan.take(log.fetch(scan.position, batches))
        assert scan.position > before
    return scan


def put_together(scans: list[RangeScan]) -> tuple[Sums, dict[int, Pending]]:
    """As `audit.report` does it with Spark."""
    sums = Sums()
    pending: dict[int, Pending] = {}
    for scan in scans:
        for name in Sums.__slots__:
            if name != "first_unexplained":
                setattr(sums, name, getattr(sums, name) + getattr(scan.sums, name))
        if sums.first_unexplained is None:
            sums.first_unexplained = scan.sums.first_unexplained
        for producer_id, commits in scan.first_ends.items():
            ended = pending.pop(producer_id, Pending(0, 0)).records
            if commits:
                sums.records += ended
            else:
                sums.aborted_records += ended
        for producer_id, left in scan.pending.items():
            found = pending.setdefault(producer_id, Pending(left.first_offset, 0))
            found.records += left.records
    return sums, pending


@given(log=logs(), data=st.data())
def test_however_a_log_is_split_its_ranges_add_up_to_one_walk_over_all_of_it(
    log: Log, data: st.DataObject
) -> None:
    log_start = data.draw(st.integers(0, log.end - 1))
    size = data.draw(st.integers(1, log.end - log_start))
    batches = data.draw(st.integers(1, 4))
    scans = [
        scanned(log, start, min(start + size, log.end), log_start, batches)
        for start in range(log_start, log.end, size)
    ]

    sums, pending = put_together(scans)

    assert (sums, pending) == expected(log, log_start)
    left = sum(one.records for one in pending.values())
    assert log.end - log_start == (
        sums.records + sums.markers + sums.aborted_records + left + sums.compacted + sums.unexplained
    )


def test_a_hole_in_a_compacted_topic_is_compactions() -> None:
    log = Log([Batch(0, 0, [0]), Batch(5, 5, [5])])
    scan = RangeScan(0, 6, 0, compacts=True, count_from=log.count_from)

    scan.take(log.fetch(0, 2))

    assert scan.sums == Sums(records=2, compacted=4)


def test_records_that_retention_took_during_the_read_are_reported() -> None:
    log = Log([Batch(0, 3, [0, 1, 2, 3]), Batch(4, 5, [4, 5])])
    scan = RangeScan(0, 6, 0, compacts=False, count_from=log.count_from)

    scan.expire(4)
    scan.take(log.fetch(4, 1))

    assert scan.sums == Sums(records=2, expired=4)


def test_an_empty_batch_that_compaction_left_opens_no_transaction() -> None:
    log = Log([Batch(0, 3, [], producer_id=7, transactional=True)])

    scan = scanned(log, 0, 4, 0, 1)

    assert not scan.pending
    assert scan.sums == Sums(compacted=4)


def test_a_batch_of_the_old_formats_is_refused() -> None:
    scan = RangeScan(0, 1, 0, compacts=False, count_from=lambda batch, offset: 0)

    with pytest.raises(UnreadableBatchError, match="offset 0 has the old format 1"):
        scan.take(Batch(0, 0, [0]).encode(magic=1))


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_of_the_old_formats_is_refused_though_it_is_shorter_than_a_batches_header(
    magic: int,
) -> None:
    body = struct.pack(">Ibb", 0, magic, 0) + bytes(8 * magic) + struct.pack(">ii", -1, -1)
    scan = RangeScan(7, 8, 0, compacts=False, count_from=lambda batch, offset: 0)

    with pytest.raises(UnreadableBatchError, match=f"offset 7 has the old format {magic}"):
        scan.take(struct.pack(">qi", 7, len(body)) + body)


@pytest.mark.parametrize("size", [0, 11, 16, 17, 60, HEADER.size])
def test_a_batch_that_is_cut_is_left_for_the_next_fetch(size: int) -> None:
    scan = RangeScan(0, 1, 0, compacts=False, count_from=lambda batch, offset: 0)

    scan.take(Batch(0, 0, [0]).encode()[:size])

    assert scan.position == 0

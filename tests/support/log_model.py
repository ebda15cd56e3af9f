"""What a partition's log should hold, kept as plain lists: the reference for the real log."""

from __future__ import annotations

from dataclasses import dataclass, field

from protocol.records.batch import (
    ABORT,
    BatchHeader,
    read_control_type,
    read_header,
    read_records,
    walk_batches,
)
from storage.log.partition_log import PartitionLog
from tests.support.partition_logs import batches


@dataclass(frozen=True)
class Stored:
    """A batch: the values of its records, which no other batch has, or a marker."""

    base_offset: int
    timestamps: tuple[int, ...]
    values: tuple[bytes, ...] = ()
    producer_id: int = -1
    sequence: int = -1
    transactional: bool = False
    commits: bool | None = None
    """For a marker, True if it commits."""

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.timestamps)


@dataclass
class LogModel:
    batches: list[Stored] = field(default_factory=list)
    log_start_offset: int = 0
    end_offset: int = 0

    def add(self, stored: Stored) -> None:
        assert stored.base_offset == self.end_offset
        self.batches.append(stored)
        self.end_offset = stored.next_offset

    def truncate_to(self, offset: int) -> None:
        if offset < self.end_offset:
            self.batches = [stored for stored in self.batches if stored.next_offset <= offset]
            self.end_offset = offset
            self.log_start_offset = min(self.log_start_offset, offset)

    def readable(self) -> list[Stored]:
        """Return the batches with something at or above the log start."""
        return [stored for stored in self.batches if stored.next_offset > self.log_start_offset]

    def next_sequence(self, producer_id: int) -> int:
        sequences = [
            stored.sequence + len(stored.values)
            for stored in self.batches
            if stored.producer_id == producer_id and stored.commits is None
        ]
        return sequences[-1] if sequences else 0

    def last_batch(self, producer_id: int) -> Stored | None:
        """Return the producer's last data batch."""
        data = [b for b in self.batches if b.producer_id == producer_id and b.commits is None]
        return data[-1] if data else None

    def open_transactions(self) -> dict[int, int]:
        """Return the first offset of each open transaction by producer id."""
        opened: dict[int, int] = {}
        for stored in self.batches:
            if stored.commits is not None:
                opened.pop(stored.producer_id, None)
            elif stored.transactional:
                opened.setdefault(stored.producer_id, stored.base_offset)
        return opened

    @property
    def last_stable_offset(self) -> int:
        first = min(self.open_transactions().values(), default=self.end_offset)
        return max(first, self.log_start_offset)

    def committed_values(self) -> list[bytes]:
        """Return what a read_committed consumer gets from the log start on."""
        outcomes: dict[int, bool] = {}
        decided = []
        for stored in reversed(self.batches):
            if stored.commits is not None:
                outcomes[stored.producer_id] = stored.commits
            elif stored.next_offset <= self.log_start_offset or stored.next_offset > self.last_stable_offset:
                continue
            elif not stored.transactional or outcomes[stored.producer_id]:
                decided.append(stored)
        return [value for stored in reversed(decided) for value in stored.values]

    def offset_for_timestamp(self, timestamp_ms: int, segment_bases: list[int]) -> tuple[int, int] | None:
        """Return (timestamp, offset) by Kafka's rule: only the first segment that reaches the time is searched."""
        ends = [*segment_bases[1:], self.end_offset + 1]
        for base, end in zip(segment_bases, ends, strict=True):
            inside = [stored for stored in self.batches if base <= stored.base_offset < end]
            records = [
                (timestamp, stored.base_offset + at)
                for stored in inside
                for at, timestamp in enumerate(stored.timestamps)
            ]
            if any(timestamp >= timestamp_ms for timestamp, _offset in records):
                return next(
                    ((t, o) for t, o in records if t >= timestamp_ms and o >= self.log_start_offset), None
                )
        return None


def stored_batches(log: PartitionLog) -> list[Stored]:
    """Return the log's batches in the model's form."""
    return [_stored(read_header(data), data) for data in batches(log)]


def _stored(header: BatchHeader, data: bytes) -> Stored:
    records = read_records(data)
    return Stored(
        header.base_offset,
        tuple(record.timestamp for record in records),
        () if header.is_control else tuple(record.value or b"" for record in records),
        header.producer_id,
        header.base_sequence,
        header.is_transactional,
        read_control_type(records[0].key) != ABORT if header.is_control else None,
    )


def committed_values(log: PartitionLog, max_bytes: int = 3000) -> list[bytes]:
    """Return what a read_committed consumer of the log gets. It drops aborted records as a client does."""
    given = []
    offset = log.log_start_offset
    bound = log.last_stable_offset
    while offset < bound:
        result = log.read(offset, max_bytes, upper_bound=bound, min_one_batch=True)
        if not result.records:
            break
        aborted = sorted(log.aborted_transactions(offset, result), key=lambda txn: txn.first_offset)
        aborting: set[int] = set()
        for position, header in walk_batches(result.records):
            while aborted and aborted[0].first_offset <= header.last_offset:
                aborting.add(aborted.pop(0).producer_id)
            records = read_records(result.records[position : position + header.size_bytes])
            if header.is_control:
                if read_control_type(records[0].key) == ABORT:
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                given += [record.value or b"" for record in records]
            offset = header.last_offset + 1
    return given

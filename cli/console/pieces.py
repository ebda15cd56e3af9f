"""A partition's log, piece by piece: its batches as they are on disk, and what became of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from cli.client.offsets import Partition
from cli.errors import CommandError
from protocol.records.batch import (
    BatchHeader,
    CorruptRecordError,
    Record,
    read_marker,
    read_records,
    walk_batches,
)
from protocol.records.compression import CodecUnavailableError, DecompressionError
from protocol.wire.primitives import Bytes

PIECE_BYTES: Final = 512 * 1024
MAX_WALK_BYTES: Final = 4 * 1024 * 1024
MAX_WALK_S: Final = 2.0
PLAIN, COMMIT, ABORT = "plain", "commit", "abort"
COMMITTED, ABORTED, OPEN, UNDECIDED = "committed", "aborted", "open", "undecided"


class Piece(NamedTuple):
    """Batches from an offset on, with the partition's offsets as they were then. `aborted` has the producer ids and
    first offsets of transactions that were aborted, as far as the piece goes."""

    start: int
    stable: int
    end: int
    data: Bytes
    aborted: frozenset[tuple[int, int]]


ReadPiece = Callable[[Partition, int, int], Piece]
"""Of a partition, from an offset on, up to so many bytes or one batch. Raises CommandError. An offset outside of the
log has an empty piece."""


UNREADABLE: Final = (CorruptRecordError, CodecUnavailableError, DecompressionError)
"""What the reading of a batch's records raises for what is wrong with its bytes."""


@dataclass
class WalkedBatch:
    """A batch with its bytes. `kind` is `plain` of what readers may get, or says which marker it is. `fate` is what
    became of its transaction; "" where it is of none."""

    header: BatchHeader
    data: Bytes
    kind: str
    fate: str

    @property
    def document(self) -> dict[str, Any]:
        """For the page."""
        header = self.header
        return {
            "base": header.base_offset,
            "last": header.last_offset,
            "count": header.records_count,
            "time": header.max_timestamp,
            "bytes": header.size_bytes,
            "producer": header.producer_id,
            "epoch": header.producer_epoch,
            "kind": self.kind,
            "fate": self.fate,
        }


@dataclass
class WalkedLog:
    """Batches one behind the other, and the partition's offsets. `next` is where the walk would go on."""

    start: int = 0
    stable: int = 0
    end: int = 0
    next: int = 0
    batches: list[WalkedBatch] = field(default_factory=list)
    aborted: set[tuple[int, int]] = field(default_factory=set)

    def judge(self) -> None:
        """Says what became of each transaction: by its marker, or, where that lies behind what was walked, by the list
        of those that were aborted. Below the last stable offset everything else is committed."""
        ahead: dict[int, str] = {}
        for batch in reversed(self.batches):
            producer = batch.header.producer_id
            if batch.kind == COMMIT:
                ahead[producer] = COMMITTED
            elif batch.kind == ABORT:
                ahead[producer] = ABORTED
            elif batch.header.is_transactional and not batch.header.is_control:
                batch.fate = ahead.get(producer, "")
        behind: dict[int, int] = {}
        for batch in self.batches:
            producer = batch.header.producer_id
            if batch.kind in (COMMIT, ABORT):
                behind[producer] = batch.header.base_offset
            elif batch.header.is_transactional and not batch.header.is_control and not batch.fate:
                batch.fate = self._fate_without_marker(batch.header, behind.get(producer, -1))

    def _fate_without_marker(self, header: BatchHeader, last_marker: int) -> str:
        """Of one of those that are aborted it is what began behind its producer's last marker, and not behind it."""
        if header.base_offset >= self.stable:
            return OPEN if self.next >= self.end else UNDECIDED
        is_aborted = any(
            producer == header.producer_id and last_marker < first <= header.base_offset
            for producer, first in self.aborted
        )
        return ABORTED if is_aborted else COMMITTED


def walk(
    read: ReadPiece,
    partition: Partition,
    offset: int,
    max_batches: int,
    max_bytes: int = MAX_WALK_BYTES,
    max_s: float = MAX_WALK_S,
    max_records: int | None = None,
) -> WalkedLog:
    """From the batch that holds the offset on, to the end, so many batches, bytes or records, or as long as patience
    lasts. Raises CommandError."""
    seen = WalkedLog(next=offset)
    deadline_s = time.monotonic() + max_s
    read_bytes = records = 0
    while True:
        piece = read(partition, seen.next, min(PIECE_BYTES, max_bytes))
        seen.start, seen.stable, seen.end = piece.start, piece.stable, piece.end
        seen.aborted |= piece.aborted
        seen.next = max(seen.next, piece.start)
        before = seen.next
        try:
            for at, header in walk_batches(piece.data):
                if header.last_offset < seen.next:
                    continue
                seen.batches.append(_walked(header, piece.data[at : at + header.size_bytes]))
                seen.next = header.last_offset + 1
                # the first batch may begin before the offset
                records += min(header.records_count, header.last_offset - max(offset, header.base_offset) + 1)
                if len(seen.batches) >= max_batches or (max_records is not None and records >= max_records):
                    break
        except CorruptRecordError as error:
            raise CommandError(f"{partition[0]}-{partition[1]}: {error}") from None
        read_bytes += len(piece.data)
        is_enough = len(seen.batches) >= max_batches or read_bytes >= max_bytes
        is_enough = is_enough or (max_records is not None and records >= max_records)
        if seen.next == before or seen.next >= seen.end or is_enough or time.monotonic() > deadline_s:
            break
    seen.judge()
    return seen


def _walked(header: BatchHeader, data: Bytes) -> WalkedBatch:
    marker = read_marker(data) if header.is_control else None
    kind = PLAIN if marker is None else COMMIT if marker.commit else ABORT
    if header.is_control and marker is None:
        kind = "control"
    return WalkedBatch(header, data, kind, "")


def readable(batches: Iterable[WalkedBatch]) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """With their records, and without those that can't be read."""
    for batch in batches:
        try:
            records = read_records(batch.data)
        except UNREADABLE:
            continue
        yield batch.header, records

"""A partition's log, piece by piece: its batches as they are on disk, and what became of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from cli.client.offsets import Partition
from cli.errors import CommandError
from protocol.records.batch import UNREADABLE, BatchHeader, CorruptRecordError, Record, read_records
from protocol.records.fates import WalkedBatch, WalkedLog
from protocol.wire.primitives import Bytes

PIECE_BYTES: Final = 512 * 1024
MAX_WALK_BYTES: Final = 4 * 1024 * 1024
MAX_WALK_S: Final = 2.0


class Piece(NamedTuple):
    """Batches from an offset on, with the partition's offsets at that time. `aborted` has the producer ids and first
    offsets of aborted transactions in the piece."""

    start: int
    stable: int
    end: int
    data: Bytes
    aborted: frozenset[tuple[int, int]]


ReadPiece = Callable[[Partition, int, int], Piece]
"""Reads a partition from an offset on, up to a number of bytes or one batch. Raises CommandError. An offset outside of
the log gives an empty piece."""


def document_of_batch(batch: WalkedBatch) -> dict[str, Any]:
    """Return the batch for the page."""
    header = batch.header
    return {
        "base": header.base_offset,
        "last": header.last_offset,
        "count": header.records_count,
        "time": header.max_timestamp,
        "bytes": header.size_bytes,
        "producer": header.producer_id,
        "epoch": header.producer_epoch,
        "kind": batch.kind,
        "fate": batch.fate,
    }


def walk(
    read: ReadPiece,
    partition: Partition,
    offset: int,
    max_batches: int,
    max_bytes: int = MAX_WALK_BYTES,
    max_s: float = MAX_WALK_S,
    max_records: int | None = None,
) -> WalkedLog:
    """Walk from the batch with the offset to the end, until one of the limits of batches, bytes, records or time.
    Raises CommandError."""
    seen = WalkedLog(next=offset)
    deadline_s = time.monotonic() + max_s
    read_bytes = records = 0
    while True:
        piece = read(partition, seen.next, min(PIECE_BYTES, max_bytes))
        seen.start, seen.stable, seen.end = piece.start, piece.stable, piece.end
        seen.next = max(seen.next, piece.start)
        before = seen.next
        try:
            for header in seen.take(piece.data, piece.aborted):
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


def readable(batches: Iterable[WalkedBatch]) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Yield the batches with their records, without those that can't be read."""
    for batch in batches:
        try:
            records = read_records(batch.data)
        except UNREADABLE:
            continue
        yield batch.header, records

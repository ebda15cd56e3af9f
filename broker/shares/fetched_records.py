"""The record batches of what was read, some of it in memory and the rest in its file, without reading the records.

Which of them are acquired is known only then: what is sent is cut out afterwards (Kafka:
`ShareFetchUtils.maybeSliceFetchRecords`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from coordinator.share_partition.ports import AcquiredRecords, FetchedBatch
from protocol.records.batch import (
    BATCH_LENGTH_POS,
    BATCH_OVERHEAD,
    LOG_OVERHEAD,
    BatchHeader,
    CorruptRecordError,
    read_header,
)
from protocol.records.records import ABORT, read_control_type, read_records
from storage.files import FileRange

Chunks = list[bytes | FileRange]

WINDOW_BYTES = 8 * 1024
"""Of a file: what is read at once to walk over batches."""


class FetchedRecords:
    """What was read of one partition."""

    __slots__ = ("_size", "_window", "_window_at", "chunks")

    def __init__(self, records: bytes | Sequence[bytes | FileRange] | None) -> None:
        self.chunks: Chunks = [records] if isinstance(records, bytes) else [*(records or ())]
        self._size = sum(map(len, self.chunks))
        self._window = b""
        self._window_at = 0

    def batches(
        self, most_reached: Callable[[int], int], *, with_markers: bool
    ) -> tuple[list[FetchedBatch], list[int]]:
        """The batches, and where each begins; what isn't whole at the end doesn't count.

        `most_reached(base offset of the first)`: one batch that begins behind that offset is the last one.
        `with_markers`: whether those that end transactions are told apart. Raises CorruptRecordError, OSError.
        """
        found: list[FetchedBatch] = []
        positions: list[int] = []
        bound: int | None = None
        for position, header in self._walk():
            is_marker = with_markers and header.is_control and self._is_abort(position, header)
            found.append(
                FetchedBatch(
                    header.base_offset,
                    header.last_offset,
                    header.producer_id,
                    header.is_transactional,
                    is_marker,
                )
            )
            positions.append(position)
            if bound is None:
                bound = most_reached(header.base_offset)
            if header.base_offset > bound:
                break
        return found, positions

    def cut(
        self, batches: Sequence[FetchedBatch], positions: Sequence[int], acquired: Sequence[AcquiredRecords]
    ) -> Chunks:
        """What is sent with what was acquired: all batches from the one with its first offset on, to its last. Where
        there is one batch only all that was read is, as in Kafka."""
        if len(batches) < 2:
            return self.chunks
        first_offset, last_offset = acquired[0].first_offset, acquired[-1].last_offset
        first = 0
        while first + 1 < len(batches) and batches[first + 1].base_offset <= first_offset:
            first += 1
        behind = first + 1
        while behind < len(batches) and batches[behind].base_offset <= last_offset:
            behind += 1
        end = positions[behind] if behind < len(batches) else self._end_of(positions[-1])
        return self._between(positions[first], end)

    def _end_of(self, position: int) -> int:
        return position + read_header(self._bytes(position, BATCH_OVERHEAD)).size_bytes

    def _between(self, start: int, end: int) -> Chunks:
        left: Chunks = []
        at = 0
        for chunk in self.chunks:
            size = len(chunk)
            first, behind = max(start - at, 0), min(end - at, size)
            if first < behind:
                if behind - first == size:
                    left.append(chunk)
                elif isinstance(chunk, FileRange):
                    left.append(chunk.part(first, behind - first))
                else:
                    left.append(chunk[first:behind])
            at += size
        return left

    def _walk(self) -> Iterator[tuple[int, BatchHeader]]:
        position = 0
        while self._size - position >= BATCH_OVERHEAD:
            head = self._bytes(position, BATCH_OVERHEAD)
            size = int.from_bytes(head[BATCH_LENGTH_POS : BATCH_LENGTH_POS + 4], "big") + LOG_OVERHEAD
            if size < BATCH_OVERHEAD:
                raise CorruptRecordError(f"a batch of {size} bytes at position {position}")
            if self._size - position < size:
                return
            yield position, read_header(head)
            position += size

    def _is_abort(self, position: int, header: BatchHeader) -> bool:
        records = read_records(self._bytes(position, header.size_bytes))
        return bool(records) and read_control_type(records[0].key) == ABORT

    def _bytes(self, position: int, size: int) -> bytes:
        """Some of what was read, which is there."""
        at = position - self._window_at
        if at < 0 or at + size > len(self._window):
            self._window = self._read(position, max(size, WINDOW_BYTES))
            self._window_at = position
            at = 0
        return self._window[at : at + size]

    def _read(self, position: int, size: int) -> bytes:
        found = b""
        at = 0
        for chunk in self.chunks:
            first = position + len(found) - at
            if 0 <= first < len(chunk):
                wanted = min(size - len(found), len(chunk) - first)
                found += (
                    chunk.read(first, wanted)
                    if isinstance(chunk, FileRange)
                    else chunk[first : first + wanted]
                )
                if len(found) == size:
                    break
            at += len(chunk)
        return found

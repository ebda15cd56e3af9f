"""A partition's log in a folder, from its files: batches from an offset on, and aborted transactions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from cli.console.pieces import Piece
from cli.inspecting.place import FILES, names_in, segment_at
from protocol.records.batch import BatchHeader
from storage.file_examination import OFFSET_ENTRY, READ_FAILURES, TXN_ENTRY, SeenLog, used
from storage.files import INDEX_SUFFIX, LOG_SUFFIX, TXN_INDEX_SUFFIX, offset_of
from storage.log.segment_recovery import valid_batches


class FolderLog:
    """`seen` is the result of an examination. Nothing after its end is read."""

    def __init__(self, directory: str, seen: SeenLog) -> None:
        self.directory = directory
        self.seen = seen
        bases = (offset_of(name) for name in names_in(directory) if name.endswith(LOG_SUFFIX))
        self._bases = sorted(base for base in bases if base is not None)
        self._aborted: list[tuple[int, int, int]] | None = None

    @property
    def stable(self) -> int:
        """The start of the first open transaction, or the end."""
        return min(self.seen.open_transactions.values(), default=self.seen.end_offset)

    def piece(self, offset: int, max_bytes: int) -> Piece:
        """See `ReadPiece`. Skips what can't be read, as an examination does."""
        data = bytearray()
        last = offset
        for header, batch in self.batches(offset):
            if data and len(data) + len(batch) > max_bytes:
                break
            data += batch
            last = header.last_offset
        aborted = frozenset(
            (producer, first)
            for producer, first, marker in self.aborted
            if marker >= offset and first <= last
        )
        return Piece(self.seen.start_offset, self.stable, self.seen.end_offset, bytes(data), aborted)

    def batches(self, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield the batches from the one with the offset on."""
        index = max(0, bisect_right(self._bases, offset) - 1)
        for base in self._bases[index:]:
            try:
                segment = segment_at(self.directory, base, f"{self.directory}/{base:020d}{LOG_SUFFIX}")
            except OSError:
                continue
            try:
                for _at, header, batch in valid_batches(segment, self._position(base, offset), base):
                    if header.base_offset >= self.seen.end_offset:
                        return
                    if header.last_offset >= offset:
                        yield header, batch
            except READ_FAILURES:
                continue
            finally:
                segment.close()

    @property
    def aborted(self) -> list[tuple[int, int, int]]:
        """Producer id, first offset and marker offset of each aborted transaction."""
        if self._aborted is None:
            self._aborted = [
                (producer, first, marker)
                for base in self._bases
                for _version, producer, first, marker, _stable in TXN_ENTRY.iter_unpack(
                    _whole(self._read(base, TXN_INDEX_SUFFIX), TXN_ENTRY.size)
                )
            ]
        return self._aborted

    def _position(self, base: int, offset: int) -> int:
        """Return the position of a batch at or before the offset, according to the index."""
        found = 0
        for relative, position in OFFSET_ENTRY.iter_unpack(
            used(self._read(base, INDEX_SUFFIX), OFFSET_ENTRY)
        ):
            if base + relative > offset:
                break
            found = position
        return found

    def _read(self, base: int, suffix: str) -> bytes:
        try:
            return bytes(FILES.read_whole(f"{self.directory}/{base:020d}{suffix}"))
        except OSError:
            return b""


def _whole(data: bytes, size: int) -> bytes:
    return data[: len(data) // size * size]

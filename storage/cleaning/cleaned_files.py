"""The segment that a group of segments is cleaned into, under names that end with `.cleaned`."""

import contextlib
from collections.abc import Iterator

from protocol.records.batch import NO_TIMESTAMP
from protocol.wire.primitives import Bytes
from storage.cleaning.plan import CleanedSegment, CleaningSettings, UncleanableError
from storage.files import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    File,
    Files,
    file_path,
)
from storage.indexes import (
    MAX_RELATIVE_OFFSET,
    OFFSET_ENTRY,
    TIME_ENTRY,
    AbortedTxn,
    TransactionIndex,
)

_BUFFER_BYTES = 1 << 18
_MAX_BYTES = 2**31 - 1
"""The limit for a `.log`: the offset index has four bytes for a position."""


class CleanedFiles:
    """Writes the same files as if the batches were appended to a new segment one by one."""

    def __init__(self, files: Files, directory: str, base_offset: int, settings: CleaningSettings) -> None:
        """Create the `.log`, and remove the leftovers of an earlier pass."""
        self._files = files
        self._directory = directory
        self._base_offset = base_offset
        self._settings = settings
        remove_cleaned(files, directory, base_offset)
        self._log = File(self._path(LOG_SUFFIX))
        files.create(self._log)
        self._buffer = bytearray()
        self._written = 0
        self._offset_entries = bytearray()
        self._time_entries = bytearray()
        self._bytes_since_entry = 0
        self._max_timestamp_ms = self._indexed_timestamp_ms = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        self.aborted: list[AbortedTxn] = []
        """The entries of its `.txnindex`."""

    def append(self, batch: Bytes, last_offset: int, max_timestamp_ms: int) -> None:
        """Add a batch.

        Raises `UncleanableError` if the batch lies too far from the base, or if the segment gets too large,
        which may happen with recompressed batches; `OSError`.
        """
        if last_offset - self._base_offset > MAX_RELATIVE_OFFSET:
            raise UncleanableError(
                f"{self._path(LOG_SUFFIX)}: the offset {last_offset} is too far from the segment's base"
            )
        size = self._written + len(self._buffer) + len(batch)
        if size > _MAX_BYTES:
            raise UncleanableError(
                f"{self._path(LOG_SUFFIX)}: with the batch at offset {last_offset} it would have {size} bytes, "
                f"of {_MAX_BYTES} that a segment may have"
            )
        if max_timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms = max_timestamp_ms
            self._max_timestamp_offset = last_offset
        if self._bytes_since_entry > self._settings.index_interval_bytes:
            self._index(last_offset)
            self._bytes_since_entry = 0
        self._bytes_since_entry += len(batch)
        self._buffer += batch
        if len(self._buffer) >= _BUFFER_BYTES:
            self._write()

    def _index(self, last_offset: int) -> None:
        max_bytes = self._settings.segment_index_bytes
        # A full index covers less of its segment. Kafka fails if index.interval.bytes was reduced that much.
        if len(self._offset_entries) + OFFSET_ENTRY.size <= max_bytes:
            position = self._written + len(self._buffer)
            self._offset_entries += OFFSET_ENTRY.pack(last_offset - self._base_offset, position)
        if len(self._time_entries) + 2 * TIME_ENTRY.size <= max_bytes:
            self._index_time()

    def _index_time(self) -> None:
        if self._max_timestamp_ms > self._indexed_timestamp_ms:
            self._time_entries += TIME_ENTRY.pack(
                self._max_timestamp_ms, self._max_timestamp_offset - self._base_offset
            )
            self._indexed_timestamp_ms = self._max_timestamp_ms

    def _write(self) -> None:
        if self._buffer:
            self._files.append(self._log, self._buffer, self._written)
            self._written += len(self._buffer)
            self._buffer.clear()

    def finish(self, replaced: tuple[int, ...], *, keep_txn_index: bool) -> Iterator[CleanedSegment | None]:
        """Write the rest, and sync file by file. Yields None after each, and the segment after the last.

        The files get the age of the last one that they replace, since retention uses it if no timestamp is
        left. `keep_txn_index`: keep even an empty one.
        """
        files = self._files
        last_log = file_path(self._directory, replaced[-1], LOG_SUFFIX)
        modified_ms = files.modified_ms(last_log)
        self._write()
        files.close(self._log)
        yield None
        self._index_time()
        for suffix, entries in (
            (INDEX_SUFFIX, self._offset_entries),
            (TIME_INDEX_SUFFIX, self._time_entries),
        ):
            files.write_whole(self._path(suffix), entries)
        suffixes = [LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX]
        if self.aborted or keep_txn_index:
            index = TransactionIndex(files, self._path(TXN_INDEX_SUFFIX))
            index.make_anew(self.aborted)
            index.close()
            suffixes.append(TXN_INDEX_SUFFIX)
        for suffix in suffixes:
            files.sync(self._path(suffix))
            yield None
        for suffix in suffixes[:3]:
            files.set_modified_ms(self._path(suffix), modified_ms)
        yield CleanedSegment(
            self._base_offset, replaced, self._written, self._max_timestamp_ms, self._max_timestamp_offset
        )

    def discard(self) -> None:
        """Remove its files, as far as possible."""
        self._files.close(self._log)
        with contextlib.suppress(OSError):
            remove_cleaned(self._files, self._directory, self._base_offset)

    def _path(self, suffix: str) -> str:
        return cleaned_path(self._directory, self._base_offset, suffix)


def cleaned_path(directory: str, base_offset: int, suffix: str) -> str:
    """The path of a file of the segment until somebody takes it over."""
    return file_path(directory, base_offset, suffix) + CLEANED_SUFFIX


def remove_cleaned(files: Files, directory: str, base_offset: int) -> None:
    """Remove the files of a segment that nobody took over."""
    for suffix in SEGMENT_SUFFIXES:
        files.remove(cleaned_path(directory, base_offset, suffix))


def discard_cleaned(files: Files, directory: str) -> None:
    """Remove all files that an abandoned pass has left in the directory. The next pass or the next start
    removes the rest."""
    with contextlib.suppress(OSError):
        for name in files.list_directory(directory):
            if name.endswith(CLEANED_SUFFIX):
                files.remove(f"{directory}/{name}")

"""The cleaner's input: the batches of a segment, each whole and proven by its CRC, and which of them were aborted.

Kafka copies a batch with a wrong CRC, and gives it a right one if it rewrites it. Here an invalid batch is
never cleaned.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from struct import Struct

from protocol.records import compression
from protocol.records.batch import (
    ABORT,
    ATTRIBUTES_POS,
    BATCH_LENGTH_POS,
    BATCH_OVERHEAD,
    COMMIT,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptRecordError,
    crc32c,
    read_control_type,
    read_header,
    read_records,
)
from protocol.records.checks import sizes_of_bodies
from storage.cleaning.plan import SegmentSizes, UncleanableError
from storage.files import LOG_SUFFIX, TXN_INDEX_SUFFIX, File, Files, file_path, offset_of
from storage.indexes import AbortedTxn, TransactionIndex

_WINDOW_BYTES = 1 << 18
_INT32 = Struct(">i")


class SegmentBatches:
    """Walks once through a segment that nobody writes to."""

    def __init__(self, files: Files, directory: str, segment: SegmentSizes, most_body_bytes: int) -> None:
        """`most_body_bytes`: the limit for a record of a compressed batch. Larger ones can't be cleaned."""
        self._files = files
        self._file = File(file_path(directory, segment.base_offset, LOG_SUFFIX))
        self._segment = segment
        self._most_body_bytes = most_body_bytes
        self._position = 0

    def __iter__(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Raises `UncleanableError`, `OSError`."""
        size = self._segment.log_bytes
        next_offset = self._segment.base_offset
        window = memoryview(b"")
        window_at = position = 0
        while position < size:
            at = position - window_at
            if at + BATCH_OVERHEAD > len(window):
                window, window_at, at = self._read(_WINDOW_BYTES, position), position, 0
                if len(window) < BATCH_OVERHEAD:
                    raise self.error("the segment ends within a batch")
            batch_size = _INT32.unpack_from(window, at + BATCH_LENGTH_POS)[0] + LOG_OVERHEAD
            if batch_size < BATCH_OVERHEAD or position + batch_size > size:
                raise self.error(f"a batch of {batch_size} bytes, {size - position} are left")
            if at + batch_size > len(window):
                window, window_at, at = self._read(max(batch_size, _WINDOW_BYTES), position), position, 0
                if len(window) < batch_size:
                    raise self.error("the file is shorter than it was")
            header = read_header(window, at)
            batch = window[at : at + batch_size]
            if header.magic != MAGIC:
                raise self.error(f"a batch of format {header.magic}")
            if crc32c(batch[ATTRIBUTES_POS:]) != header.crc:
                raise self.error(f"the batch at offset {header.base_offset} doesn't match its CRC")
            base_offset, delta = header.base_offset, header.last_offset_delta
            if base_offset < next_offset or delta < 0:
                raise self.error(f"a batch at offset {base_offset}, after offset {next_offset - 1}")
            next_offset = base_offset + delta + 1
            yield header, batch
            position = self._position = position + batch_size

    def _read(self, size: int, position: int) -> memoryview:
        data = self._files.read(self._file, min(size, self._segment.log_bytes - position), position)
        return memoryview(data)

    def payload(self, header: BatchHeader, batch: memoryview) -> bytes:
        """The batch's records, uncompressed. Raises `UncleanableError`."""
        if not header.attributes & compression.CODEC_MASK:
            return bytes(batch[BATCH_OVERHEAD:])
        try:
            payload = bytes(compression.decompress(header.compression, batch[BATCH_OVERHEAD:]))
        except (compression.DecompressionError, compression.CodecUnavailableError) as failure:
            raise self.error(f"the records at offset {header.base_offset}: {failure}") from failure
        if len(payload) > self._most_body_bytes:
            self._check_bodies(header, payload)
        return payload

    def _check_bodies(self, header: BatchHeader, payload: bytes) -> None:
        try:
            for size in sizes_of_bodies(payload, header.records_count):
                if size > self._most_body_bytes:
                    raise self.error(
                        f"the records at offset {header.base_offset}: one of {size} bytes is larger than "
                        f"max.decompressed.message.bytes={self._most_body_bytes}"
                    )
        except (CorruptRecordError, IndexError) as failure:
            raise self.error(f"the records at offset {header.base_offset}: {failure}") from failure

    def control_type(self, header: BatchHeader, batch: memoryview) -> int | None:
        """The type of the record in a control batch; None if an earlier pass has removed the record.

        Raises `UncleanableError`.
        """
        if not header.records_count:
            return None
        try:
            return read_control_type(read_records(batch)[0].key)
        except (
            CorruptRecordError,
            compression.DecompressionError,
            compression.CodecUnavailableError,
        ) as failure:
            raise self.error(f"the control record at offset {header.base_offset}: {failure}") from failure

    def error(self, reason: str | CorruptRecordError) -> UncleanableError:
        """An error with the current position."""
        return UncleanableError(f"{self._file.path} at position {self._position}: {reason}")

    def close(self) -> None:
        """Close the file."""
        self._files.close(self._file)


# ---- transactions: which data was aborted, which markers have no data left. Source: CleanedTransactionMetadata,
# UnifiedLog.collectAbortedTransactions


class AbortedTransactions:
    """The `.txnindex` files of a log. Each is read when needed, and dropped once it is passed."""

    def __init__(self, files: Files, directory: str, log_start_offset: int) -> None:
        self._log_start_offset = log_start_offset
        names = [name for name in files.list_directory(directory) if name.endswith(TXN_INDEX_SUFFIX)]
        bases = [offset_of(name) for name in names]
        self._base_offsets = sorted(offset for offset in bases if offset is not None)
        self._indexes = [
            TransactionIndex(files, file_path(directory, offset, TXN_INDEX_SUFFIX))
            for offset in self._base_offsets
        ]

    def collect(self, base_offset: int, upper_bound: int) -> list[AbortedTxn]:
        """The transactions that began before `upper_bound` and ended at or after the log start, from the index of
        the segment at `base_offset` and the later ones. Segments must be asked for in ascending order."""
        passed = bisect_left(self._base_offsets, base_offset)
        del self._base_offsets[:passed], self._indexes[:passed]
        collected: list[AbortedTxn] = []
        for index in self._indexes:
            found, complete = index.collect(self._log_start_offset, upper_bound)
            collected += found
            if complete:
                break
        return collected


class _OpenAborted:
    __slots__ = ("data_seen", "txn")

    def __init__(self, txn: AbortedTxn) -> None:
        self.txn = txn
        self.data_seen = False


class CleanedTransactions:
    """Sees every batch in the order of the log, and tells whether it can go as far as transactions are concerned."""

    __slots__ = ("_aborted", "_committed", "_upcoming")

    def __init__(self) -> None:
        self._upcoming: list[tuple[int, AbortedTxn]] = []
        """A heap by first offset."""
        self._aborted: dict[int, _OpenAborted] = {}
        """By producer: its current aborted transaction, up to the marker."""
        self._committed: set[int] = set()
        """Producers with data that wasn't aborted, up to their next marker."""

    def add(self, aborted: Iterable[AbortedTxn]) -> None:
        """Add upcoming transactions. The same one may be added again."""
        for txn in aborted:
            heappush(self._upcoming, (txn.first_offset, txn))

    def on_data(self, header: BatchHeader) -> bool:
        """True if the batch's transaction was aborted, so that it can go."""
        if self._upcoming:
            self._begin_up_to(header.last_offset)
        if not header.attributes & TRANSACTIONAL_BIT:
            return False
        aborted = self._aborted.get(header.producer_id)
        if aborted is not None:
            aborted.data_seen = True
            return True
        self._committed.add(header.producer_id)
        return False

    def on_control(self, header: BatchHeader, control_type: int | None) -> tuple[bool, AbortedTxn | None]:
        """Whether the marker can go because no data of its transaction is left, and its entry for the new
        index, if any.

        `control_type` is None for a batch whose record went in an earlier pass. If the data of an aborted
        transaction goes in this very pass, its marker and its entry stay: a reader that has read that data
        still has to find the marker.
        """
        if self._upcoming:
            self._begin_up_to(header.last_offset)
        if control_type is None:
            return True, None
        if control_type == ABORT:
            aborted = self._aborted.pop(header.producer_id, None)
            if aborted is not None and aborted.data_seen:
                return False, aborted.txn
            return True, None
        if control_type == COMMIT:
            if header.producer_id in self._committed:
                self._committed.remove(header.producer_id)
                return False, None
            return True, None
        return False, None

    def _begin_up_to(self, offset: int) -> None:
        upcoming = self._upcoming
        while upcoming and upcoming[0][0] <= offset:
            txn = heappop(upcoming)[1]
            if txn.producer_id not in self._aborted:
                self._aborted[txn.producer_id] = _OpenAborted(txn)

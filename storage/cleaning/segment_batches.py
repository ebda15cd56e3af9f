"""The batches of a segment as the cleaner reads them: each one whole and proven by its CRC.

Kafka copies a batch whose CRC is wrong, and gives it a right one where it writes it anew. Here nothing is cleaned that
doesn't hold.
"""

from collections.abc import Iterator
from struct import Struct

from protocol.records import compression
from protocol.records.batch import (
    ATTRIBUTES_POS,
    BATCH_LENGTH_POS,
    BATCH_OVERHEAD,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    CorruptRecordError,
    crc32c,
    read_header,
)
from protocol.records.records import read_control_type, read_records
from storage.cleaning.plan import SegmentSizes, UncleanableError
from storage.file_names import LOG_SUFFIX, file_path
from storage.files import File, Files

_WINDOW_BYTES = 1 << 18
_INT32 = Struct(">i")


class SegmentBatches:
    """Goes once through a segment that nobody writes to."""

    def __init__(self, files: Files, directory: str, segment: SegmentSizes) -> None:
        self._files = files
        self._file = File(file_path(directory, segment.base_offset, LOG_SUFFIX))
        self._segment = segment
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
                raise self.error(f"a batch at offset {base_offset}, behind offset {next_offset - 1}")
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
            return bytes(compression.decompress(header.compression, batch[BATCH_OVERHEAD:]))
        except (compression.DecompressionError, compression.CodecUnavailableError) as failure:
            raise self.error(f"the records at offset {header.base_offset}: {failure}") from failure

    def control_type(self, header: BatchHeader, batch: memoryview) -> int | None:
        """Of the record in a control batch; None where an earlier pass has taken it. Raises `UncleanableError`."""
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
        """With the place to which the reading has come."""
        return UncleanableError(f"{self._file.path} at position {self._position}: {reason}")

    def close(self) -> None:
        """Lets the descriptor go."""
        self._files.close(self._file)

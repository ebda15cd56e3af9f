"""The header of a record batch, format 2: 61 bytes, read and patched in place.

    base_offset int64 | batch_length int32 | partition_leader_epoch int32 | magic int8 | crc uint32 |
    attributes int16 | last_offset_delta int32 | base_timestamp int64 | max_timestamp int64 |
    producer_id int64 | producer_epoch int16 | base_sequence int32 | records_count int32 | records

`batch_length` counts what follows it. The CRC-32C runs from the attributes to the end of the batch: base offset
and leader epoch lie outside it, so that the broker assigns both without looking at the records.
Source: org.apache.kafka.common.record.DefaultRecordBatch, KIP-98.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from struct import Struct
from typing import NamedTuple

from protocol.wire.primitives import Bytes

WritableBytes = bytearray | memoryview

HEADER = Struct(">qiibIhiqqqhii")
BATCH_OVERHEAD = HEADER.size
LOG_OVERHEAD = 12
"""Bytes of base offset and batch length, which `batch_length` doesn't count."""
HEADER_SIZE_UP_TO_MAGIC = 17
MIN_BATCH_LENGTH = 14
"""The least `batch_length` in any format: the overhead of a record of format 0."""

BASE_OFFSET_POS = 0
BATCH_LENGTH_POS = 8
PARTITION_LEADER_EPOCH_POS = 12
MAGIC_POS = 16
CRC_POS = 17
ATTRIBUTES_POS = 21
ATTRIBUTES_LOW_BYTE_POS = 22
LAST_OFFSET_DELTA_POS = 23
MAX_TIMESTAMP_POS = 35
PRODUCER_ID_POS = 43
PRODUCER_EPOCH_POS = 51

MAGIC = 2

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
KNOWN_ATTRIBUTES_MASK = 0x7F

CREATE_TIME = 0
LOG_APPEND_TIME = 1

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
MAX_PRODUCER_EPOCH = 2**15 - 1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_PARTITION_LEADER_EPOCH = -1
MAX_SEQUENCE = 2**31 - 1

_new_tuple = tuple.__new__  # `_make` counts the fields first, which the struct has done

_INT16 = Struct(">h")
INT32 = Struct(">i")
UINT32 = Struct(">I")
INT64 = Struct(">q")


class CorruptRecordError(Exception):
    """Bytes that are no record batch, or one that contradicts itself."""


class UnsupportedMagicError(CorruptRecordError):
    """A whole entry of format 0 or 1, which Kafka stopped writing in 4.0 (KIP-724)."""


class BatchHeader(NamedTuple):
    """The fields in the order in which they stand; none of them checked."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The last record's sequence, which begins again at 0 after 2³¹ − 1; −1 where there is none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def compression(self) -> int:
        """A codec's id of `protocol.records.compression`; 5 to 7 are nobody's."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        """`CREATE_TIME`, or `LOG_APPEND_TIME`: then `max_timestamp` is the time of every record."""
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether `base_timestamp` is the time from which compaction drops tombstones and markers (KIP-534)."""
        return bool(self.attributes & DELETE_HORIZON_BIT)


def read_header(data: Bytes, pos: int = 0) -> BatchHeader:
    """The header of the batch at `pos`. Raises `struct.error` where 61 bytes aren't left."""
    return _new_tuple(BatchHeader, HEADER.unpack_from(data, pos))


def walk_batches(data: Bytes, pos: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Each whole batch with its position; an incomplete tail ends the walk silently, as in a Fetch answer.

    Checked is what the walk itself needs, neither the CRC nor the records.
    Raises `CorruptRecordError` at a batch shorter than its own header or of an unknown format,
    `UnsupportedMagicError` at one of format 0 or 1.
    """
    end = len(data)
    while end - pos >= LOG_OVERHEAD:
        length: int = INT32.unpack_from(data, pos + BATCH_LENGTH_POS)[0]
        if length < MIN_BATCH_LENGTH:
            raise CorruptRecordError(f"batch length {length} at position {pos}")
        if end - pos < HEADER_SIZE_UP_TO_MAGIC:
            return
        magic = data[pos + MAGIC_POS]
        if magic > MAGIC:
            raise CorruptRecordError(f"magic {magic} at position {pos}")
        size = length + LOG_OVERHEAD
        if end - pos < size:
            return
        if magic < MAGIC:
            raise UnsupportedMagicError(f"magic {magic} at position {pos}")
        if size < BATCH_OVERHEAD:
            raise CorruptRecordError(f"batch of {size} bytes at position {pos}")
        yield pos, read_header(data, pos)
        pos += size


def compute_crc(data: Bytes, pos: int, size: int) -> int:
    """The CRC-32C that the batch of `size` bytes at `pos` ought to carry."""
    return crc32c(memoryview(data)[pos + ATTRIBUTES_POS : pos + size])


def crc_is_valid(data: Bytes, pos: int, size: int) -> bool:
    stored: int = UINT32.unpack_from(data, pos + CRC_POS)[0]
    # as `compute_crc`, which a batch that is produced is spared the call of
    return crc32c(memoryview(data)[pos + ATTRIBUTES_POS : pos + size]) == stored


def patch_offset_and_epoch(data: WritableBytes, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Writes the two fields outside the CRC, in place."""
    INT64.pack_into(data, pos, base_offset)
    INT32.pack_into(data, pos + PARTITION_LEADER_EPOCH_POS, leader_epoch)


def patch_max_timestamp(
    data: WritableBytes, pos: int, size: int, timestamp_type: int, max_timestamp_ms: int
) -> bool:
    """Sets the timestamps' type and the largest of them in place, and the CRC where either was different.

    Returns whether anything was written. Writing clears the attribute bits 7 to 15, as Kafka does; a batch that
    was right already keeps them.
    """
    attributes: int = _INT16.unpack_from(data, pos + ATTRIBUTES_POS)[0]
    old_max_timestamp_ms: int = INT64.unpack_from(data, pos + MAX_TIMESTAMP_POS)[0]
    old_type = LOG_APPEND_TIME if attributes & TIMESTAMP_TYPE_BIT else CREATE_TIME
    if old_type == timestamp_type and old_max_timestamp_ms == max_timestamp_ms:
        return False
    attributes &= KNOWN_ATTRIBUTES_MASK & ~TIMESTAMP_TYPE_BIT
    if timestamp_type == LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_BIT
    _INT16.pack_into(data, pos + ATTRIBUTES_POS, attributes)
    INT64.pack_into(data, pos + MAX_TIMESTAMP_POS, max_timestamp_ms)
    patch_crc(data, pos, size)
    return True


def patch_crc(data: WritableBytes, pos: int, size: int) -> None:
    """Writes the CRC that the batch of `size` bytes at `pos` ought to carry."""
    UINT32.pack_into(data, pos + CRC_POS, compute_crc(data, pos, size))


def increment_sequence(sequence: int, increment: int) -> int:
    """`increment` steps on; after 2³¹ − 1 comes 0."""
    if sequence > MAX_SEQUENCE - increment:
        return increment - (MAX_SEQUENCE - sequence) - 1
    return sequence + increment


def decrement_sequence(sequence: int, decrement: int) -> int:
    """`decrement` steps back; before 0 comes 2³¹ − 1."""
    if sequence < decrement:
        return MAX_SEQUENCE - (decrement - sequence) + 1
    return sequence - decrement


# ---- its checksum, which is that of producer snapshots, too

Crc32c = Callable[[bytes | bytearray | memoryview], int]


def _load() -> Crc32c:
    """The package `crc32c` asks for its own version when it is imported, and with that costs a tenth of a broker's
    start. Only its extension module is loaded here; where that isn't where it is expected, the package itself."""
    package = find_spec("crc32c")
    if package is not None and package.submodule_search_locations is not None:
        spec = PathFinder.find_spec("_crc32c", list(package.submodule_search_locations))
        if spec is not None and spec.loader is not None:
            extension = module_from_spec(spec)
            spec.loader.exec_module(extension)
            found: Crc32c = extension.crc32c
            return found
    from crc32c import crc32c

    return crc32c


crc32c = _load()

"""A partition's producers on disk: `<20-digit offset>.snapshot` holds the state up to that offset.

Big-endian: `int16 version = 1 | uint32 crc | int32 count | count x 46 bytes`. The CRC-32C covers everything
after it. An entry: `int64 producer id, int16 epoch, int32 last sequence, int64 last offset, int32 offset
delta, int64 timestamp, int32 coordinator epoch, int64 first offset of the open transaction (-1 none)`. Only a
producer's last batch is kept. Source: org.apache.kafka.storage ProducerStateManager.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from heapq import nlargest
from operator import attrgetter
from struct import Struct

from protocol.records.batch import NO_SEQUENCE, crc32c, decrement_sequence
from storage import producer_state
from storage.files import DELETED_SUFFIX, SNAPSHOT_SUFFIX, Files, file_path
from storage.producer_state import NO_OFFSET, CachedBatch, Producer, ProducerStates, is_expired

logger = logging.getLogger(__name__)

PRODUCER_SNAPSHOT_VERSION = 1
_HEAD = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_LAST_OFFSET, _TIMESTAMP, _TXN = 3, 5, 7  # indexes in an entry
_CRC = Struct(">I")
_CRC_POS = 2
_ENTRIES_POS = 6
_by_id = attrgetter("producer_id")


class CorruptSnapshotError(Exception):
    """A snapshot that can't be trusted."""


def encode(producers: Iterable[Producer]) -> bytes:
    """Encode the whole file. Entries are sorted by producer id, so that equal states give equal bytes."""
    pack = _ENTRY.pack
    entries = []
    for producer in sorted(producers, key=_by_id):
        sequence, last_offset, delta = NO_SEQUENCE, NO_OFFSET, 0
        if producer.batches:
            last = producer.batches[-1]
            sequence, last_offset = last.last_sequence, last.last_offset
            delta = last_offset - last.first_offset
        entries.append(
            pack(
                producer.producer_id,
                producer.epoch,
                sequence,
                last_offset,
                delta,
                producer.last_timestamp_ms,
                producer.coordinator_epoch,
                producer.txn_first_offset,
            )
        )
    data = bytearray(_HEAD.pack(PRODUCER_SNAPSHOT_VERSION, 0, len(entries)) + b"".join(entries))
    _CRC.pack_into(data, _CRC_POS, crc32c(bytes(data[_ENTRIES_POS:])))
    return bytes(data)


def decode(data: bytes) -> list[Producer]:
    """Decode a snapshot. If there are too many producers, those that wrote the longest ago are left out.

    Raises `CorruptSnapshotError`.
    """
    if len(data) < _HEAD.size:
        raise CorruptSnapshotError(f"{len(data)} bytes")
    version, crc, count = _HEAD.unpack_from(data)
    if version != PRODUCER_SNAPSHOT_VERSION:
        raise CorruptSnapshotError(f"version {version}")
    if crc != crc32c(data[_ENTRIES_POS:]):
        raise CorruptSnapshotError("its CRC doesn't match")
    if count < 0 or _HEAD.size + count * _ENTRY.size != len(data):
        raise CorruptSnapshotError(f"{count} entries in {len(data)} bytes")
    entries = memoryview(data)[_HEAD.size :]
    if count <= producer_state.MOST_IN_PARTITION:
        return [_producer(*fields) for fields in _ENTRY.iter_unpack(entries)]
    kept = [fields for fields in _ENTRY.iter_unpack(entries) if fields[_TXN] >= 0]
    closed = (fields for fields in _ENTRY.iter_unpack(entries) if fields[_TXN] < 0)
    kept += nlargest(producer_state.MOST_IN_PARTITION - len(kept), closed, _written_last)
    return [_producer(*fields) for fields in kept]


def _written_last(fields: tuple[int, ...]) -> int:
    return producer_state.silence_order(fields[_LAST_OFFSET], fields[_TIMESTAMP])


def _producer(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp_ms: int,
    coordinator_epoch: int,
    txn_first_offset: int,
) -> Producer:
    batches = (
        [_cached_batch(last_sequence, last_offset, offset_delta, timestamp_ms)] if last_offset >= 0 else []
    )
    return Producer(producer_id, epoch, coordinator_epoch, timestamp_ms, txn_first_offset, batches)


def _says(files: Files, path: str, data: bytes) -> bool:
    try:
        return files.read_whole(path) == data
    except FileNotFoundError:
        return False


def _cached_batch(last_sequence: int, last_offset: int, offset_delta: int, timestamp_ms: int) -> CachedBatch:
    """The last batch of a producer, from its entry in a snapshot."""
    first_sequence = decrement_sequence(last_sequence, offset_delta) if last_sequence >= 0 else last_sequence
    return CachedBatch(first_sequence, last_sequence, last_offset - offset_delta, last_offset, timestamp_ms)


class Snapshots:
    """The snapshot files of one partition, by offset."""

    __slots__ = ("_directory", "_files", "_last_offset", "_last_read", "offsets")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self.offsets: list[int] = []
        self._last_offset = 0
        self._last_read: tuple[int, list[Producer] | None] | None = None
        """(offset, result of the last `read`), until `load_newest` takes it: a start reads the newest one twice."""

    def path(self, offset: int) -> str:
        return file_path(self._directory, offset, SNAPSHOT_SUFFIX)

    def relocate(self, directory: str) -> None:
        """Note that the log's directory was renamed."""
        self._directory = directory

    def take(self, states: ProducerStates) -> str | None:
        """Write the current state, unsynced, and return the path. Returns None if nothing has changed since
        the last one."""
        self._last_read = None
        offset = states.map_end_offset
        if offset <= self._last_offset:
            return None
        path = self.path(offset)
        data = encode(states.producers.values())
        if offset not in self.offsets or not _says(self._files, path, data):
            self._files.write_whole(path, data)
        self._last_offset = offset
        if offset not in self.offsets:
            self.offsets.append(offset)
            self.offsets.sort()
        return path

    def read(self, offset: int) -> list[Producer] | None:
        """The producers of the snapshot at the offset; None if there is none that can be trusted."""
        known = self._last_read
        if known is not None and known[0] == offset:
            return known[1]
        try:
            producers = decode(self._files.read_whole(self.path(offset)))
        except (FileNotFoundError, CorruptSnapshotError):
            producers = None
        self._last_read = (offset, producers)
        return producers

    def load_newest(
        self, states: ProducerStates, log_start_offset: int, end_offset: int, now_ms: int, expiration_ms: int
    ) -> None:
        """Set the state to the newest snapshot in (log start, end offset], or to an empty one at the log start.

        Snapshots that can't be trusted are deleted.
        """
        for offset in reversed(self.offsets[:]):
            if log_start_offset < offset <= end_offset:
                producers = self.read(offset)
                self._last_read = None
                if producers is not None:
                    live = [p for p in producers if not is_expired(p, now_ms, expiration_ms)]
                    states.reset(live, offset)
                    self._last_offset = offset
                    return
                self.remove(offset)
        states.reset((), log_start_offset)
        self._last_offset = log_start_offset

    def remove_outside(self, log_start_offset: int, end_offset: int) -> None:
        """Delete snapshots at offsets that the log doesn't have (any more)."""
        for offset in list(self.offsets):
            if offset > end_offset or offset <= log_start_offset:
                self.remove(offset)

    def remove(self, offset: int) -> None:
        self._files.remove(self.path(offset))
        self.offsets.remove(offset)

    def remove_strays(self, base_offsets: Iterable[int]) -> None:
        """Delete those at no segment's base, except the largest if it is above all segments: a clean stop left it."""
        bases = set(base_offsets)
        for offset in list(self.offsets):
            clean_stop = offset == self.offsets[-1] and all(offset > base for base in bases)
            if offset not in bases and not clean_stop:
                self.remove(offset)

    def mark_deleted(self, offset: int) -> list[str]:
        """Rename the snapshot at the offset, if any, with `.deleted`. Returns the new path for unlinking.

        One that can't be renamed stays known, and the next start finds it.
        """
        if offset not in self.offsets:
            return []
        path = self.path(offset)
        try:
            self._files.rename(path, path + DELETED_SUFFIX)
        except FileNotFoundError:
            self.offsets.remove(offset)
            return []
        except OSError as failure:
            logger.warning("%s is left until the next start: %s", path, failure)
            return []
        self.offsets.remove(offset)
        return [path + DELETED_SUFFIX]

    def remove_all(self) -> None:
        for offset in list(self.offsets):
            self.remove(offset)
        self._last_offset = 0

    def on_log_start(self, log_start_offset: int) -> None:
        """Note that the log now begins at the offset. Once there is more, a snapshot is due."""
        self._last_offset = self.offsets[-1] if self.offsets else log_start_offset

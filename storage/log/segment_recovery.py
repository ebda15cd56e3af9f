"""Reading segments again from their first byte. What is valid stays; indexes and producers' state are rebuilt
from it.

Source: org.apache.kafka.storage LogSegment.recover, UnifiedLog.rebuildProducerState.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator, Sequence
from struct import Struct

from protocol.records.batch import (
    BATCH_OVERHEAD,
    CONTROL_BIT,
    HEADER_SIZE_UP_TO_MAGIC,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POS,
    NO_TIMESTAMP,
    BatchHeader,
    crc_is_valid,
    read_header,
    read_marker,
)
from protocol.waiting import at_once, turn
from protocol.wire.primitives import Bytes
from storage.files import File, Files
from storage.indexes import MAX_RELATIVE_OFFSET, AbortedTxn
from storage.log import removal
from storage.log.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs
from storage.log.log_state import LogState, MisplacedSegmentError
from storage.log.segment import Segment
from storage.producer_state import ProducerStates

logger = logging.getLogger(__name__)

_WINDOW_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 15
_LENGTH = Struct(">i")
_LEGACY_CRC = Struct(">I")
_LEGACY_CRC_POS = 12


class UnsupportedFormatError(Exception):
    """Batches of format 0 or 1, which Kafka stopped writing in 4.0 (KIP-724). We must not cut them off."""


def recover(log: LogState, segment: Segment, states: ProducerStates, following: Sequence[Segment]) -> bool:
    """Rebuild the segment's indexes if they are wrong, and apply its batches to `states`: the producers at its base.

    If it has an invalid batch, drops the segments `following`, the last one first, cuts the segment before that
    batch, and returns True. Otherwise the caller recovers `following` next. Leader epochs are set from the batches.
    Leaves a producer snapshot at the segment's end.

    Raises `UnsupportedFormatError`, `MisplacedSegmentError`, `OSError`.
    """
    next_base_offset = log.segments.next_base_offset(log.segments.slot_of(segment.base_offset))
    positions, times = bytearray(), bytearray()
    aborted_txns: list[AbortedTxn] = []
    interval_bytes = log.config.index_interval_bytes
    last_entry_position = end = 0
    max_timestamp_ms = said_timestamp_ms = NO_TIMESTAMP
    max_timestamp_offset = segment.base_offset
    for position, header, batch in valid_batches(segment):
        last_offset = header.last_offset
        if position == 0 and next_base_offset is not None and header.base_offset >= next_base_offset:
            raise MisplacedSegmentError(segment.log.path, header.base_offset)
        if header.max_timestamp > max_timestamp_ms:
            max_timestamp_ms, max_timestamp_offset = header.max_timestamp, last_offset
        if position - last_entry_position > interval_bytes:
            positions += segment.offset_index.pack(last_offset, position)
            if max_timestamp_ms > said_timestamp_ms:
                times += segment.time_index.pack(max_timestamp_ms, max_timestamp_offset)
                said_timestamp_ms = max_timestamp_ms
            last_entry_position = position
        end = position + len(batch)
        if following or segment is log.segments.active:
            _drop_epochs_of_others(log.leader_epochs, header)
        if header.partition_leader_epoch > log.leader_epochs.latest:
            log.leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            aborted = apply(states, header, batch)
            if aborted is not None:
                aborted_txns.append(aborted)
        states.map_end_offset = last_offset + 1
    cut = end < segment.size
    if cut:
        logger.warning("%s: %d bytes from position %d are invalid", segment.log.path, segment.size - end, end)
        # before the cut: after a kill in between, the next start finds the same again, and no hole in the log
        removal.drop_segments(log, following)
        if following:
            segment.files.sync_directory(log.directory)
        segment.files.truncate(segment.log, end)
        # The next power loss must not bring back the torn end. A recovery point at the cut, and a segment
        # that begins there, would hide it from the next start.
        segment.files.sync(segment.log.path)
        segment.size = end
    segment.max_timestamp_ms, segment.max_timestamp_offset = max_timestamp_ms, max_timestamp_offset
    if max_timestamp_ms > said_timestamp_ms:
        times += segment.time_index.pack(max_timestamp_ms, max_timestamp_offset)
    segment.offset_index.make_anew(positions)
    segment.time_index.make_anew(times)
    if aborted_txns or states.knows_transactions or segment.txn_index.exists():
        segment.txn_index.make_anew(aborted_txns)
    log.snapshots.take(states)
    return cut


def _drop_epochs_of_others(epochs: LeaderEpochs, header: BatchHeader) -> None:
    """If the epochs give this batch's offset to another epoch, drop those that begin at the batch or later.

    They belong to batches that replaced this one before a power loss brought it back. With these epochs the
    log would never cut it off. (Kafka keeps them, and relies on the file system: what was cut off before a
    file was renamed never comes back.)
    """
    known = epochs.epoch_for(header.base_offset)
    if UNDEFINED_EPOCH != known != header.partition_leader_epoch:
        epochs.truncate_from_end(header.base_offset)


def valid_batches(
    segment: Segment, position: int = 0, next_offset: int | None = None
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Iterate over the batches up to the first invalid one: position, header, bytes.

    It starts with the first batch, or with the one at this position that has `next_offset`.
    """
    if next_offset is None:
        next_offset = segment.base_offset
    window = memoryview(b"")
    window_at = 0
    while segment.size - position >= HEADER_SIZE_UP_TO_MAGIC:
        at = position - window_at
        if at + BATCH_OVERHEAD > len(window):
            window, window_at, at = _read_window(segment, position, _WINDOW_BYTES), position, 0
            if len(window) < HEADER_SIZE_UP_TO_MAGIC:
                return
        size = _LENGTH.unpack_from(window, at + 8)[0] + LOG_OVERHEAD
        if size <= HEADER_SIZE_UP_TO_MAGIC or position + size > segment.size:
            return
        if at + size > len(window):
            window, window_at, at = _read_window(segment, position, max(size, _WINDOW_BYTES)), position, 0
            if size > len(window):
                return
        batch = window[at : at + size]
        if batch[MAGIC_POS] != MAGIC:
            _refuse_legacy(segment, position, batch)
            return
        if size < BATCH_OVERHEAD or not crc_is_valid(batch, 0, size):
            return
        header = read_header(batch)
        # the CRC doesn't cover base offset and leader epoch
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            if position == 0:
                raise MisplacedSegmentError(segment.log.path, header.base_offset)
            return
        if header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            return
        yield position, header, batch
        next_offset = header.last_offset + 1
        position += size


def _read_window(segment: Segment, position: int, size: int) -> memoryview:
    return memoryview(segment.files.read(segment.log, min(size, segment.size - position), position))


def _refuse_legacy(segment: Segment, position: int, batch: memoryview) -> None:
    if batch[MAGIC_POS] in (0, 1):
        stored = _LEGACY_CRC.unpack_from(batch, _LEGACY_CRC_POS)[0]
        if zlib.crc32(batch[MAGIC_POS:]) == stored:
            raise UnsupportedFormatError(
                f"{segment.log.path} at {position}: a batch of format {batch[MAGIC_POS]}"
            )


def end_of_file(files: Files, path: str) -> int:
    """The offset after the last batch of a `.log` file without a usable index; 0 if it is empty."""
    file = File(path)
    chunk = b""
    end = position = chunk_at = 0
    try:
        while True:
            if position - chunk_at + BATCH_OVERHEAD > len(chunk):
                chunk, chunk_at = files.read(file, _CHUNK_BYTES, position), position
                if len(chunk) < BATCH_OVERHEAD:
                    return end
            header = read_header(chunk, position - chunk_at)
            end = header.last_offset + 1
            if header.size_bytes < BATCH_OVERHEAD:
                return end
            position += header.size_bytes
    finally:
        files.close(file)


# ---- the state of a partition's producers, from the newest snapshot and the batches after it


def rebuild(log: LogState, end_offset: int, now_ms: int) -> None:
    """Rebuild `log.producers` up to the offset, with snapshots at the last two segments' bases and the end.

    If a clean stop left no snapshot, Kafka reads nothing. barnabas rebuilds the missing snapshot.
    """
    log.snapshots.remove_outside(log.log_start_offset, end_offset)
    states = log.producers
    log.snapshots.load_newest(
        states, log.log_start_offset, end_offset, now_ms, log.config.producer_id_expiration_ms
    )
    if states.map_end_offset < end_offset:
        snapshot_at = log.segments.base_offsets[-2:]
        for slot, segment in enumerate(log.segments):
            next_base_offset = log.segments.next_base_offset(slot)
            if next_base_offset is not None and next_base_offset <= states.map_end_offset:
                continue
            if segment.base_offset >= end_offset:
                break
            if segment.base_offset in snapshot_at and segment.base_offset >= states.map_end_offset:
                states.map_end_offset = segment.base_offset
                log.snapshots.take(states)
            replay(segment, states, end_offset)
    states.map_end_offset = end_offset
    log.snapshots.take(states)


def replay(segment: Segment, states: ProducerStates, end_offset: int) -> None:
    """Apply the segment's batches, from the end of `states` up to the offset."""
    at_once(replay_in_steps(segment, states, end_offset))


async def replay_in_steps(segment: Segment, states: ProducerStates, end_offset: int) -> None:
    """Do the same as `replay`, one batch at a time."""
    start_offset = states.map_end_offset
    position = segment.offset_index.lookup(start_offset) if start_offset > segment.base_offset else 0
    for at, header in segment.batches(position):
        if header.base_offset >= end_offset:
            break
        if header.last_offset < start_offset:
            continue
        if header.producer_id >= 0:
            needed = header.size_bytes if header.attributes & CONTROL_BIT else 0
            apply(states, header, segment.files.read(segment.log, needed, at) if needed else b"")
        states.map_end_offset = header.last_offset + 1
        await turn()


def apply(states: ProducerStates, header: BatchHeader, batch: Bytes) -> AbortedTxn | None:
    """Apply one batch that was accepted before. Returns its entry for the transaction index, if any.

    It only looks at the bytes of a control batch.
    """
    aborted = None
    if header.attributes & CONTROL_BIT:
        marker = read_marker(batch)
        if marker is not None:
            aborted = states.aborted_by(header, marker, header.base_offset)
            states.apply_marker(header, marker, header.base_offset)
        elif not header.records_count:
            states.apply_emptied_marker(header)
    else:
        states.apply_data(header, header.base_offset)
    return aborted

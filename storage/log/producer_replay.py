"""The state of a partition's producers, made from the newest snapshot and the batches behind it.

Source: org.apache.kafka.storage UnifiedLog.rebuildProducerState.
"""

from protocol.records.batch import CONTROL_BIT, BatchHeader
from protocol.records.records import read_marker
from protocol.waiting import at_once, turn
from protocol.wire.primitives import Bytes
from storage.indexes.transaction_index import AbortedTxn
from storage.log.log_state import LogState
from storage.log.segment import Segment
from storage.producers.producer_state import ProducerStates


def rebuild(log: LogState, end_offset: int, now_ms: int) -> None:
    """Makes `log.producers` what the log says up to the offset, with snapshots at the last two segments'
    bases and the end. Kafka reads nothing where a clean stop left no snapshot; here a missing one is made up
    for.
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
    """Applies the segment's batches from the state's end up to the offset."""
    at_once(replay_in_steps(segment, states, end_offset))


async def replay_in_steps(segment: Segment, states: ProducerStates, end_offset: int) -> None:
    """As `replay`, a batch at a time."""
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
    """Applies one batch that was accepted before; returns what the transaction index must say of it.

    Of `batch` only a control batch's bytes are looked at.
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

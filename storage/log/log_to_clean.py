"""What a log gives to the cleaner. Source: org.apache.kafka.storage.internals.log LogToClean, UnifiedLog."""

from __future__ import annotations

from array import array

from protocol.waiting import turn
from storage.cleaning.plan import CleaningPlan, CleaningSettings, SegmentSizes
from storage.indexes import offset_index, time_index
from storage.log.log_state import LogState

PRODUCERS_PER_TURN = 5_000
"""Of which the last batches are sampled, before others are served."""


def cleaning_plan(
    log: LogState, *, first_dirty_offset: int, first_uncleanable_offset: int, now_ms: int, max_keys: int
) -> CleaningPlan:
    """A pass over the log as it is now, but for `producers`. See `PartitionLog.cleaning_plan`."""
    segments = log.segments
    end_slot = segments.slot_of(first_uncleanable_offset)
    config = log.config
    return CleaningPlan(
        topic=log.topic,
        partition=log.partition,
        directory=log.directory,
        segments=tuple(
            SegmentSizes(
                segment.base_offset,
                segment.size,
                segment.offset_index.count * offset_index.ENTRY_SIZE,
                segment.time_index.count * time_index.ENTRY_SIZE,
            )
            for segment in segments.row[:end_slot]
        ),
        log_start_offset=log.log_start_offset,
        first_dirty_offset=first_dirty_offset,
        first_uncleanable_offset=segments.base_offsets[end_slot],
        now_ms=now_ms,
        max_keys=max_keys,
        producers=array("q"),
        keep_txn_index=log.producers.knows_transactions,
        settings=CleaningSettings(
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            delete_retention_ms=config.delete_retention_ms,
        ),
    )


async def producers_in_steps(log: LogState) -> array[int]:
    """The plan's `producers`. Each is as it is at its step: where one has written since the plan was made, what it
    wrote before isn't its last batch any more, and what it wrote lies above all that is cleaned."""
    ids, epochs, last_data_offsets = array("q"), array("q"), array("q")
    for number, producer_id in enumerate([*log.producers.producers], 1):
        producer = log.producers.producers.get(producer_id)
        if producer is not None:
            ids.append(producer_id)
            epochs.append(producer.epoch)
            last_data_offsets.append(producer.last_data_offset)
        if number % PRODUCERS_PER_TURN == 0:
            await turn()
    return ids + epochs + last_data_offsets

"""What a log gives to the cleaner. Source: org.apache.kafka.storage.internals.log LogToClean, UnifiedLog."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

from storage.cleaning.plan import CleaningPlan, CleaningSettings, SegmentSizes
from storage.indexes import offset_index, time_index
from storage.log.log_state import LogState
from storage.producers.producer_state import Producer


def cleaning_plan(
    log: LogState, *, first_dirty_offset: int, first_uncleanable_offset: int, now_ms: int, max_keys: int
) -> CleaningPlan:
    """A pass over the log as it is now. See `PartitionLog.cleaning_plan`."""
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
        producers=_last_batches(log.producers.producers),
        keep_txn_index=log.producers.knows_transactions,
        settings=CleaningSettings(
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            delete_retention_ms=config.delete_retention_ms,
        ),
    )


def _last_batches(producers: Mapping[int, Producer]) -> array[int]:
    found = array("q", producers)
    found.extend([producer.epoch for producer in producers.values()])
    found.extend([producer.last_data_offset for producer in producers.values()])
    return found

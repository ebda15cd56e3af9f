"""What a log gives to the cleaner. Source: org.apache.kafka.storage.internals.log LogToClean, UnifiedLog."""

from storage.cleaning.plan import CleaningPlan, CleaningSettings, LastBatch, SegmentSizes
from storage.indexes import offset_index, time_index
from storage.log.log_state import LogState


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
        last_batches={
            producer.producer_id: LastBatch(producer.epoch, producer.last_data_offset)
            for producer in log.producers.producers.values()
        },
        keep_txn_index=log.producers.knows_transactions,
        settings=CleaningSettings(
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            delete_retention_ms=config.delete_retention_ms,
        ),
    )

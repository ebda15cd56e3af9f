"""Which segments may go: below the log start, too old, or too many.

Segments go oldest first, up to the first that stays, and none that reaches above the high watermark. The
active one may go too: an empty one at the log end takes its place. Source: org.apache.kafka.storage
UnifiedLog.deleteOldSegments.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from protocol.errors import Error, KafkaError
from storage.log import removal, rolling
from storage.log.segment import Segment
from storage.log.storage_errors import told_to_clients

if TYPE_CHECKING:
    from storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

Breaches = Callable[[Segment, int | None], bool]
"""Of a segment and the base offset of the one behind it."""


@told_to_clients
def apply_retention(log: "PartitionLog", now_ms: int) -> int:
    """Deletes the segments that lie below the log start, or that retention.ms or retention.bytes give up.

    Returns how many. Files are renamed with `.deleted` at once, and unlinked after `file.delete.delay.ms`.
    Segments that can't be renamed lie below the log start from then on: the next pass tries them again.
    """
    if not log.created or log.closed:
        return 0
    deleted = _delete(log, now_ms, _below_log_start(log))
    if log.config.deletes:
        if 0 <= log.config.retention_bytes <= log.size:
            deleted += _delete(log, now_ms, _too_large(log))
        if log.config.retention_ms >= 0:
            deleted += _delete(log, now_ms, _too_old(log, now_ms))
    return deleted


def _below_log_start(log: "PartitionLog") -> Breaches:
    return lambda segment, next_base: next_base is not None and next_base <= log.log_start_offset


def _too_large(log: "PartitionLog") -> Breaches:
    surplus = log.size - log.config.retention_bytes

    def breaches(segment: Segment, next_base: int | None) -> bool:
        nonlocal surplus
        if surplus < segment.size:
            return False
        surplus -= segment.size
        return True

    return breaches


def _too_old(log: "PartitionLog", now_ms: int) -> Breaches:
    retention_ms = log.config.retention_ms
    return lambda segment, next_base: now_ms - segment.largest_timestamp_ms() > retention_ms


def _delete(log: "PartitionLog", now_ms: int, breaches: Breaches) -> int:
    doomed = []
    for slot, segment in enumerate(log.segments):
        last = segment is log.active
        next_base = None if last else log.base_offsets[slot + 1]
        end = log.log_end_offset if next_base is None else next_base
        if (last and segment.size == 0) or log.high_watermark < end or not breaches(segment, next_base):
            break
        doomed.append(segment)
    if not doomed:
        return 0
    if len(doomed) == len(log.segments):
        rolling.roll_at(log, log.log_end_offset, now_ms)
    log_start_offset = log.base_offsets[len(doomed)]
    logger.info(
        "%s-%d: %d segments before offset %d are deleted",
        log.topic,
        log.partition,
        len(doomed),
        log_start_offset,
    )
    move_log_start(log, log_start_offset)
    removal.drop_segments(log, doomed)
    return len(doomed)


@told_to_clients
def delete_records_before(log: "PartitionLog", offset: int) -> int:
    """Moves the log start to the offset; the segments below go at the next retention pass.

    Returns the log start. Raises `KafkaError` (OFFSET_OUT_OF_RANGE) for an offset above the high watermark.
    """
    if not 0 <= offset <= log.high_watermark:
        raise KafkaError(
            Error.OFFSET_OUT_OF_RANGE,
            f"{offset} isn't between 0 and the high watermark {log.high_watermark}",
        )
    move_log_start(log, offset)
    return log.log_start_offset


def move_log_start(log: "PartitionLog", offset: int) -> None:
    """The log begins at the offset, if it didn't begin behind it already; all other offsets follow."""
    if offset <= log.log_start_offset:
        return
    # first, since it alone may fail: then nothing has moved
    log.leader_epochs.truncate_from_start(offset)
    log.log_start_offset = offset
    log.high_watermark = max(log.high_watermark, offset)
    log.recovery_point = max(log.recovery_point, offset)
    log.producers.on_high_watermark(offset)
    log.producers.map_end_offset = max(log.producers.map_end_offset, offset)
    log.snapshots.on_log_start(offset)
    log.update_first_unstable_offset()

"""Which segments may go: below the log start, too old, or too many.

Segments go oldest first, up to the first that stays, and none that reaches above the high watermark. The
active one may go too: an empty one at the log end takes its place. Source: org.apache.kafka.storage
UnifiedLog.deleteOldSegments.
"""

import logging
from collections.abc import Callable

from protocol.errors import Error, KafkaError
from storage.log import removal, rolling
from storage.log.log_state import LogState
from storage.log.segment import Segment

logger = logging.getLogger(__name__)

Breaches = Callable[[Segment, int | None], bool]
"""Of a segment and the base offset of the one behind it."""


MOST_DELETED_AT_ONCE = 100
"""Segments: their files are renamed while nobody else is served, some 5 ms. A topic with segment.ms=1 has ten thousand
of them in no time."""


def apply_retention(log: LogState, now_ms: int, most: int) -> int:
    """Deletes the segments that lie below the log start, or that retention.ms or retention.bytes give up, `most` of
    them.

    Returns how many. Files are renamed with `.deleted` at once, and unlinked after `file.delete.delay.ms`.
    Segments that can't be renamed lie below the log start from then on: the next pass tries them again.
    """
    if not log.created or log.closed:
        return 0
    deleted = _delete(log, now_ms, _below_log_start(log), most)
    if log.config.deletes:
        if 0 <= log.config.retention_bytes <= log.segments.size:
            deleted += _delete(log, now_ms, _too_large(log), most - deleted)
        if log.config.retention_ms >= 0:
            deleted += _delete(log, now_ms, _too_old(log, now_ms), most - deleted)
    return deleted


def _below_log_start(log: LogState) -> Breaches:
    return lambda segment, next_base: next_base is not None and next_base <= log.log_start_offset


def _too_large(log: LogState) -> Breaches:
    surplus = log.segments.size - log.config.retention_bytes

    def breaches(segment: Segment, next_base: int | None) -> bool:
        nonlocal surplus
        if surplus < segment.size:
            return False
        surplus -= segment.size
        return True

    return breaches


def _too_old(log: LogState, now_ms: int) -> Breaches:
    retention_ms = log.config.retention_ms
    return lambda segment, next_base: now_ms - segment.largest_timestamp_ms() > retention_ms


def _delete(log: LogState, now_ms: int, breaches: Breaches, most: int) -> int:
    doomed = []
    for slot, segment in enumerate(log.segments):
        if slot == most:
            break
        next_base = log.segments.next_base_offset(slot)
        end = log.log_end_offset if next_base is None else next_base
        if (
            (next_base is None and segment.size == 0)
            or log.high_watermark < end
            or not breaches(segment, next_base)
        ):
            break
        doomed.append(segment)
    if not doomed:
        return 0
    if len(doomed) == len(log.segments):
        rolling.roll_at(log, log.log_end_offset, now_ms)
    log_start_offset = log.segments.base_offsets[len(doomed)]
    logger.info(
        "%s-%d: %d segments before offset %d are deleted",
        log.topic,
        log.partition,
        len(doomed),
        log_start_offset,
    )
    log.move_log_start(log_start_offset)
    removal.drop_segments(log, doomed)
    return len(doomed)


def delete_records_before(log: LogState, offset: int) -> int:
    """Moves the log start to the offset; the segments below go at the next retention pass.

    Returns the log start. Raises `KafkaError` (OFFSET_OUT_OF_RANGE) for an offset above the high watermark.
    """
    if not 0 <= offset <= log.high_watermark:
        raise KafkaError(
            Error.OFFSET_OUT_OF_RANGE,
            f"{offset} isn't between 0 and the high watermark {log.high_watermark}",
        )
    log.move_log_start(offset)
    return log.log_start_offset

"""What a log has lost, told at its opening: it goes on with what is there, and nobody is left to find out by himself.

Kafka tells none of this. What is told is no proof where it can't be one: of compaction's gaps nothing is said.
"""

import logging
from collections.abc import Sequence

from protocol.errors import KafkaError
from storage.file_names import LOG_SUFFIX, offset_of
from storage.log.log_state import LogState
from storage.log.segment import Segment

logger = logging.getLogger(__name__)


def tell_end(log: LogState, end_offset: int, recovery_point: int) -> None:
    """The log ends before what is said to have been synced of it."""
    if end_offset < recovery_point:
        logger.warning(
            "%s ends at offset %d, and was synced up to %d: what lies between is lost",
            log.directory,
            end_offset,
            recovery_point,
        )


def tell_orphans(directory: str, names: Sequence[str]) -> None:
    """Indexes of segments that aren't there."""
    for base_offset in sorted({offset for name in names if (offset := offset_of(name)) is not None}):
        logger.warning(
            "%s/%020d%s is missing beside its indexes: its records are lost",
            directory,
            base_offset,
            LOG_SUFFIX,
        )


def tell_gap(log: LogState, segment: Segment, end_offset: int | None, next_base_offset: int) -> None:
    """A segment ends before the next one begins. `end_offset` where it was read; else its last batches are asked."""
    if end_offset is None:
        try:
            end_offset = segment.next_offset()
        except KafkaError as failure:
            logger.warning("%s: %s", segment.log.path, failure)
            return
    if "compact" in log.config.cleanup_policy:  # which leaves gaps
        known = max(segment.offset_index.last_entry()[0], segment.time_index.last_entry()[1])
        if end_offset <= known and segment.time_index.count:
            logger.warning("%s ends at offset %d: its indexes know %d", segment.log.path, end_offset, known)
        return
    if end_offset < next_base_offset:
        logger.warning(
            "%s ends at offset %d, and the next segment begins at %d: what lies between is lost",
            segment.log.path,
            end_offset,
            next_base_offset,
        )

"""Which neighbouring segments become one. Source: Cleaner.groupSegmentsBySize."""

from collections.abc import Sequence

from storage.cleaning.plan import CleaningSettings, SegmentSizes
from storage.indexes.offset_index import MAX_RELATIVE_OFFSET

MAX_SEGMENTS_IN_GROUP = 100
"""Their files are renamed in one go when they are replaced, while nobody else is served: some 7 ms. Kafka has no such
bound; what is left over is merged by a later pass."""


def group_segments(
    segments: Sequence[SegmentSizes], settings: CleaningSettings, first_uncleanable_offset: int
) -> list[list[SegmentSizes]]:
    """The segments in groups, both ascending: from the left each takes what it has room for.

    Sizes are those before the pass, so that what shrinks now is merged by the next one.
    """
    groups: list[list[SegmentSizes]] = []
    log_bytes = offset_index_bytes = time_index_bytes = 0
    for slot, segment in enumerate(segments):
        log_bytes += segment.log_bytes
        offset_index_bytes += segment.offset_index_bytes
        time_index_bytes += segment.time_index_bytes
        end = segments[slot + 1].base_offset if slot + 1 < len(segments) else first_uncleanable_offset
        if (
            groups
            and len(groups[-1]) < MAX_SEGMENTS_IN_GROUP
            and log_bytes <= settings.segment_bytes
            and offset_index_bytes <= settings.segment_index_bytes
            and time_index_bytes <= settings.segment_index_bytes
            and (not segment.log_bytes or end - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            _base_offset, log_bytes, offset_index_bytes, time_index_bytes = segment
    return groups

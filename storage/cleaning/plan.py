"""The input and the output of a pass of the cleaner. Both are plain data, so that it may run in another process.

`PartitionLog.cleaning_plan` makes a `CleaningPlan`. `cleaner.clean(files, plan)` carries it out, and yields a
`CleaningStep` after each bounded piece of work:

- `Progress`: the caller only counts the bytes, for the throttle.
- `CleanedSegment`: the files of a group of segments are written and synced, under names that end with
  `.cleaned`. `PartitionLog.replace_segments` replaces the old ones with them, in the process that owns the log.
  The pass may continue before that is done, since it never comes back to these segments.
- `CleaningResult`: the last step. Only after it, and once all replacements are done, may the checkpoint have
  the new first dirty offset.

A caller that doesn't want the rest closes the generator, which removes the `.cleaned` files that weren't
used. If the pass ran in a process that was killed, `discard_cleaned` does that. A pass that fails raises
`UncleanableError`, about the partition's content, or `OSError`, about the disk.

Source: org.apache.kafka.storage.internals.log Cleaner, CleanerStats, LogCleanerManager.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple


class UncleanableError(Exception):
    """The partition can't be cleaned as it is. The message names partition, file and offset."""


class SegmentSizes(NamedTuple):
    """The sizes of a segment before the pass, in bytes. Segments are grouped by them."""

    base_offset: int
    log_bytes: int
    offset_index_bytes: int
    time_index_bytes: int


class CleaningSettings(NamedTuple):
    """The topic's settings at the start of the pass."""

    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    delete_retention_ms: int
    max_decompressed_message_bytes: int


class CleaningPlan(NamedTuple):
    """One pass over one partition.

    `producers` are sampled once, when the pass begins, whereas Kafka asks for them before each group of
    segments. That keeps more, never less: producers that were active then are protected up to the end of the
    pass, and what they have written since lies above everything that is cleaned.
    """

    topic: str
    partition: int
    directory: str
    segments: tuple[SegmentSizes, ...]
    """All segments below the first uncleanable offset, ascending."""
    log_start_offset: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    high_watermark: int
    now_ms: int
    max_keys: int
    """The largest number of different keys in the offset map. If there are more, the pass ends early (`OffsetMap`)."""
    producers: array[int]
    """The active producers: all ids, then each one's epoch, then the offset of each one's last data batch, -1
    if none of this epoch is known. These are plain numbers: for a hundred thousand objects the loop would
    take a quarter of a second to make and send them."""
    keep_txn_index: bool
    """True if the partition knows transactions. Then each segment keeps a `.txnindex`, maybe an empty one, so
    that a missing one means a lost one. Kafka has none without entries."""
    settings: CleaningSettings

    def segment_ends(self) -> list[int]:
        """The end of each segment: the base of the next one."""
        return [*(segment.base_offset for segment in self.segments[1:]), self.first_uncleanable_offset]


class Progress(NamedTuple):
    """Bytes read and written since the last step."""

    read_bytes: int
    written_bytes: int


class CleanedSegment(NamedTuple):
    """One segment made from a group of segments. Its files have names that end with `.cleaned`."""

    base_offset: int
    """The base offset of the group's first segment."""
    replaced: tuple[int, ...]
    """The base offsets of the whole group, ascending."""
    log_bytes: int
    max_timestamp_ms: int
    """-1 if no batch is left."""
    max_timestamp_offset: int
    """The last offset of the first batch with that timestamp."""


class CleaningStats(NamedTuple):
    """Counts of a pass. Source: CleanerStats."""

    map_bytes_read: int
    map_records_read: int
    bytes_read: int
    records_read: int
    bytes_written: int
    records_written: int
    keys: int
    """In the complete offset map."""


class CleaningResult(NamedTuple):
    """The end of a pass."""

    first_dirty_offset: int
    """The first dirty offset of the next pass: the first uncleanable offset, or less if the map was full."""
    stats: CleaningStats


CleaningStep = Progress | CleanedSegment | CleaningResult

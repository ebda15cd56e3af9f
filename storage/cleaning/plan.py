"""What a pass of the cleaner is given, and what it tells. Both are plain data, so that it may run in another process.

`PartitionLog.cleaning_plan` makes a `CleaningPlan`; `cleaner.clean(files, plan)` works it off and yields a
`CleaningStep` after each bounded piece of work:

- `Progress`: nothing to do but to count the bytes, for the throttle.
- `CleanedSegment`: the files of a group of segments are written and synced, under names that end with `.cleaned`.
  `PartitionLog.replace_segments` puts them in the place of the old ones, in the process that owns the log. The pass may
  go on before that is done, since it never comes back to these segments.
- `CleaningResult`: the last step. Only now, and once all replacements are done, may the checkpoint say the new first
  dirty offset.

Whoever doesn't want the rest closes the generator, which removes the `.cleaned` files that nobody took; where the pass
ran in a process that was killed, `discard_cleaned` does that. A pass that fails raises `UncleanableError`,
which is about the partition's content, or `OSError`, which is about the disk.

Source: org.apache.kafka.storage.internals.log Cleaner, CleanerStats, LogCleanerManager.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple


class UncleanableError(Exception):
    """The partition can't be cleaned as it is: its text names partition, file and offset."""


class SegmentSizes(NamedTuple):
    """A segment as it is before the pass, in bytes: by them segments are grouped."""

    base_offset: int
    log_bytes: int
    offset_index_bytes: int
    time_index_bytes: int


class CleaningSettings(NamedTuple):
    """The topic's, as they are when the pass begins."""

    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    delete_retention_ms: int
    max_decompressed_message_bytes: int


class CleaningPlan(NamedTuple):
    """One pass over one partition.

    `producers` are sampled once, when the pass begins, whereas Kafka asks for them before each group of
    segments. That keeps more, never less: whoever was active then is protected to the end of the pass, and what a
    producer wrote since lies above all that is cleaned.
    """

    topic: str
    partition: int
    directory: str
    segments: tuple[SegmentSizes, ...]
    """All below the first uncleanable offset, ascending."""
    log_start_offset: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    high_watermark: int
    now_ms: int
    max_keys: int
    """How many different keys the offset map takes; where there are more the pass ends early (`OffsetMap`)."""
    producers: array[int]
    """What is known of the active ones: all ids, then the epoch of each, then the offset of its last batch of data, -1
    where none of this epoch is known. Numbers alone: of a hundred thousand, each an object, the loop would take a
    quarter of a second to make and to send them."""
    keep_txn_index: bool
    """Whether the partition knows transactions, so that each segment keeps a `.txnindex`, be it an empty one: a missing
    one then means a lost one. Kafka has none where there is nothing to say."""
    settings: CleaningSettings

    def segment_ends(self) -> list[int]:
        """Where each of the segments ends: at the base of the next one."""
        return [*(segment.base_offset for segment in self.segments[1:]), self.first_uncleanable_offset]


class Progress(NamedTuple):
    """Bytes read and written since the last step."""

    read_bytes: int
    written_bytes: int


class CleanedSegment(NamedTuple):
    """A group of segments has become one, which waits under names that end with `.cleaned`."""

    base_offset: int
    """That of the group's first."""
    replaced: tuple[int, ...]
    """The base offsets of the whole group, ascending."""
    log_bytes: int
    max_timestamp_ms: int
    """-1 where no batch is left."""
    max_timestamp_offset: int
    """The last offset of the batch that has it first."""


class CleaningStats(NamedTuple):
    """What a pass has done. Source: CleanerStats."""

    map_bytes_read: int
    map_records_read: int
    bytes_read: int
    records_read: int
    bytes_written: int
    records_written: int
    keys: int
    """In the offset map, when it was complete."""


class CleaningResult(NamedTuple):
    """The pass is done."""

    first_dirty_offset: int
    """Of the next pass: the first uncleanable offset, or less where the map was full."""
    stats: CleaningStats


CleaningStep = Progress | CleanedSegment | CleaningResult

"""Which partition is to be compacted next, and up to where, and which rest: decisions alone, over what a log is at
the time.

Source: org.apache.kafka.storage.internals.log LogCleanerManager (grabFilthiestCompactedLog, cleanableOffsets,
calculateCleanableBytes, maxCompactionDelay), LogToClean.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from broker.environment.scheduler import Clock
    from broker.replicas.partition import Partition
    from storage.log.log_config import LogConfig


class SegmentLike(Protocol):
    """What is asked of a segment."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    def first_timestamp_ms(self) -> int: ...

    def largest_timestamp_ms(self) -> int: ...


S = TypeVar("S", bound=SegmentLike)


class LogToJudge(NamedTuple):
    """A log as it is now; its last segment is the active one."""

    segments: Sequence[SegmentLike]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    checkpointed: int | None
    """What the cleaner's checkpoint says of it."""


class Cleanable(NamedTuple):
    """What may be compacted of a log: from the first dirty offset to below the first uncleanable one.

    The latter is the base of a segment. Bytes are those of whole segments.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    is_reset: bool
    """Whether the checkpoint makes no sense for the log any more, and has to be written anew at once."""
    overdue_ms: int
    """For how long something has been there that max.compaction.lag.ms wants compacted; 0 where nothing is."""

    @property
    def ratio(self) -> float:
        """How dirty the log is, 0 to 1."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0


def judge(log: LogToJudge, config: LogConfig, now_ms: int) -> Cleanable:
    """What is cleanable of the log. May raise `OSError` and `KafkaError` where a segment can't be read."""
    first_dirty_offset = log.log_start_offset if log.checkpointed is None else log.checkpointed
    is_reset = not log.log_start_offset <= first_dirty_offset <= log.log_end_offset
    if is_reset:
        first_dirty_offset = log.log_start_offset
    segments = log.segments
    base_offsets = [segment.base_offset for segment in segments]
    active_base = base_offsets[-1]
    dirty = _inactive_from(segments, base_offsets, first_dirty_offset)
    bound = min(log.last_stable_offset, active_base)
    if config.min_compaction_lag_ms > 0:
        young_ms = now_ms - config.min_compaction_lag_ms
        bound = min(
            bound, next((each.base_offset for each in dirty if each.largest_timestamp_ms() > young_ms), bound)
        )
    bound = max(first_dirty_offset, bound)
    uncleanable = _inactive_from(segments, base_offsets, bound)
    first_uncleanable_offset = uncleanable[0].base_offset if uncleanable else active_base
    return Cleanable(
        first_dirty_offset,
        first_uncleanable_offset,
        clean_bytes=sum(
            segment.size for segment in segments[: bisect_left(base_offsets, first_dirty_offset)]
        ),
        cleanable_bytes=sum(each.size for each in dirty if each.base_offset < first_uncleanable_offset),
        is_reset=is_reset,
        overdue_ms=_overdue_ms(dirty, config.max_compaction_lag_ms, now_ms),
    )


def times_to_read(
    segments: Sequence[S], first_dirty_offset: int, config: LogConfig, now_ms: int
) -> Iterator[S]:
    """Segments by whose times `judge` goes, one after the other. They are read from files, and known from then on: of a
    long log that is better done a few at a time, in any of which a segment may be gone.

    May raise as `judge`.
    """
    reads_first = now_ms - config.max_compaction_lag_ms > 0
    if not reads_first and config.min_compaction_lag_ms <= 0:
        return
    for segment in _inactive_from(segments, [each.base_offset for each in segments], first_dirty_offset):
        yield segment
        if reads_first:
            segment.first_timestamp_ms()
        if config.min_compaction_lag_ms > 0:
            segment.largest_timestamp_ms()


def _inactive_from(segments: Sequence[S], base_offsets: Sequence[int], offset: int) -> Sequence[S]:
    """From the segment that holds the offset up to the active one, without it."""
    return segments[max(0, bisect_right(base_offsets, offset) - 1) : -1]


def _overdue_ms(dirty: Sequence[SegmentLike], max_lag_ms: int, now_ms: int) -> int:
    latest_ms = now_ms - max_lag_ms
    if latest_ms <= 0:
        return 0  # nothing is read then, as without a lag
    times_ms = (segment.first_timestamp_ms() for segment in dirty)
    earliest_ms = min((time_ms for time_ms in times_ms if time_ms > 0), default=latest_ms)
    return max(0, latest_ms - earliest_ms)


def is_wanted(cleanable: Cleanable, config: LogConfig) -> bool:
    """Whether the log is dirty enough to be compacted, or has waited too long for it."""
    if cleanable.overdue_ms > 0 and cleanable.cleanable_bytes > 0:
        return True
    return cleanable.ratio > config.min_cleanable_dirty_ratio


# --- Partitions that no pass is made of for a while, since the last one failed through no fault of theirs ---

RETRY_S = 15.0
LONGEST_RETRY_S = 600.0


class Resting:
    """Where the disk refuses, or the log isn't any more what was read, 15 s. Where the pass was lost, its process being
    killed or memory short, twice as long each time, up to ten minutes: what the system kills for its memory it kills
    again, and all that was read and written until then is for nothing. The offset map is what a pass needs most memory
    for: each time it takes half of the keys, down to a sixteenth, so that the pass gets less far and may come through.

    A pass on the loop would need as much memory, in the process that must not be killed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s: dict[Partition, float] = {}
        self._losses: dict[Partition, int] = {}

    def __contains__(self, partition: Partition) -> bool:
        return self._until_s.get(partition, 0.0) > self._clock.monotonic_s()

    def keys_for(self, partition: Partition, max_keys: int) -> int:
        """How many keys the next pass may take, of so many that the settings allow."""
        return max(1, max_keys >> min(self._losses.get(partition, 0), 4))

    def rest(self, partition: Partition, *, is_lost: bool = False) -> float:
        """For how long it rests from now on."""
        rest_s = RETRY_S
        if is_lost:
            losses = self._losses[partition] = self._losses.get(partition, 0) + 1
            rest_s = min(RETRY_S * 2.0 ** min(losses - 1, 10), LONGEST_RETRY_S)
        self._until_s[partition] = self._clock.monotonic_s() + rest_s
        return rest_s

    def came_through(self, partition: Partition) -> None:
        """A pass was made to its end."""
        self._losses.pop(partition, None)

    def forget_others(self) -> None:
        """Those that rest no longer, and of those that are gone what was lost."""
        self._until_s = {each: until_s for each, until_s in self._until_s.items() if each in self}
        self._losses = {each: losses for each, losses in self._losses.items() if not each.is_gone}

"""Choosing the partition to compact next, and how far, and how long a partition rests after a failed pass. Pure
decisions over the present state of logs.

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
    """The parts of a segment that are used here."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    def first_timestamp_ms(self) -> int: ...

    def largest_timestamp_ms(self) -> int: ...


S = TypeVar("S", bound=SegmentLike)


class LogToJudge(NamedTuple):
    """The present state of a log. Its last segment is the active one."""

    segments: Sequence[SegmentLike]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    checkpointed: int | None
    """The offset in the cleaner's checkpoint."""


class Cleanable(NamedTuple):
    """The part of a log that may be compacted: from the first dirty offset up to the first uncleanable one.

    The latter is the base of a segment. Bytes are those of whole segments.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    is_reset: bool
    """True if the checkpoint doesn't fit the log any more, and has to be written anew at once."""
    overdue_ms: int
    """How long max.compaction.lag.ms has been exceeded. 0 if it isn't."""

    @property
    def ratio(self) -> float:
        """How dirty the log is, 0 to 1."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0


def judge(log: LogToJudge, config: LogConfig, now_ms: int) -> Cleanable:
    """Return the cleanable part of the log. Raises `OSError` and `KafkaError` if a segment can't be read."""
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
    """Go through the segments whose times `judge` needs, one after the other.

    Their times are read from files, and kept. In a long log it is better to do that a few at a time. A
    segment may be gone by then. Raises as `judge`.
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
    """Return the segments from the one with the offset up to, but not including, the active one."""
    return segments[max(0, bisect_right(base_offsets, offset) - 1) : -1]


def _overdue_ms(dirty: Sequence[SegmentLike], max_lag_ms: int, now_ms: int) -> int:
    latest_ms = now_ms - max_lag_ms
    if latest_ms <= 0:
        return 0  # as without a lag, nothing is read
    times_ms = (segment.first_timestamp_ms() for segment in dirty)
    earliest_ms = min((time_ms for time_ms in times_ms if time_ms > 0), default=latest_ms)
    return max(0, latest_ms - earliest_ms)


def is_wanted(cleanable: Cleanable, config: LogConfig) -> bool:
    """True if the log is dirty enough to be compacted, or has waited too long."""
    if cleanable.overdue_ms > 0 and cleanable.cleanable_bytes > 0:
        return True
    return cleanable.ratio > config.min_cleanable_dirty_ratio


# --- Partitions that rest for a while, because their last pass failed through no fault of theirs ------------

RETRY_S = 15.0
LONGEST_RETRY_S = 600.0


class Resting:
    """The partitions that rest.

    If the disk refused, or the log has changed since it was read, a partition rests for 15 s. If the pass was
    lost, because its process was killed or memory was short, it rests for twice as long each time, up to ten
    minutes: the system will probably kill it again for its memory, and all its work is wasted. A pass needs
    most memory for its offset map. So after each loss the map takes half as many keys, down to a sixteenth;
    then the pass gets less far, but may succeed. A pass on the loop would need as much memory, in the process
    that must not be killed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s: dict[Partition, float] = {}
        self._losses: dict[Partition, int] = {}

    def __contains__(self, partition: Partition) -> bool:
        return self._until_s.get(partition, 0.0) > self._clock.monotonic_s()

    def keys_for(self, partition: Partition, max_keys: int) -> int:
        """How many keys the next pass may take, if the settings allow `max_keys`."""
        return max(1, max_keys >> min(self._losses.get(partition, 0), 4))

    def rest(self, partition: Partition, *, is_lost: bool = False) -> float:
        """Let the partition rest, and return for how long."""
        rest_s = RETRY_S
        if is_lost:
            losses = self._losses[partition] = self._losses.get(partition, 0) + 1
            rest_s = min(RETRY_S * 2.0 ** min(losses - 1, 10), LONGEST_RETRY_S)
        self._until_s[partition] = self._clock.monotonic_s() + rest_s
        return rest_s

    def came_through(self, partition: Partition) -> None:
        """Note that a pass has succeeded."""
        self._losses.pop(partition, None)

    def forget_others(self) -> None:
        """Forget partitions that don't rest any more, and the losses of those that are gone."""
        self._until_s = {each: until_s for each, until_s in self._until_s.items() if each in self}
        self._losses = {each: losses for each, losses in self._losses.items() if not each.is_gone}

"""The partitions that a Fetch names, and what is remembered of each in a session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from broker.controller.image import MAX_NAME_LENGTH
from broker.network.turns import PER_TURN, portions
from broker.replicas.replica_selector import NO_REPLICA

if TYPE_CHECKING:
    from protocol.messages.fetch import FetchPartition, ForgottenTopic, PartitionData

# A partition is known by what the request names it by: (topic name, index) or (topic id, index).
Key = tuple[str | bytes, int]

T = TypeVar("T")
ByTopic = Sequence[tuple[str | bytes, Sequence[T]]]
"""What a request names, by topics."""

Wanted = ByTopic["FetchPartition"]


class FetchTarget:
    """One partition that is fetched: what the client wants, and what it was last told of it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "log_start_offset",
        "partition_max_bytes",
        "told_high_watermark",
        "told_log_start_offset",
        "topic",
        "topic_name",
    )

    def __init__(self, topic: str | bytes, wanted: FetchPartition) -> None:
        self.topic = topic
        self.topic_name = topic if isinstance(topic, str) else ""  # of a topic id once it is known
        self.index = wanted.partition
        self.told_high_watermark = -1
        self.told_log_start_offset = -1
        self.update(wanted)

    @property
    def key(self) -> Key:
        return (self.topic, self.index)

    def update(self, wanted: FetchPartition) -> None:
        self.fetch_offset = wanted.fetch_offset
        self.partition_max_bytes = wanted.partition_max_bytes
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.log_start_offset = wanted.log_start_offset  # of a follower that fetches

    def updated(self, wanted: FetchPartition) -> FetchTarget:
        """As this one, with what is wanted of it now."""
        target = FetchTarget(self.topic, wanted)
        target.topic_name = self.topic_name
        target.told_high_watermark = self.told_high_watermark
        target.told_log_start_offset = self.told_log_start_offset
        return target

    def is_news(self, answer: PartitionData) -> bool:
        """Whether the client doesn't know yet what the answer says, or has to act on it (Kafka:
        `CachedPartition.maybeUpdateResponseData`). What an answer doesn't wait for more is news, or its reader asks
        for the same again at once, and never learns why."""
        return (
            bool(answer.records)
            or answer.diverging_epoch is not None
            or answer.preferred_read_replica != NO_REPLICA
            or answer.high_watermark != self.told_high_watermark
            or answer.log_start_offset != self.told_log_start_offset
            or answer.error_code != 0
        )

    def tell(self, answer: PartitionData) -> bool:
        """Remember what the answer says; whether it is news. After an error a partition is news once more."""
        news = self.is_news(answer)
        self.told_high_watermark = -1 if answer.error_code != 0 else answer.high_watermark
        self.told_log_start_offset = answer.log_start_offset
        return news


def take_wanted(targets: dict[Key, FetchTarget], wanted: Wanted, *, of_session: bool = False) -> bool:
    """Take over what is wanted. Of one listed twice the last entry counts, at the place of the first.

    `of_session`: the targets that are there are a session's, which isn't to be changed yet. Returns whether a session
    may be kept of it.
    """
    fits = True
    for topic, partitions in wanted:
        for partition in partitions:
            key = (topic, partition.partition)
            known = targets.get(key)
            if known is None:
                targets[key] = FetchTarget(topic, partition)
                fits = fits and len(topic) <= MAX_NAME_LENGTH  # no topic has a longer name
            elif of_session:
                targets[key] = known.updated(partition)
            else:
                known.update(partition)
    return fits


def by_topic(forgotten: Iterable[ForgottenTopic], by_id: bool) -> ByTopic[int]:
    return [(gone.topic_id if by_id else gone.topic, gone.partitions) for gone in forgotten]


def drop_forgotten(targets: dict[Key, FetchTarget], forgotten: ByTopic[int]) -> None:
    for topic, indexes in forgotten:
        for index in indexes:
            targets.pop((topic, index), None)


def parts_of(named: ByTopic[T]) -> Iterator[ByTopic[T]]:
    """As much of it as one turn takes over."""
    some: list[tuple[str | bytes, Sequence[T]]] = []
    room = PER_TURN
    for topic, partitions in named:
        for part in portions(partitions):
            some.append((topic, part))
            room -= 1 + len(part)
            if room <= 0:
                yield some
                some, room = [], PER_TURN
    yield some

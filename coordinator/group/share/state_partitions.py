"""Which partitions the share coordinator knows of a share group: how their state is initialized, and deleted.

Before a partition is assigned to anybody its state is initialized: *initializing*, then *initialized*. Before a topic's
state is deleted it is *deleting*. One record says all of it, and none of these values is ever changed.
Source: `ShareGroupStatePartitionMetadataInfo`, `GroupMetadataManager.combineInitMaps`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from coordinator.java.maps import JavaMap, JavaSet
from protocol.messages.group_records_share import (
    ShareGroupStatePartitionMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)

UNKNOWN_TOPIC = "<UNKNOWN>"
"""The name of a topic that isn't in the metadata, as Kafka writes it."""

NameOf = Callable[[bytes], str]
"""The name of a topic by its id; UNKNOWN_TOPIC where it isn't in the metadata."""

TopicsPartitions = Mapping[bytes, Iterable[int]]
"""Partitions by topic id."""


class InitTopic(NamedTuple):
    """Partitions of one topic (Kafka: `InitMapValue`)."""

    name: str
    partitions: JavaSet[int]
    since_ms: int
    """When the record was applied that says so."""


InitTopics = JavaMap[bytes, InitTopic]
"""By topic id."""


class StatePartitions(NamedTuple):
    """All that the record says. Kafka keeps no names of what is deleting: they are looked up each time."""

    initializing: InitTopics
    initialized: InitTopics
    deleting: JavaSet[bytes]

    @classmethod
    def none(cls) -> StatePartitions:
        """Of a group that has no such record."""
        return cls(JavaMap(), JavaMap(), JavaSet())

    @classmethod
    def read(cls, value: ShareGroupStatePartitionMetadataValue, now_ms: int) -> StatePartitions:
        """What a record says that is applied now."""
        deleting: JavaSet[bytes] = JavaSet()
        deleting.update(topic.topic_id for topic in value.deleting_topics)
        return cls(
            _read(value.initializing_topics, now_ms), _read(value.initialized_topics, now_ms), deleting
        )

    def written(self, name_of: NameOf) -> ShareGroupStatePartitionMetadataValue:
        """As the record has it."""
        return ShareGroupStatePartitionMetadataValue(
            initializing_topics=_written(self.initializing),
            initialized_topics=_written(self.initialized),
            deleting_topics=[
                TopicInfo(topic_id=topic_id, topic_name=name_of(topic_id)) for topic_id in self.deleting
            ],
        )

    @property
    def is_nothing(self) -> bool:
        return not (len(self.initializing) or len(self.initialized) or len(self.deleting))

    def known_since(self, oldest_ms: int) -> InitTopics:
        """What is initialized, or was initializing since then."""
        fresh: InitTopics = JavaMap()
        for topic_id, topic in self.initializing.items():
            if topic.since_ms > oldest_ms:
                fresh[topic_id] = topic
        return combined_topics(self.initialized, fresh)

    def begun(self, topics: InitTopics) -> StatePartitions:
        """With these initializing, too; what was to be deleted of them isn't any more."""
        initializing = combined_topics(self.initializing, topics)
        deleting: JavaSet[bytes] = JavaSet()
        deleting.update(topic_id for topic_id in self.deleting if topic_id not in initializing)
        return self._replace(initializing=initializing, deleting=deleting)

    def done(self, topics: InitTopics) -> StatePartitions:
        """These are initialized, and no longer initializing."""
        return self._replace(
            initializing=_without(self.initializing, {key: each.partitions for key, each in topics.items()}),
            initialized=combined_topics(self.initialized, topics),
        )

    def given_up(self, topics: TopicsPartitions) -> StatePartitions:
        """These are no longer initializing."""
        return self._replace(initializing=_without(self.initializing, topics))

    def without_topics(self, topic_ids: Iterable[bytes]) -> StatePartitions:
        """The topics are gone, and so is all that was of them."""
        gone = frozenset(topic_ids)
        deleting: JavaSet[bytes] = JavaSet()
        deleting.update(topic_id for topic_id in self.deleting if topic_id not in gone)
        return StatePartitions(_kept(self.initializing, gone), _kept(self.initialized, gone), deleting)

    def names_any(self, topic_ids: Iterable[bytes]) -> bool:
        """Whether one of the topics is in it."""
        return any(
            topic_id in self.initializing or topic_id in self.initialized or topic_id in self.deleting
            for topic_id in topic_ids
        )


def combined_topics(first: InitTopics, second: InitTopics) -> InitTopics:
    """The partitions of both; names and times are those of the second where it has the topic."""
    both: InitTopics = JavaMap()
    topic_ids: JavaSet[bytes] = JavaSet.of(first.keys())
    topic_ids.update(second)
    for topic_id in topic_ids:
        one, other = first.get(topic_id), second.get(topic_id)
        partitions: JavaSet[int] = JavaSet.of([*one.partitions] if one is not None else [])
        if other is not None:
            partitions.update(other.partitions)
        latest = other or one
        assert latest is not None
        both[topic_id] = InitTopic(latest.name, partitions, latest.since_ms)
    return both


def init_topics(topics: TopicsPartitions, name_of: NameOf, now_ms: int) -> InitTopics:
    """These partitions, as of now."""
    found: InitTopics = JavaMap()
    for topic_id, partitions in topics.items():
        found[topic_id] = InitTopic(name_of(topic_id), JavaSet.of([*partitions]), now_ms)
    return found


def _kept(topics: InitTopics, gone: frozenset[bytes]) -> InitTopics:
    kept: InitTopics = JavaMap()
    for topic_id, topic in topics.items():
        if topic_id not in gone:
            kept[topic_id] = topic
    return kept


def _without(topics: InitTopics, partitions: TopicsPartitions) -> InitTopics:
    left: InitTopics = JavaMap()
    for topic_id, topic in topics.items():
        taken = frozenset(partitions.get(topic_id, ()))
        if topic_id not in partitions:
            left[topic_id] = topic
        elif rest := [each for each in topic.partitions if each not in taken]:
            left[topic_id] = topic._replace(partitions=JavaSet.of(rest))
    return left


def _read(topics: Iterable[TopicPartitionsInfo], now_ms: int) -> InitTopics:
    found: InitTopics = JavaMap()
    for topic in topics:
        found[topic.topic_id] = InitTopic(topic.topic_name, JavaSet.of(topic.partitions), now_ms)
    return found


def _written(topics: InitTopics) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id=topic_id, topic_name=topic.name, partitions=[*topic.partitions])
        for topic_id, topic in topics.items()
    ]

"""A topology beside the topics that are there: how many tasks there are, and what internal topics have to be made.

It is in memory alone, and worked out anew when topics change. Source: `InternalTopicManager`, `ConfiguredTopology`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from coordinator.group.known_topics import KnownTopics
from coordinator.group.streams.partition_counts import PartitionCounts, TopicsDontFitError, copartitioned
from coordinator.group.streams.states import StatusCode
from coordinator.group.streams.tasks import by_name
from coordinator.group.streams.topology import StreamsTopology
from coordinator.java.maps import JavaMap, JavaSet
from protocol.errors import Error, KafkaError
from protocol.messages.group_records import Subtopology, TopicInfo
from protocol.messages.groups_streams import DescribedSubtopology, DescribedTopology, KeyValue, Status
from protocol.messages.groups_streams import TopicInfo as DescribedTopicInfo
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig

MOST_NAMED = 3
"""Topics that are missing, in a status."""


class InternalTopic(NamedTuple):
    """`replication_factor` 0: the broker's default."""

    name: str
    partitions: int
    replication_factor: int
    configs: JavaMap[str, str]

    def to_create(self) -> CreatableTopic:
        return CreatableTopic(
            name=self.name,
            num_partitions=self.partitions,
            replication_factor=self.replication_factor or -1,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in self.configs.items()],
        )

    def described(self) -> DescribedTopicInfo:
        return DescribedTopicInfo(
            name=self.name,
            partitions=self.partitions,
            replication_factor=self.replication_factor,
            topic_configs=[KeyValue(key=name, value=value) for name, value in self.configs.items()],
        )


class ConfiguredSubtopology(NamedTuple):
    """`task_count` tasks, one for each partition of its largest input."""

    task_count: int
    source_topics: JavaSet[str]
    repartition_source_topics: JavaMap[str, InternalTopic]
    repartition_sink_topics: JavaSet[str]
    state_changelog_topics: JavaMap[str, InternalTopic]

    @property
    def is_stateful(self) -> bool:
        return bool(len(self.state_changelog_topics))

    def inputs(self) -> JavaSet[str]:
        names = JavaSet.of([*self.source_topics])
        names.update(self.repartition_source_topics)
        return names

    def described(self, subtopology_id: str) -> DescribedSubtopology:
        return DescribedSubtopology(
            subtopology_id=subtopology_id,
            source_topics=sorted(self.source_topics, key=by_name),
            repartition_sink_topics=sorted(self.repartition_sink_topics, key=by_name),
            state_changelog_topics=_described(self.state_changelog_topics),
            repartition_source_topics=_described(self.repartition_source_topics),
        )


def _described(topics: JavaMap[str, InternalTopic]) -> list[DescribedTopicInfo]:
    return [topics[name].described() for name in sorted(topics, key=by_name)]


class ConfiguredTopology(NamedTuple):
    """`subtopologies` in the order of their ids; there are none where the topics don't fit. `problem`: why it isn't
    ready; `to_create`: the internal topics that are missing, by name."""

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology]
    to_create: Mapping[str, CreatableTopic]
    problem: Status | None

    @property
    def is_ready(self) -> bool:
        return self.problem is None

    def described(self) -> DescribedTopology:
        return DescribedTopology(
            epoch=self.epoch,
            subtopologies=[
                subtopology.described(subtopology_id)
                for subtopology_id, subtopology in self.subtopologies.items()
            ],
        )


def configure(topology: StreamsTopology, topics: KnownTopics) -> ConfiguredTopology:
    """Raises KafkaError: STREAMS_INVALID_TOPOLOGY, and UNKNOWN_SERVER_ERROR where a number makes no sense."""
    for subtopology in topology.subtopologies.values():
        copartitioned(subtopology)
    try:
        _check_sources(topology, topics)
        counts = PartitionCounts(topology, topics)
        counts.decide()
        subtopologies = {
            subtopology_id: _configured(topology.subtopologies[subtopology_id], counts)
            for subtopology_id in sorted(topology.subtopologies, key=by_name)
        }
        missing = _missing(subtopologies.values(), topology, topics)
    except TopicsDontFitError as error:
        unfit = Status(status_code=error.code, status_detail=error.detail)
        return ConfiguredTopology(topology.epoch, {}, {}, unfit)
    problem = None
    if len(missing):
        detail = f"Internal topics are missing: {_named([*missing])}"
        problem = Status(status_code=StatusCode.MISSING_INTERNAL_TOPICS, status_detail=detail)
    return ConfiguredTopology(topology.epoch, subtopologies, dict(missing.items()), problem)


def _check_sources(topology: StreamsTopology, topics: KnownTopics) -> None:
    missing = {
        name
        for subtopology in topology.subtopologies.values()
        for name in subtopology.source_topics
        if topics.by_name(name) is None
    }
    if missing:
        names = _named(sorted(missing, key=by_name))
        raise TopicsDontFitError(StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {names} are missing.")


def _configured(subtopology: Subtopology, counts: PartitionCounts) -> ConfiguredSubtopology:
    task_count = counts.most_of(subtopology)
    if task_count is None or task_count <= 0:
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR)  # Kafka: an IllegalArgumentException
    return ConfiguredSubtopology(
        task_count,
        JavaSet.of(subtopology.source_topics),
        _internal_topics(subtopology.repartition_source_topics, counts),
        JavaSet.of(subtopology.repartition_sink_topics),
        _internal_topics(subtopology.state_changelog_topics, counts),
    )


def _internal_topics(topics: Iterable[TopicInfo], counts: PartitionCounts) -> JavaMap[str, InternalTopic]:
    found: JavaMap[str, InternalTopic] = JavaMap()
    for topic in topics:
        configs: JavaMap[str, str] = JavaMap()
        for each in topic.topic_configs:
            configs[each.key] = each.value
        partitions = topic.partitions or counts.decided.get(topic.name, 0)
        is_twice = topic.name in found or len(configs) < len(topic.topic_configs)
        if is_twice or partitions < 1:
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR)  # Kafka: an IllegalStateException
        found[topic.name] = InternalTopic(topic.name, partitions, topic.replication_factor, configs)
    return found


def _missing(
    subtopologies: Iterable[ConfiguredSubtopology], topology: StreamsTopology, topics: KnownTopics
) -> JavaMap[str, CreatableTopic]:
    """Raises TopicsDontFitError for one that is there with another number of partitions."""
    missing: JavaMap[str, CreatableTopic] = JavaMap()
    for subtopology in subtopologies:
        for internal in (subtopology.repartition_source_topics, subtopology.state_changelog_topics):
            for each in internal.values():
                missing[each.name] = each.to_create()
    for name in topology.required:
        topic = topics.by_name(name)
        expected = None if topic is None else missing.pop(name)
        if topic is not None and expected is not None and topic.partition_count != expected.num_partitions:
            raise TopicsDontFitError(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: "
                f"expected {expected.num_partitions}, found {topic.partition_count}",
            )
    return missing


def _named(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    shown = ", ".join(names[:MOST_NAMED])
    return f"{shown} and {more} additional topics" if more > 0 else shown

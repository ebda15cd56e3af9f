"""The topology of a streams application, as its members send it and the group's record keeps it.

Source: `StreamsTopology`, `StreamsCoordinatorRecordHelpers.convertToStreamsGroupTopologyRecord`.
"""

from __future__ import annotations

from coordinator.group.streams.tasks import by_name
from coordinator.java.maps import JavaMap, JavaSet
from protocol.errors import CodecError, Error, KafkaError
from protocol.messages import groups_streams
from protocol.messages.group_records import (
    CopartitionGroup,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicConfig,
    TopicInfo,
)
from protocol.messages.groups_streams import DescribedSubtopology, DescribedTopology, KeyValue


class StreamsTopology:
    """`subtopologies` by id, `sources` whose input a topic is, `required` the topics that have to be there: sources,
    repartition topics that are read, changelogs."""

    __slots__ = ("epoch", "required", "required_names", "sources", "subtopologies", "value")

    def __init__(self, value: StreamsGroupTopologyValue) -> None:
        """Raises KafkaError (UNKNOWN_SERVER_ERROR) for an epoch below 0, and a subtopology that is there twice."""
        if value.epoch < 0:
            raise _makes_no_sense(f"a topology of epoch {value.epoch}")  # Kafka: an IllegalArgumentException
        self.value = value
        self.epoch = value.epoch
        self.subtopologies: JavaMap[str, Subtopology] = JavaMap()
        for subtopology in value.subtopologies:
            if subtopology.subtopology_id in self.subtopologies:
                twice = f"a topology that has subtopology {subtopology.subtopology_id} twice"
                raise _makes_no_sense(twice)  # Kafka: an IllegalStateException
            self.subtopologies[subtopology.subtopology_id] = subtopology
        self.sources: dict[str, str] = {}
        self.required: JavaSet[str] = JavaSet()
        for subtopology in self.subtopologies.values():
            inputs = source_names(subtopology)
            self.sources |= dict.fromkeys(inputs, subtopology.subtopology_id)
            self.required.update(inputs)
            self.required.update(topic.name for topic in subtopology.state_changelog_topics)
        self.required_names = frozenset(self.required)

    def is_same(self, other: StreamsTopology) -> bool:
        """Whether their epochs and subtopologies are equal, whatever the order of these; inside of one the order of
        all counts."""
        return self.epoch == other.epoch and self.subtopologies == other.subtopologies

    def described(self) -> DescribedTopology:
        """As it was sent, for StreamsGroupDescribe."""
        return DescribedTopology(
            epoch=self.epoch,
            subtopologies=[
                _described(self.subtopologies[subtopology_id])
                for subtopology_id in sorted(self.subtopologies, key=by_name)
            ],
        )


def _makes_no_sense(why: str) -> KafkaError:
    """A client isn't told why, as by Kafka; the log is, where a record says it."""
    error = KafkaError(Error.UNKNOWN_SERVER_ERROR)
    error.__cause__ = CodecError(why)
    return error


def source_names(subtopology: Subtopology) -> list[str]:
    """All that a subtopology reads."""
    return [*subtopology.source_topics, *(topic.name for topic in subtopology.repartition_source_topics)]


def _described(subtopology: Subtopology) -> DescribedSubtopology:
    return DescribedSubtopology(
        subtopology_id=subtopology.subtopology_id,
        source_topics=sorted(subtopology.source_topics, key=by_name),
        repartition_sink_topics=sorted(subtopology.repartition_sink_topics, key=by_name),
        state_changelog_topics=_described_topics(subtopology.state_changelog_topics),
        repartition_source_topics=_described_topics(subtopology.repartition_source_topics),
    )


def _described_topics(topics: list[TopicInfo]) -> list[groups_streams.TopicInfo]:
    return [
        groups_streams.TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[KeyValue(key=each.key, value=each.value) for each in topic.topic_configs],
        )
        for topic in sorted(topics, key=lambda topic: by_name(topic.name))
    ]


def topology_value(topology: groups_streams.Topology) -> StreamsGroupTopologyValue:
    """What of a heartbeat goes into the record."""
    return StreamsGroupTopologyValue(
        epoch=topology.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=each.source_topics,
                source_topic_regex=each.source_topic_regex,
                state_changelog_topics=_recorded(each.state_changelog_topics),
                repartition_sink_topics=each.repartition_sink_topics,
                repartition_source_topics=_recorded(each.repartition_source_topics),
                copartition_groups=[
                    CopartitionGroup(
                        source_topics=group.source_topics,
                        source_topic_regex=group.source_topic_regex,
                        repartition_source_topics=group.repartition_source_topics,
                    )
                    for group in each.copartition_groups
                ],
            )
            for each in topology.subtopologies
        ],
    )


def _recorded(topics: list[groups_streams.TopicInfo]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[TopicConfig(key=each.key, value=each.value) for each in topic.topic_configs],
        )
        for topic in topics
    ]

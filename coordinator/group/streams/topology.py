"""The topology of a streams application: as its members send it, and compared with the existing topics.

The group's record keeps it as sent. The numbers of tasks, the numbers of partitions of internal topics, and
which of these have to be created are only in memory, and computed anew when topics change.

Source: `StreamsTopology`, `StreamsCoordinatorRecordHelpers.convertToStreamsGroupTopologyRecord`,
`InternalTopicManager`, `ConfiguredTopology`, `RepartitionTopics`, `CopartitionedTopicsEnforcer`, `ChangelogTopics`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from coordinator.group.ports import KnownTopics
from coordinator.group.streams.states import StatusCode
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
from protocol.messages.groups_streams import DescribedSubtopology, DescribedTopology, KeyValue, Status
from protocol.messages.groups_streams import TopicInfo as DescribedTopicInfo
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig

# --- as sent and recorded -------------------------------------------------------------------------------------


class StreamsTopology:
    """A topology as sent. `subtopologies` are by id, `sources` by the topic that they read. `required` are
    the topics that have to exist: sources, repartition topics that are read, changelogs."""

    __slots__ = ("epoch", "required", "required_names", "sources", "subtopologies", "value")

    def __init__(self, value: StreamsGroupTopologyValue) -> None:
        """Raises KafkaError (UNKNOWN_SERVER_ERROR) for an epoch below 0, or a subtopology that is there twice."""
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
        """True if epochs and subtopologies are equal. The order of subtopologies doesn't matter, but order
        within one does."""
        return self.epoch == other.epoch and self.subtopologies == other.subtopologies

    def described(self) -> DescribedTopology:
        """The topology as sent, for StreamsGroupDescribe."""
        return DescribedTopology(
            epoch=self.epoch,
            subtopologies=[
                _described(self.subtopologies[subtopology_id])
                for subtopology_id in sorted(self.subtopologies, key=by_name)
            ],
        )


def _makes_no_sense(why: str) -> KafkaError:
    """An error for a client, which like Kafka doesn't tell why. If it comes from a record, the log line does."""
    error = KafkaError(Error.UNKNOWN_SERVER_ERROR)
    error.__cause__ = CodecError(why)
    return error


def source_names(subtopology: Subtopology) -> list[str]:
    """All topics that a subtopology reads."""
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
    """The part of a heartbeat's topology that goes into the record."""
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


# --- numbers of partitions of internal topics: repartition topics, copartitioned ones, changelogs --------------


class TopicsDontFitError(Exception):
    """The existing topics don't fit the topology (Kafka: `TopicConfigurationException`)."""

    def __init__(self, code: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


def invalid_topology(text: str) -> KafkaError:
    return KafkaError(Error.STREAMS_INVALID_TOPOLOGY, text)


class PartitionCounts:
    """The numbers of partitions of existing topics, and of those that have been decided."""

    def __init__(self, topology: StreamsTopology, topics: KnownTopics) -> None:
        self._subtopologies = topology.subtopologies.values()
        self._topics = topics
        self.decided: dict[str, int] = {}

    def find(self, name: str) -> int | None:
        topic = self._topics.by_name(name)
        return self.decided.get(name) if topic is None else topic.partition_count

    def of(self, name: str) -> int:
        """Raises KafkaError (UNKNOWN_SERVER_ERROR) if it can't be known (Kafka: an IllegalStateException)."""
        count = self.find(name)
        if count is None:
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
        return count

    def most_of(self, subtopology: Subtopology) -> int | None:
        """The largest number among all topics that a subtopology reads, which is its number of tasks. None if
        it reads nothing."""
        return max(map(self.of, source_names(subtopology)), default=None)

    def decide(self) -> None:
        """Decide the numbers for all internal topics. Raises TopicsDontFitError, KafkaError
        (STREAMS_INVALID_TOPOLOGY)."""
        self.decided |= self._repartition_counts()
        self._match_copartitioned()
        changelogs: dict[str, int] = {}
        for subtopology in self._subtopologies:
            most = self.most_of(subtopology)
            if most is None:
                raise invalid_topology(f"No source topics found for subtopology {subtopology.subtopology_id}")
            changelogs |= {topic.name: most for topic in subtopology.state_changelog_topics}
        self.decided |= changelogs

    # --- repartition topics ---------------------------------------------------------------------------------

    def _repartition_counts(self) -> dict[str, int]:
        """The given numbers, or else that of the largest input of the subtopology that writes there."""
        counts = {
            topic.name: topic.partitions
            for subtopology in self._subtopologies
            for topic in subtopology.repartition_source_topics
            if topic.partitions != 0
        }
        open_ends = True
        while open_ends:
            open_ends, found_some = False, False
            for subtopology in self._subtopologies:
                for sink in subtopology.repartition_sink_topics:
                    if sink in counts:
                        continue
                    count = self._largest_input(subtopology, counts)
                    if count is None:
                        open_ends = True
                    else:
                        counts[sink] = count
                        found_some = True
            if open_ends and not found_some:
                raise invalid_topology(
                    "Failed to compute number of partitions for all repartition topics. "
                    "There may be loops in the topology that cannot be resolved."
                )
        for subtopology in self._subtopologies:
            if any(topic.name not in counts for topic in subtopology.repartition_source_topics):
                raise invalid_topology(
                    "Failed to compute number of partitions for all repartition topics, because "
                    "a repartition source topic is never used as a sink topic."
                )
        return counts

    def _largest_input(self, subtopology: Subtopology, counts: Mapping[str, int]) -> int | None:
        """The largest input, as far as it is known."""
        known = [counts.get(topic.name) for topic in subtopology.repartition_source_topics]
        known += map(self.find, subtopology.source_topics)
        return max((count for count in known if count is not None), default=None)

    # --- topics that have to have the same number -----------------------------------------------------------

    def _match_copartitioned(self) -> None:
        fixed: set[str] = set()
        flexible: set[str] = set()
        for subtopology in self._subtopologies:
            for topic in subtopology.repartition_source_topics:
                (fixed if topic.partitions else flexible).add(topic.name)
        groups = [copartitioned(subtopology) for subtopology in self._subtopologies]
        for group in [group for of_one in groups for group in of_one]:
            if len(group):
                self.decided |= self._matched(group, fixed, flexible)

    def _matched(
        self, group: JavaSet[str], fixed: Collection[str], flexible: Collection[str]
    ) -> dict[str, int]:
        repartitions = self._of_all(name for name in group if name in fixed or name in flexible)
        others = self._of_all(name for name in group if name not in repartitions)
        if len(others):
            count = _the_same(others)
        elif fixed:
            # Kafka checks those of the whole topology.
            counts = {self.of(name) for name in fixed}
            if len(counts) > 1:
                raise _differ(repartitions)
            (count,) = counts
        else:
            count = max(repartitions.values())
            if count == 0:
                raise invalid_topology(
                    "All topics in the copartition group had undefined partition number: "
                    f"[{', '.join(repartitions)}]"
                )
        for name, given in repartitions.items():
            if name in fixed and given != count:
                raise TopicsDontFitError(
                    StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Number of partitions [{given}] of repartition topic [{name}] "
                    f"doesn't match number of partitions [{count}] of the source topic.",
                )
        return dict.fromkeys(repartitions, count)

    def _of_all(self, names: Iterable[str]) -> JavaMap[str, int]:
        counts: JavaMap[str, int] = JavaMap()
        for name in names:
            counts[name] = self.of(name)
        return counts


def copartitioned(subtopology: Subtopology) -> list[JavaSet[str]]:
    """The topics of each of its copartition groups.

    Raises KafkaError (UNKNOWN_SERVER_ERROR) for an index without a topic (Kafka: an IndexOutOfBoundsException).
    """
    sources = subtopology.source_topics
    repartitions = [topic.name for topic in subtopology.repartition_source_topics]
    groups = []
    for group in subtopology.copartition_groups:
        names: JavaSet[str] = JavaSet()
        for indexes, of in ((group.source_topics, sources), (group.repartition_source_topics, repartitions)):
            if not all(0 <= index < len(of) for index in indexes):
                raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
            names.update([of[index] for index in indexes])
        groups.append(names)
    return groups


def _the_same(counts: JavaMap[str, int]) -> int:
    first = counts.values()[0]
    if any(count != first for count in counts.values()):
        raise _differ(counts)
    return first


def _differ(counts: JavaMap[str, int]) -> TopicsDontFitError:
    shown = ", ".join(f"{name}={counts[name]}" for name in sorted(counts, key=by_name))
    return TopicsDontFitError(
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        f"Following topics do not have the same number of partitions: [{{{shown}}}]",
    )


# --- compared with the existing topics ------------------------------------------------------------------------

MOST_NAMED = 3
"""The most missing topics to name in a status."""


class InternalTopic(NamedTuple):
    """An internal topic. `replication_factor` 0 means the broker's default."""

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
    """A subtopology with `task_count` tasks, one for each partition of its largest input."""

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
            state_changelog_topics=_described_configured(self.state_changelog_topics),
            repartition_source_topics=_described_configured(self.repartition_source_topics),
        )


def _described_configured(topics: JavaMap[str, InternalTopic]) -> list[DescribedTopicInfo]:
    return [topics[name].described() for name in sorted(topics, key=by_name)]


class ConfiguredTopology(NamedTuple):
    """A topology compared with the existing topics.

    `subtopologies` are in the order of their ids, and empty if the topics don't fit. `problem` is why it
    isn't ready. `to_create` has the missing internal topics, by name.
    """

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
    """Compare a topology with the existing topics.

    Raises KafkaError: STREAMS_INVALID_TOPOLOGY, and UNKNOWN_SERVER_ERROR for an impossible number.
    """
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
    """Raises TopicsDontFitError if one exists with another number of partitions."""
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

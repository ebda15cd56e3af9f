"""How many partitions the internal topics of a topology have: those that repartition, those that are written together,
changelogs.

Source: `RepartitionTopics`, `CopartitionedTopicsEnforcer`, `ChangelogTopics`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from coordinator.group.known_topics import KnownTopics
from coordinator.group.streams.states import StatusCode
from coordinator.group.streams.tasks import by_name
from coordinator.group.streams.topology import StreamsTopology, source_names
from coordinator.java.maps import JavaMap, JavaSet
from protocol.errors import Error, KafkaError
from protocol.messages.group_records import Subtopology


class TopicsDontFitError(Exception):
    """The topics that are there don't fit the topology (Kafka: `TopicConfigurationException`)."""

    def __init__(self, code: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


def invalid_topology(text: str) -> KafkaError:
    return KafkaError(Error.STREAMS_INVALID_TOPOLOGY, text)


class PartitionCounts:
    """Of the topics that are there, and of those that are decided on."""

    def __init__(self, topology: StreamsTopology, topics: KnownTopics) -> None:
        self._subtopologies = topology.subtopologies.values()
        self._topics = topics
        self.decided: dict[str, int] = {}

    def find(self, name: str) -> int | None:
        topic = self._topics.by_name(name)
        return self.decided.get(name) if topic is None else topic.partition_count

    def of(self, name: str) -> int:
        """Raises KafkaError (UNKNOWN_SERVER_ERROR) where it can't be known (Kafka: an IllegalStateException)."""
        count = self.find(name)
        if count is None:
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
        return count

    def most_of(self, subtopology: Subtopology) -> int | None:
        """Of all that a subtopology reads: as many tasks it has. None where it reads nothing."""
        return max(map(self.of, source_names(subtopology)), default=None)

    def decide(self) -> None:
        """For all internal topics. Raises TopicsDontFitError, KafkaError (STREAMS_INVALID_TOPOLOGY)."""
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
        """As they are given, else as many as the largest input has of the subtopology that writes there."""
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
        """As far as it is known."""
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
            # Kafka looks at those of the whole topology.
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
    """The topics of each of its copartition groups. Raises KafkaError (UNKNOWN_SERVER_ERROR) for an index that there
    is no topic of (Kafka: an IndexOutOfBoundsException)."""
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

"""Where which partitions are to be asked for: what members that answer questions are told of each other.

Source: `StreamsGroup.buildEndpointToPartitions`, `EndpointToPartitionsManager`. A conscious difference: while the
topics don't fit the topology nobody is listed, and a topic that isn't there is left out; Kafka answers
UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coordinator.group.known_topics import KnownTopics
from coordinator.group.streams.configured_topology import ConfiguredSubtopology, ConfiguredTopology
from coordinator.group.streams.group import StreamsGroup
from coordinator.group.streams.member import StreamsMember
from protocol.messages.groups_streams import Endpoint, EndpointToPartitions, TopicPartition


def partitions_by_endpoint(
    group: StreamsGroup, asking: StreamsMember, configured: ConfiguredTopology, topics: KnownTopics
) -> list[EndpointToPartitions]:
    """Of all members that have an endpoint; who asks comes last."""
    if not configured.subtopologies:
        return []
    members = [member for member_id, member in group.members.items() if member_id != asking.member_id]
    return [
        EndpointToPartitions(
            user_endpoint=Endpoint(host=member.endpoint.host, port=member.endpoint.port),
            active_partitions=_partitions(member.assigned.active.items(), configured.subtopologies, topics),
            standby_partitions=_partitions(member.assigned.standby.items(), configured.subtopologies, topics),
        )
        for member in (*members, asking)
        if member.endpoint is not None
    ]


def _partitions(
    tasks: Iterable[tuple[str, Iterable[int]]],
    subtopologies: Mapping[str, ConfiguredSubtopology],
    topics: KnownTopics,
) -> list[TopicPartition]:
    """All that these tasks read. A topic with fewer partitions than there are tasks has its first ones named."""
    found = []
    for subtopology_id, task_ids in tasks:
        partitions = [*task_ids]
        subtopology = subtopologies.get(subtopology_id)
        for name in () if subtopology is None else subtopology.inputs():
            topic = topics.by_name(name)
            if topic is None:
                continue
            shown = partitions
            if topic.partition_count < len(partitions):
                shown = sorted(partitions)[: topic.partition_count]
            found.append(TopicPartition(topic=name, partitions=shown))
    return found

"""Elections and reassignments of partitions: from what is wanted and the image to records, or to an error.

Pure functions (Kafka: `ReplicationControlManager`). One node has one replica of each partition, so there is little
to decide; only a folder that a cluster of several nodes left has more.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from broker.controller.assigned_directories import is_online
from broker.controller.image import NO_LEADER, ClusterImage, PartitionImage
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.wire.schema import Message

PREFERRED, UNCLEAN = 0, 1


class Electorate(NamedTuple):
    """Who can lead: this node, the partitions that are in one of its directories, `online` being their ids."""

    node_id: int
    online: Collection[bytes]


def elected(
    image: ClusterImage, topic: str, index: int, election_type: int, electorate: Electorate
) -> list[Message]:
    """The record of an election.

    Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED where the leader is who it should be,
    PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE (Kafka: `PartitionChangeBuilder.electLeader`).
    """
    node_id, online = electorate
    partition = partition_named(image, topic, index)
    preferred = partition.replicas[0] if partition.replicas else NO_LEADER
    if partition.leader == preferred or (election_type == UNCLEAN and partition.leader != NO_LEADER):
        raise KafkaError(
            Error.ELECTION_NOT_NEEDED, f"The leader of {topic}-{index} is the one it should have."
        )
    eligible = partition.isr or partition.elr or partition.last_known_elr
    can_lead = node_id in partition.replicas and is_online(partition, node_id, online)
    if election_type == PREFERRED and (
        not can_lead or node_id not in eligible or partition.leader == node_id
    ):
        raise KafkaError(Error.PREFERRED_LEADER_NOT_AVAILABLE)
    if not can_lead:
        raise KafkaError(Error.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    return [
        records.PartitionChangeRecord(
            partition_id=index,
            topic_id=image.topics[topic].topic_id,
            leader=node_id,
            isr=[node_id],
            eligible_leader_replicas=[] if partition.elr else None,
            last_known_elr=[] if partition.last_known_elr else None,
        )
    ]


def reassigned(
    image: ClusterImage,
    topic: str,
    index: int,
    replicas: list[int] | None,
    electorate: Electorate,
    *,
    allow_factor_change: bool,
) -> list[Message]:
    """The record of a reassignment, none where nothing is to do; `replicas` None cancels one that is under way.

    The node leads the partition from then on, unless its directory has failed.

    Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, NO_REASSIGNMENT_IN_PROGRESS, INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR.
    """
    node_id, online = electorate
    partition = partition_named(image, topic, index)
    if replicas is None:
        raise KafkaError(Error.NO_REASSIGNMENT_IN_PROGRESS)
    _check_target(image, replicas)
    if not allow_factor_change and len(replicas) != len(partition.replicas):
        raise KafkaError(
            Error.INVALID_REPLICATION_FACTOR,
            f"{topic}-{index} has {len(partition.replicas)} replica(s), and {len(replicas)} are wanted.",
        )
    if replicas == partition.replicas:
        return []
    if replicas != [node_id] or node_id not in partition.replicas:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"Only broker {node_id} can have replicas: it is the only one here.",
        )
    place = partition.replicas.index(node_id)
    leads = is_online(partition, node_id, online)
    elr = [] if leads or node_id not in partition.elr else [node_id]
    return [
        records.PartitionChangeRecord(
            partition_id=index,
            topic_id=image.topics[topic].topic_id,
            replicas=[node_id],
            isr=[] if elr else [node_id],
            leader=node_id if leads else NO_LEADER,
            eligible_leader_replicas=None if elr == partition.elr else elr,
            last_known_elr=[] if leads and partition.last_known_elr else None,
            directories=partition.directories[place : place + 1],
        )
    ]


def partition_named(image: ClusterImage, topic: str, index: int) -> PartitionImage:
    """Raises KafkaError (UNKNOWN_TOPIC_OR_PARTITION)."""
    found = image.topics.get(topic)
    if found is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
    partition = found.partitions.get(index)
    if partition is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}")
    return partition


def _check_target(image: ClusterImage, replicas: list[int]) -> None:
    if not replicas:
        raise KafkaError(Error.INVALID_REPLICA_ASSIGNMENT, "The assignment has an empty replica list.")
    if len(set(replicas)) != len(replicas):
        raise KafkaError(Error.INVALID_REPLICA_ASSIGNMENT, "The assignment has a broker more than once.")
    for broker_id in replicas:
        if broker_id not in image.brokers:
            raise KafkaError(
                Error.INVALID_REPLICA_ASSIGNMENT,
                f"The assignment has broker {broker_id}, which is not registered.",
            )

"""Offsets of partitions, from their leaders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from cli.client.answers import check
from cli.client.cluster import KafkaCluster
from protocol.errors import Error
from protocol.messages.metadata import MetadataResponseTopic
from protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

EARLIEST: Final = -2
LATEST_OFFSET: Final = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1

Partition = tuple[str, int]
NO_LEADER: Final = -1


def leaders_of(topics: Iterable[MetadataResponseTopic]) -> dict[Partition, int]:
    """Return each partition's leader, or NO_LEADER."""
    return {
        (topic.name or "", each.partition_index): each.leader_id
        for topic in topics
        for each in topic.partitions
    }


def list_offsets(
    cluster: KafkaCluster,
    wanted: Mapping[Partition, int],
    isolation: int = READ_UNCOMMITTED,
    known_leaders: Mapping[Partition, int] | None = None,
) -> dict[Partition, int]:
    """Return each partition's offset at its timestamp (ms, EARLIEST or LATEST_OFFSET), or -1 if no record is that late.
    The latest for READ_COMMITTED is the last stable offset, for READ_UNCOMMITTED the high watermark. A partition
    without a leader, or one that is gone, is missing from the answer. `known_leaders` save a question while they are
    right."""
    found: dict[Partition, int] = {}
    known = known_leaders

    def ask() -> tuple[int, Partition | None]:
        nonlocal known
        left = [partition for partition in wanted if partition not in found]
        leaders: Mapping[Partition, int] = {}
        if known is not None:
            leaders, known = known, None
        elif left:
            leaders = leaders_of(cluster.topics_left(sorted({topic for topic, _ in left})))
        worst: tuple[int, Partition | None] = (Error.NONE, None)
        by_node: dict[int, list[Partition]] = defaultdict(list)
        for partition in left:
            if leaders.get(partition, NO_LEADER) != NO_LEADER:
                by_node[leaders[partition]].append(partition)
        for node, partitions in by_node.items():
            for partition, (error_code, offset) in _of_node(
                cluster, node, partitions, wanted, isolation
            ).items():
                if error_code == Error.UNKNOWN_TOPIC_OR_PARTITION:
                    continue  # it is being deleted
                if error_code:
                    worst = (error_code, partition)
                else:
                    found[partition] = offset
        return worst

    error_code, partition = cluster.until_passed(ask, lambda answer: answer[0])
    if partition is not None:
        raise_for(partition, error_code)
    return found


def stable_and_ends(
    cluster: KafkaCluster,
    partitions: Iterable[Partition],
    known_leaders: Mapping[Partition, int] | None = None,
) -> tuple[dict[Partition, int], dict[Partition, int]]:
    """Return last stable offsets and ends. The end is asked first, so a difference comes from an open transaction and
    not from later records. A last stable offset beyond the end shows that the log goes on to there."""
    asked = [*partitions]
    wanted = dict.fromkeys(asked, LATEST_OFFSET)
    ends = list_offsets(cluster, wanted, READ_UNCOMMITTED, known_leaders)
    stable = list_offsets(cluster, wanted, READ_COMMITTED, known_leaders)
    return stable, {partition: max(end, stable.get(partition, end)) for partition, end in ends.items()}


def that_are_there(cluster: KafkaCluster, partitions: Iterable[Partition]) -> list[Partition]:
    """Leave out partitions that are gone: a group may have offsets of a deleted topic."""
    asked = [*partitions]
    there = leaders_of(cluster.topics_left(sorted({topic for topic, _ in asked}))) if asked else {}
    return [partition for partition in asked if partition in there]


def raise_for(partition: Partition, error_code: int) -> None:
    """Raise CommandError for a partition's error."""
    check(error_code, None, f"{partition[0]}-{partition[1]}")


def _of_node(
    cluster: KafkaCluster,
    node: int,
    partitions: Iterable[Partition],
    wanted: Mapping[Partition, int],
    isolation: int,
) -> dict[Partition, tuple[int, int]]:
    topics: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for topic, index in partitions:
        topics[topic].append(ListOffsetsPartition(partition_index=index, timestamp=wanted[topic, index]))
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=name, partitions=of_it) for name, of_it in topics.items()],
    )
    answer = cluster.ask(request, ListOffsetsResponse, node)
    return {
        (topic.name, each.partition_index): (each.error_code, each.offset)
        for topic in answer.topics
        for each in topic.partitions
    }

"""Pieces of partitions' logs, as leaders give them to consumers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from cli.client.answers import the_one
from cli.client.cluster import KafkaCluster
from cli.client.offsets import NO_LEADER, READ_UNCOMMITTED, Partition, leaders_of, raise_for
from protocol.errors import Error
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

LAST_WITH_NAMES: Final = 12
"""Fetch from v13 on names topics by id."""


def fetch(
    cluster: KafkaCluster,
    partition: Partition,
    offset: int,
    max_bytes: int,
    isolation: int = READ_UNCOMMITTED,
) -> PartitionData:
    """Return what is there from the offset on, up to `max_bytes` or one batch, without waiting. For a reader of
    committed records it ends at the last stable offset and comes with the aborted transactions. Raises CommandError."""
    data = fetch_or_error(cluster, partition, offset, max_bytes, isolation)
    raise_for(partition, data.error_code)
    return data


def fetch_or_error(
    cluster: KafkaCluster, partition: Partition, offset: int, max_bytes: int, isolation: int
) -> PartitionData:
    """Like `fetch`, but leave a lasting error of the partition to the caller."""
    topic, index = partition

    def ask() -> PartitionData:
        leader = leaders_of(cluster.topics([topic])).get(partition)
        if leader is None:
            raise_for(partition, Error.UNKNOWN_TOPIC_OR_PARTITION)
        if leader is None or leader == NO_LEADER:
            return PartitionData(error_code=Error.LEADER_NOT_AVAILABLE)
        answer = cluster.ask(
            _request({partition: offset}, max_bytes, 0, isolation),
            FetchResponse,
            leader,
            at_most=LAST_WITH_NAMES,
        )
        if answer.error_code:
            return PartitionData(error_code=answer.error_code)
        of_topic = the_one(answer.responses, f"topic {topic}")
        return the_one(of_topic.partitions, f"{topic}-{index}")

    return cluster.until_passed(ask, lambda answer: answer.error_code)


def fetch_from_leader(
    cluster: KafkaCluster, leader: int, offsets: Mapping[Partition, int], max_bytes: int, max_wait_ms: int
) -> dict[Partition, PartitionData]:
    """Return what is there from these offsets on in partitions that this node leads, up to `max_bytes` in all. It
    returns as soon as there is anything, or after the wait. The caller handles errors of partitions. Raises
    CommandError."""
    answer = cluster.ask(
        _request(offsets, max_bytes, max_wait_ms, READ_UNCOMMITTED),
        FetchResponse,
        leader,
        at_most=LAST_WITH_NAMES,
    )
    if answer.error_code:
        return {partition: PartitionData(error_code=answer.error_code) for partition in offsets}
    return {
        (of_topic.topic, each.partition_index): each
        for of_topic in answer.responses
        for each in of_topic.partitions
    }


def _request(
    offsets: Mapping[Partition, int], max_bytes: int, max_wait_ms: int, isolation: int
) -> FetchRequest:
    topics: dict[str, list[FetchPartition]] = defaultdict(list)
    for (topic, index), offset in offsets.items():
        topics[topic].append(
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
        )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1 if max_wait_ms else 0,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=[FetchTopic(topic=name, partitions=of_it) for name, of_it in topics.items()],
    )

"""A piece of a partition's log, as its leader gives it to a consumer."""

from __future__ import annotations

from typing import Final

from cli.client.answers import the_one
from cli.client.cluster import KafkaCluster, until_passed
from cli.client.offsets import NO_LEADER, Partition, leaders_of, raise_for
from protocol.errors import Error
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

LAST_WITH_NAMES: Final = 12
"""Fetch from v13 on names topics by their ids."""


def fetch(cluster: KafkaCluster, partition: Partition, offset: int, max_bytes: int) -> PartitionData:
    """What lies from the offset on, up to so many bytes or one batch, for a reader of all records. It waits for
    nothing. Raises CommandError."""
    topic, index = partition
    asked = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=max_bytes, topics=[FetchTopic(topic=topic, partitions=[asked])]
    )

    def ask() -> PartitionData:
        leader = leaders_of(cluster.topics([topic])).get(partition)
        if leader is None:
            raise_for(partition, Error.UNKNOWN_TOPIC_OR_PARTITION)
        if leader is None or leader == NO_LEADER:
            return PartitionData(error_code=Error.LEADER_NOT_AVAILABLE)
        answer = cluster.ask(request, FetchResponse, leader, at_most=LAST_WITH_NAMES)
        if answer.error_code:
            return PartitionData(error_code=answer.error_code)
        of_topic = the_one(answer.responses, f"topic {topic}")
        return the_one(of_topic.partitions, f"{topic}-{index}")

    data = until_passed(ask, lambda answer: answer.error_code)
    raise_for(partition, data.error_code)
    return data

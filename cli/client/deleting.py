"""Deleting a partition's records before an offset."""

from __future__ import annotations

from typing import Final

from cli.client.answers import the_one
from cli.client.cluster import KafkaCluster
from cli.client.offsets import NO_LEADER, Partition, leaders_of, raise_for
from protocol.errors import Error
from protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

TIMEOUT_MS: Final = 30_000


def delete_records(cluster: KafkaCluster, partition: Partition, before: int) -> int:
    """Delete the records, and return where the log then starts. Raises CommandError."""
    topic, index = partition
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=topic, partitions=[DeleteRecordsPartition(partition_index=index, offset=before)]
            )
        ],
        timeout_ms=TIMEOUT_MS,
    )

    def ask() -> tuple[int, int]:
        leader = leaders_of(cluster.topics([topic])).get(partition)
        if leader is None:
            return Error.UNKNOWN_TOPIC_OR_PARTITION, -1
        if leader == NO_LEADER:
            return Error.LEADER_NOT_AVAILABLE, -1
        answer = cluster.ask(request, DeleteRecordsResponse, leader)
        of_topic = the_one(answer.topics, f"topic {topic}")
        found = the_one(of_topic.partitions, f"{topic}-{index}")
        return found.error_code, found.low_watermark

    error_code, start = cluster.until_passed(ask, lambda answer: answer[0])
    raise_for(partition, error_code)
    return start

"""Requests that tests of a cluster send to its brokers, as clients do."""

from __future__ import annotations

import barnabas
from barnabas.cluster import ClusterNode
from protocol.errors import Error
from protocol.messages.metadata import FindCoordinatorRequest, MetadataRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.support.record_bytes import batch, record
from tests.support.wire import Client

QUICK = {
    "broker.heartbeat.interval.ms": 200,
    "broker.session.timeout.ms": 2_000,
    "replica.lag.time.max.ms": 1_000,
}
"""A broker that is away is noticed soon."""


def create(cluster: barnabas.Cluster, topic: str, *, partitions: int = 1, replicas: int = 3) -> None:
    """Create the topic, and return once all of its replicas are in sync."""
    with Client.of(cluster[1].bootstrap) as client:
        wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=replicas)
        (made,) = client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=60_000), 5).topics
        assert made.error_code == Error.NONE, made
    cluster.wait_until_in_sync(120)


def produced(node: ClusterNode, topic: str, *, acks: int = 1, value: bytes = b"v") -> Error:
    """Produce a record to partition 0, and return the error code of the answer."""
    data = PartitionProduceData(index=0, records=memoryview(bytes(batch([record(0, value=value)]))))
    request = ProduceRequest(
        acks=acks, timeout_ms=60_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    with Client.of(node.bootstrap) as client:
        answer = client.ask(request, 8)
    return Error(answer.responses[0].partition_responses[0].error_code)


def topics_at(node: ClusterNode) -> set[str]:
    with Client.of(node.bootstrap) as client:
        return {topic.name for topic in client.ask(MetadataRequest(topics=None), 8).topics}


def coordinator_at(node: ClusterNode, key: str, key_type: int) -> int:
    """Return the coordinator's id that the node tells a client, or -1 if there is none yet."""
    with Client.of(node.bootstrap) as client:
        return int(client.ask(FindCoordinatorRequest(key=key, key_type=key_type), 2).node_id)

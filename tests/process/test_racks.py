"""Consumers read from a replica in their rack, if the brokers know the racks (KIP-392)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import barnabas
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support import waiting
from tests.support.wire import Client

PATIENCE_S = 60.0
RACKS = ["a", "b", "c"]
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
NO_REPLICA = -1


@pytest.fixture
def cluster() -> Iterator[barnabas.Cluster]:
    with barnabas.Cluster(brokers=3, racks=RACKS, config={"replica.selector.class": SELECTOR}) as cluster:
        asking = AdminClient({"bootstrap.servers": cluster.bootstrap})
        asking.create_topics([NewTopic("t", replica_assignment=[[1, 2]], num_partitions=1)])["t"].result(
            PATIENCE_S
        )
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        producer.produce("t", b"a record")
        assert producer.flush(PATIENCE_S) == 0
        cluster.wait_until_in_sync(PATIENCE_S)
        yield cluster


def fetched(cluster: barnabas.Cluster, broker: int, rack: str, offset: int = 0) -> Any:
    with Client.of(cluster[broker].bootstrap) as client:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        topic_id = client.ask(asked, 12).topics[0].topic_id
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=100,
            max_bytes=1 << 20,
            rack_id=rack,
            topics=[FetchTopic(topic_id=topic_id, partitions=[partition])],
        )
        (found,) = client.ask(request, 16).responses[0].partitions
        assert found.error_code == 0
        return found


def test_the_leader_sends_a_consumer_to_the_replica_in_its_rack(cluster: barnabas.Cluster) -> None:
    told = {rack: fetched(cluster, 1, rack) for rack in ("", "a", "b", "c", "nowhere")}
    assert {rack: each.preferred_read_replica for rack, each in told.items()} == {
        "": NO_REPLICA,
        "a": NO_REPLICA,
        "b": 2,
        "c": NO_REPLICA,  # broker 3 is in that rack, and has no replica
        "nowhere": NO_REPLICA,
    }
    assert {rack for rack, each in told.items() if each.records} == {"", "a", "c", "nowhere"}
    assert told["b"].high_watermark == 1
    # a consumer at that replica reads the record once the replica knows that it is committed
    waiting.until(lambda: fetched(cluster, 2, "b").records, "the replica is read from", PATIENCE_S)
    assert fetched(cluster, 2, "b").preferred_read_replica == NO_REPLICA
    # a replica that is out of sync isn't named
    cluster[2].stop()
    waiting.until(lambda: cluster.in_sync_replicas_of("t", 0) == [cluster[1]], "one is in sync", PATIENCE_S)
    waiting.until(lambda: fetched(cluster, 1, "b").records, "the leader knows", PATIENCE_S)


def test_librdkafka_reads_from_a_follower(cluster: barnabas.Cluster) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "unused",
            "client.rack": "b",
        }
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert message.value() == b"a record"
    consumer.close()

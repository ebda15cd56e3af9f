"""The answers to clients that may not write or read, when they produce, fetch, or ask for offsets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from broker.server import Server
from protocol.errors import Error
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.topics import (
    CreatableTopic,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.messages.transactions import DescribeProducersRequest, DescribeProducersTopic
from protocol.records.batch import build_batch
from tests.node.transactional import ask
from tests.support.cycles import nothing_in_a_cycle
from tests.support.denying import Asked, DenyingAuthorizer
from tests.support.topics import topics_of
from tests.support.whole_server import crash, started

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
DENIED = Error.TOPIC_AUTHORIZATION_FAILED


async def guarded(folder: Path) -> tuple[Server, DenyingAuthorizer]:
    """Start a node with the topics `open` and `secret`, and an authorizer that a test tells what to deny."""
    node = await started(folder)
    for name in ("open", "secret"):
        topics_of(node).create([CreatableTopic(name=name, num_partitions=1, replication_factor=1)])
    authorizer = DenyingAuthorizer()
    node.authorizer = authorizer
    return node, authorizer


def produce(node: Server, *names: str, **batch: Any) -> dict[str, Error]:
    data = [
        TopicProduceData(
            name=name,
            partition_data=[
                PartitionProduceData(
                    index=0,
                    records=memoryview(build_batch([(node.clock.now_ms(), None, b"x", ())], **batch)),
                )
            ],
        )
        for name in names
    ]
    transactional_id = "tx" if batch else None
    response = ask(
        node,
        ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=data),
        10,
    )
    return {topic.name: Error(topic.partition_responses[0].error_code) for topic in response.responses}


def fetch(node: Server, *names: str, replica_id: int = -1) -> dict[str, Error]:
    topics = [
        FetchTopic(
            topic=name, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)]
        )
        for name in names
    ]
    request = FetchRequest(
        replica_id=replica_id, max_wait_ms=0, min_bytes=1, max_bytes=1, isolation_level=0, topics=topics
    )
    return {topic.topic: Error(topic.partitions[0].error_code) for topic in ask(node, request, 12).responses}


async def test_a_producer_needs_to_write_to_each_topic(tmp_path: Path) -> None:
    node, authorizer = await guarded(tmp_path)
    authorizer.deny(Operation.WRITE, TOPIC, "secret").deny(Operation.WRITE, TOPIC, "unknown")
    assert produce(node, "secret", "open", "unknown", "none") == {
        "open": Error.NONE,
        "secret": DENIED,
        "unknown": DENIED,
        "none": Error.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert node.partitions.get("secret", 0).log.log_end_offset == 0
    crash(node)


async def test_a_transactional_producer_needs_to_write_to_its_id_before_all_else(tmp_path: Path) -> None:
    node, authorizer = await guarded(tmp_path)
    authorizer.deny(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "tx")
    told = produce(node, "open", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    assert told == {"open": Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    assert authorizer.asked == [Asked(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "tx")]
    crash(node)


async def test_a_consumer_needs_to_read_each_topic(tmp_path: Path) -> None:
    node, authorizer = await guarded(tmp_path)
    authorizer.deny(Operation.READ, TOPIC, "secret").deny(Operation.READ, TOPIC, "unknown")
    assert [*fetch(node, "secret", "unknown", "none", "open").items()] == [
        ("open", Error.NONE),
        ("secret", DENIED),
        ("unknown", DENIED),
        ("none", Error.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    crash(node)


async def test_a_follower_needs_the_clusters_action_and_nothing_of_topics(tmp_path: Path) -> None:
    node, authorizer = await guarded(tmp_path)
    authorizer.deny(Operation.CLUSTER_ACTION, CLUSTER)
    assert fetch(node, "open", "none", replica_id=5) == {"open": DENIED, "none": DENIED}
    assert authorizer.asked == [Asked(Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)]
    crash(node)


async def test_offsets_are_given_to_users_who_may_describe_the_topic(tmp_path: Path) -> None:
    node, authorizer = await guarded(tmp_path)
    authorizer.deny(Operation.DESCRIBE, TOPIC, "secret")
    topics = [
        ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        for name in ("secret", "open")
    ]
    response = ask(node, ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics), 7)
    assert [(topic.name, topic.partitions[0].error_code) for topic in response.topics] == [
        ("open", Error.NONE),
        ("secret", DENIED),
    ]
    crash(node)


async def test_ends_of_epochs_are_given_to_brokers_and_to_users_who_may_describe(tmp_path: Path) -> None:
    node, authorizer = await guarded(tmp_path)
    authorizer.deny(Operation.DESCRIBE, TOPIC, "secret")
    topics = [
        OffsetForLeaderTopic(topic=name, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])
        for name in ("secret", "open")
    ]
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
    told = [(topic.topic, topic.partitions[0].error_code) for topic in ask(node, request, 4).topics]
    assert told == [("secret", Error.NONE), ("open", Error.NONE)]
    authorizer.deny(Operation.CLUSTER_ACTION, CLUSTER)
    told = [(topic.topic, topic.partitions[0].error_code) for topic in ask(node, request, 4).topics]
    assert told == [("open", Error.NONE), ("secret", DENIED)]
    crash(node)


async def test_deleting_records_needs_the_right_to(tmp_path: Path) -> None:
    node, authorizer = await guarded(tmp_path)
    authorizer.deny(Operation.DELETE, TOPIC, "secret")
    topics = [
        DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
        for name in ("open", "secret")
    ]
    response = ask(node, DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)
    told = {
        topic.name: (topic.partitions[0].error_code, topic.partitions[0].low_watermark)
        for topic in response.topics
    }
    assert told == {"open": (Error.NONE, 0), "secret": (DENIED, -1)}
    crash(node)


async def test_describing_producers_needs_the_right_to_read(tmp_path: Path) -> None:
    node, authorizer = await guarded(tmp_path)
    authorizer.deny(Operation.READ, TOPIC)
    topics = [DescribeProducersTopic(name=name, partition_indexes=[0]) for name in ("open", "none", "?")]
    with nothing_in_a_cycle():
        response = ask(node, DescribeProducersRequest(topics=topics), 0)
    assert [topic.partitions[0].error_code for topic in response.topics] == [
        DENIED,
        DENIED,
        Error.INVALID_TOPIC_EXCEPTION,
    ]
    crash(node)

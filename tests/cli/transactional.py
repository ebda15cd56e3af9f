"""Shared by scenes with transactions: histories of transactions, hanging ones, and records counted by reading."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator

from confluent_kafka import Consumer, Producer, TopicPartition

from cli.client.cluster import KafkaCluster
from cli.client.offsets import LATEST_OFFSET, READ_COMMITTED, leaders_of, list_offsets
from cli.client.transactions import describe_transaction
from cli.options import BOOTSTRAP
from protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records.batch import build_batch
from tests.cli.conftest import Kafka
from tests.clients.confluent import PATIENCE_S
from tests.clients.transactions import new_producer
from tests.support.waiting import until, until_answered

BEFORE_TOPIC_IDS = 8
HOUR_MS = 3_600_000
BROKER = 4
VERIFICATION = "transaction.partition.verification.enable"


def send_each(producer: Producer, topic: str, values: Iterable[str], partition: int = 0) -> None:
    """Send records that are acknowledged one after the other, each in its own batch."""
    for value in values:
        producer.produce(topic, value, partition=partition)
        assert producer.flush(PATIENCE_S) == 0


def send_at_once(producer: Producer, topic: str, values: Iterable[str], partition: int = 0) -> None:
    """Send records that are acknowledged together, usually in one batch."""
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def plain(bootstrap: str) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "log_level": 0})


def committed(bootstrap: str, topic: str, transactional_id: str, values: Iterable[str]) -> None:
    producer = new_producer(bootstrap, transactional_id)
    producer.begin_transaction()
    send_at_once(producer, topic, values)
    producer.commit_transaction(PATIENCE_S)
    until_marked(bootstrap, transactional_id)


def aborted(bootstrap: str, topic: str, transactional_id: str, values: Iterable[str]) -> None:
    producer = new_producer(bootstrap, transactional_id)
    producer.begin_transaction()
    send_at_once(producer, topic, values)
    producer.abort_transaction(PATIENCE_S)
    until_marked(bootstrap, transactional_id)


def until_marked(bootstrap: str, transactional_id: str) -> None:
    """Wait for the marker: a producer learns of its transaction's end before all partitions have it."""
    with KafkaCluster({BOOTSTRAP: bootstrap}) as cluster:

        def is_over() -> bool:
            found = describe_transaction(cluster, transactional_id)
            return found is None or not (found.is_open or found.is_ending)

        until(is_over, "the markers of a transaction")


def ends(bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
    """The last stable offset and the high watermark."""
    with KafkaCluster({BOOTSTRAP: bootstrap}) as cluster:
        wanted = {(topic, partition): LATEST_OFFSET}
        stable, end = (list_offsets(cluster, wanted, isolation) for isolation in (READ_COMMITTED, 0))
        return stable[topic, partition], end[topic, partition]


def read_by_hand(
    bootstrap: str, topic: str, offset: int, isolation: str, partition: int = 0
) -> list[tuple[int, str]]:
    """Each record that a consumer gets from the offset on, up to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    found = []
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, "neither a record nor the end"
            if message.error():
                break
            found.append((message.offset(), (message.value() or b"").decode()))
    finally:
        consumer.close()
    return found


@contextlib.contextmanager
def without_verification(bootstrap: str, topic: str) -> Iterator[None]:
    """Meanwhile partitions accept any record as part of a transaction, as before KIP-890. A batch in `topic` shows when
    they do."""
    _set_verification(bootstrap, "false")
    until(lambda: inserted(bootstrap, topic, 4_710) == 0, "a record that no coordinator was asked about")
    try:
        yield
    finally:
        _set_verification(bootstrap, "true")


def _set_verification(bootstrap: str, value: str) -> None:
    change = IncrementalAlterableConfig(name=VERIFICATION, config_operation=0, value=value)
    all_brokers = IncrementalAlterConfigsResource(resource_type=BROKER, resource_name="", configs=[change])
    with KafkaCluster({BOOTSTRAP: bootstrap}) as cluster:
        request = IncrementalAlterConfigsRequest(resources=[all_brokers])
        answer = cluster.ask(request, IncrementalAlterConfigsResponse)
    assert [each.error_code for each in answer.responses] == [0]


def inserted(
    bootstrap: str, topic: str, producer_id: int, *, values: Iterable[bytes] = (b"hanging",), epoch: int = 0
) -> int:
    """Append a batch in a transaction that the coordinator doesn't know, and return its error code."""
    long_ago_ms = round(time.time() * 1000) - HOUR_MS
    batch = build_batch(
        [(long_ago_ms, None, value, ()) for value in values],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
    )
    with KafkaCluster({BOOTSTRAP: bootstrap}) as cluster:
        leader = leaders_of(cluster.topics([topic]))[topic, 0]
        request = ProduceRequest(
            transactional_id=f"{topic}-{producer_id}",
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    partition_data=[PartitionProduceData(index=0, records=memoryview(bytes(batch)))],
                )
            ],
        )
        answer = cluster.ask(request, ProduceResponse, leader, at_most=BEFORE_TOPIC_IDS)
        return answer.responses[0].partition_responses[0].error_code


def table(printed: str) -> list[dict[str, str]]:
    """The table that one of Kafka's tools shows, with its head first. No cell has a blank."""
    head, *lines = (line.split() for line in printed.splitlines() if line.strip() and ":" not in line[:1])
    return [dict(zip(head, line, strict=False)) for line in lines]


def commit(kafka: Kafka, group: str, topic: str, *offsets: int) -> None:
    """Commit as a simple group does, without members."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    partitions = [TopicPartition(topic, index, offset) for index, offset in enumerate(offsets)]
    # a coordinator that was just found may still be loading
    until_answered(lambda: consumer.commit(offsets=partitions, asynchronous=False), "a commit")
    consumer.close()

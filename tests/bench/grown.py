"""Brokers that have much of one thing that a request may touch, but whose cost must not grow with it.

Each function of `AXES` takes a running broker with the measured topic, and a count. What it returns is kept open during
the measurement.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from protocol.errors import Error
from protocol.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.metadata import ApiVersionsRequest, FindCoordinatorRequest
from protocol.messages.produce import InitProducerIdRequest
from protocol.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.records.batch import build_batch
from tests.bench.measures import IN_FLIGHT, PATIENCE_S, RECORD_BYTES, create_topic
from tests.support.kafka_server import Server
from tests.support.ready_requests import produce_frame, produce_in_flight
from tests.support.wire import Client

PARTITIONS_OF_EACH = 500
OF_GROUPS, OF_TRANSACTIONS = 0, 1
TRANSACTION_TIMEOUT_MS = 900_000
SEGMENT_BYTES = 1 << 20
DEFAULT_SEGMENT_BYTES = 1 << 30
RECORD = b"x" * 100

Kept = Sequence[Client]
Grow = Callable[[Server, str, int], Kept]


@dataclass(frozen=True, slots=True)
class Axis:
    """The thing, and how many of it. `sizes` grow."""

    title: str
    sizes: tuple[int, ...]
    grow: Grow


def _partitions(server: Server, topic: str, count: int) -> Kept:
    for number, first in enumerate(range(0, count, PARTITIONS_OF_EACH)):
        create_topic(server.bootstrap, f"wide-{number}", min(PARTITIONS_OF_EACH, count - first))
    return ()


def _connections(server: Server, topic: str, count: int) -> Kept:
    clients = [Client.of(server.bootstrap) for _ in range(count)]
    for client in clients:
        client.ask(ApiVersionsRequest(client_software_name="growth", client_software_version="1"), 3)
    return clients


def _groups(server: Server, topic: str, count: int) -> Kept:
    """Groups with an offset each, and without members."""
    with Client.of(server.bootstrap) as client:
        find_coordinator(client, OF_GROUPS)
        for number in range(count):
            request = commit(f"group-{number}", topic)
            insist(lambda: client.ask(request, 8).topics[0].partitions[0].error_code)  # noqa: B023
    return ()


def _producers(server: Server, topic: str, count: int) -> Kept:
    """Idempotent producers, each with a record in the partition."""
    with Client.of(server.bootstrap) as client:
        for _ in range(count):
            producer_id, epoch = _init_producer(client, None)
            produce_in_flight(client, produce_frame(topic, _batch(producer_id, epoch), acks=1), 1, 1)
    return ()


def _open_transactions(server: Server, topic: str, count: int) -> Kept:
    """Open transactions, each with a record in the partition."""
    with Client.of(server.bootstrap) as client:
        find_coordinator(client, OF_TRANSACTIONS)
        for number in range(count):
            name = f"open-{number}"
            producer_id, epoch = _init_producer(client, name)
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
            )
            insist(
                lambda: (
                    client.ask(request, 3)  # noqa: B023
                    .results_by_topic_v3_and_below[0]
                    .results_by_partition[0]
                    .partition_error_code
                )
            )
            batch = _batch(producer_id, epoch, transactional=True)
            produce_in_flight(client, produce_frame(topic, batch, acks=1, transactional_id=name), 1, 1)
    return ()


def _segments(server: Server, topic: str, count: int) -> Kept:
    """Segments of a mebibyte each, in batches of 15 records. The measurement itself rolls none."""
    _set_segment_bytes(server, topic, SEGMENT_BYTES)
    now_ms = time.time_ns() // 1_000_000
    batch = build_batch([(now_ms, None, os.urandom(RECORD_BYTES), ())] * 15)
    with Client.of(server.bootstrap) as client:
        produce_in_flight(
            client, produce_frame(topic, bytes(batch), acks=1), count * SEGMENT_BYTES // len(batch), IN_FLIGHT
        )
    _set_segment_bytes(server, topic, DEFAULT_SEGMENT_BYTES)
    return ()


AXES = {
    "partitions": Axis("partitions beside", (1, 100, 1_000, 10_000), _partitions),
    "connections": Axis("connections that idle", (1, 100, 1_000, 5_000), _connections),
    "groups": Axis("groups beside", (1, 100, 1_000, 10_000), _groups),
    "transactions": Axis("open transactions in the partition", (1, 10, 100, 1_000), _open_transactions),
    "producers": Axis("producers of the partition", (1, 100, 1_000, 10_000), _producers),
    "segments": Axis("segments of the partition", (1, 10, 100, 1_000), _segments),
}


def _set_segment_bytes(server: Server, topic: str, size: int) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
    resource = ConfigResource(ResourceType.TOPIC, topic, {"segment.bytes": str(size)})
    admin.alter_configs([resource])[resource].result(PATIENCE_S)


def commit(group_id: str, topic: str) -> OffsetCommitRequest:
    """A commit of an offset in the topic's only partition, without being a member."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    return OffsetCommitRequest(
        group_id=group_id, topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    )


def find_coordinator(client: Client, key_type: int) -> None:
    """Find the coordinator, which creates its topic."""
    request = FindCoordinatorRequest(key="anyone", key_type=key_type)
    insist(lambda: int(client.ask(request, 3).error_code))


def _init_producer(client: Client, transactional_id: str | None) -> tuple[int, int]:
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        producer_id=-1,
        producer_epoch=-1,
    )
    found = (-1, -1)

    def ask() -> int:
        nonlocal found
        answer = client.ask(request, 4)
        found = (answer.producer_id, answer.producer_epoch)
        return int(answer.error_code)

    insist(ask)
    return found


def _batch(producer_id: int, epoch: int, *, transactional: bool = False) -> bytes:
    record = (time.time_ns() // 1_000_000, None, RECORD, ())
    return bytes(
        build_batch(
            [record],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=transactional,
        )
    )


def insist(ask: Callable[[], int]) -> None:
    """Repeat until there is no error: a coordinator needs a moment."""
    deadline_s = time.monotonic() + PATIENCE_S
    while error := ask():
        assert time.monotonic() < deadline_s, Error(error)
        time.sleep(0.01)

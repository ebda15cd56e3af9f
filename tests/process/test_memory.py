"""How much memory clients can make a broker's process hold: each attack, and how much the process grows."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import barnabas
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.metadata import ApiVersionsRequest, MetadataRequest, MetadataRequestTopic
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from protocol.records import batch as records
from protocol.records import compression
from tests.support.ready_requests import produce_frame, produce_in_flight
from tests.support.wire import Client, Outcome, request_frame

MB = 1_000_000
PATIENCE_S = 240.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[barnabas.Broker]:
    with barnabas.Broker(data=tmp_path / "data") as broker:
        yield broker


def rss(broker: barnabas.Broker) -> int:
    return int(psutil.Process(broker.pid).memory_info().rss)


def filled(broker: barnabas.Broker, topic: str, megabytes: int) -> None:
    """Create a topic of one partition, and fill it with so many batches of a megabyte."""
    batch = bytes(records.build_batch([(1, None, bytes(MB), ())]))
    with Client.of(broker.bootstrap) as client:
        wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
        client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 5)
        produce_in_flight(client, produce_frame(topic, batch, acks=1), megabytes, 5)


def connected(broker: barnabas.Broker) -> socket.socket:
    host, _, port = broker.bootstrap.rpartition(":")
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    client.settimeout(PATIENCE_S)
    client.connect((host, int(port)))
    return client


def fetch(topic: str, max_bytes: int) -> bytes:
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=max_bytes, topics=[FetchTopic(topic=topic, partitions=[asked])]
    )
    return request_frame(request, 11)


def test_thirty_clients_that_never_read_their_fetches_cost_a_piece_each(broker: barnabas.Broker) -> None:
    filled(broker, "t", 60)
    request = fetch("t", 55 * MB)
    before = rss(broker)
    clients = [connected(broker) for _ in range(30)]
    for client in clients:
        client.sendall(request)
    for client in clients:  # once the first bytes are there, the broker has begun to answer
        client.recv(4, socket.MSG_PEEK | socket.MSG_WAITALL)
    with Client.of(broker.bootstrap) as other:
        other.send_bytes(fetch("t", 1))
        assert len(other.next_frame()) > MB
    assert rss(broker) - before < 30 * MB
    for client in clients:
        client.close()


def test_two_hundred_halves_of_large_requests_cost_no_more_than_the_bound(tmp_path: Path) -> None:
    bound = 32 * 1024 * 1024
    config = {"queued.max.request.bytes": bound, "socket.request.max.bytes": bound}
    half = bytes(bound // 2)
    with barnabas.Broker(data=tmp_path / "data", config=config) as broker:
        filled(broker, "t", 1)
        before = rss(broker)
        clients = [connected(broker) for _ in range(200)]
        for client in clients:
            client.setblocking(False)
            client.send((bound - 4).to_bytes(4, "big") + bytes(8))  # Produce, version 0
        left = {client: memoryview(half) for client in clients}
        with selectors.DefaultSelector() as selector:
            for client in clients:
                selector.register(client, selectors.EVENT_WRITE)
            while writable := selector.select(0.5):  # until the broker reads no more
                for key, _ in writable:
                    client = key.fileobj
                    assert isinstance(client, socket.socket)
                    left[client] = left[client][client.send(left[client]) :]
                    if not left[client]:
                        selector.unregister(client)
        assert sum(map(bool, left.values())) > 100
        assert (
            rss(broker) - before < 3 * bound
        )  # a growing buffer exists twice, and the allocator keeps some memory
        with Client.of(broker.bootstrap) as other:
            other.send_bytes(fetch("t", 1))
            assert len(other.next_frame()) > MB
        for client in clients:
            client.close()


def test_unread_large_answers_are_made_up_to_a_bound(broker: barnabas.Broker) -> None:
    names = [MetadataRequestTopic(name=f"{'n' * 200}{number}") for number in range(30_000)]
    request = request_frame(MetadataRequest(topics=names, allow_auto_topic_creation=False), 9)
    before = rss(broker)
    clients = [connected(broker) for _ in range(40)]
    for client in clients:
        client.sendall(request)
    with Client.of(broker.bootstrap) as other:
        assert other.ask(ApiVersionsRequest(), 0).error_code == 0
    assert rss(broker) - before < 600 * MB
    for client in clients:
        client.close()


@pytest.mark.parametrize("codec", [compression.GZIP, compression.ZSTD])
def test_batches_that_unpack_to_much_are_in_memory_one_at_a_time(broker: barnabas.Broker, codec: int) -> None:
    filled(broker, "t", 1)
    batch = bytes(records.build_batch([(1, None, bytes(240 << 20), ())], codec=codec))
    before = rss(broker)
    clients = [Client.of(broker.bootstrap) for _ in range(4)]
    for client in clients:
        client.send_bytes(produce_frame("t", batch, acks=1))
    most = 0
    for client in clients:
        while client.receive_frame(within_s=0.02) is Outcome.SILENCE:
            most = max(most, rss(broker) - before)
        client.close()
    assert most < 1.7 * (240 << 20)

"""The memory of a decoded Produce with many topics and partitions is counted. If there is no room for it, the request
waits."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from broker.handlers.produce import check_shapes
from broker.network.connection import INITIAL_BUFFER_BYTES, PRODUCED_ENTRY_BYTES, most_produced
from broker.network.dispatch import LONG_FRAME_BYTES
from broker.network.memory import RequestMemory
from broker.replicas.append_records import refused
from broker.server import Server
from protocol.errors import Error
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.wire.codec import decoder, encode
from tests.node.test_connection import frame
from tests.node.test_connection_memory import KIB, MIB, Client, Schedule, memory_of
from tests.support.straight import Straight
from tests.support.wire import Client as WireClient
from tests.support.wire import Outcome

VERSION = 9
MANY = frame(b"\0\0many wait" + bytes(100 * KIB))
FEW = frame(b"\0\0wait" + bytes(100 * KIB))


@pytest.fixture
def schedule() -> Schedule:
    return Schedule()


def produce(topics: int, partitions: int, records: bytes | None = None) -> ProduceRequest:
    entries = [
        PartitionProduceData(index=1000 + index, records=None if records is None else memoryview(records))
        for index in range(partitions)
    ]
    topic_data = [TopicProduceData(name=f"{number}", partition_data=entries) for number in range(topics)]
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=topic_data)


def connected(node: Server) -> tuple[WireClient, RequestMemory]:
    straight = Straight(node)
    return WireClient(straight), straight._connection._memory.requests


async def most_held(node: Server, request: ProduceRequest) -> int:
    """Return the most memory that is held until the request is answered. Check that nothing but the buffer is held
    afterwards."""
    client, memory = connected(node)
    sent = client.send(request, VERSION)
    buffer_bytes = INITIAL_BUFFER_BYTES
    while buffer_bytes < len(client.made(request, VERSION)[1]):
        buffer_bytes *= 2
    most = memory.held_bytes
    while client.receive(sent, within_s=0) is Outcome.SILENCE:
        await asyncio.sleep(0)
        most = max(most, memory.held_bytes)
    assert memory.held_bytes <= buffer_bytes - INITIAL_BUFFER_BYTES
    client.close()
    await asyncio.sleep(0)
    assert memory.held_bytes == 0
    return most


async def test_a_request_of_many_partitions_counts_as_its_unpacked_size_until_it_is_answered(
    node: Server,
) -> None:
    assert await most_held(node, produce(1, 12_000)) > 12_000 * PRODUCED_ENTRY_BYTES
    below_a_step = produce(3, 1_300)
    assert len(encode(below_a_step, VERSION)) < LONG_FRAME_BYTES
    assert await most_held(node, below_a_step) > 3_900 * PRODUCED_ENTRY_BYTES


async def test_a_request_of_few_partitions_counts_as_its_bytes(node: Server) -> None:
    for request in produce(1, 1, bytes(MIB - 200)), produce(5, 100, bytes(2000)):
        assert await most_held(node, request) <= MIB


async def test_a_requests_memory_is_given_back_when_its_client_hangs_up(node: Server) -> None:
    client, memory = connected(node)
    client.send(produce(1, 12_000), VERSION)
    assert memory.held_bytes > 12_000 * PRODUCED_ENTRY_BYTES
    client.close()
    for _ in range(100):
        await asyncio.sleep(0)
    assert memory.held_bytes == 0


async def test_without_room_a_large_request_waits_and_a_small_one_does_not(node: Server) -> None:
    client, memory = connected(node)
    busy = client.send(produce(1, 12_000), VERSION)
    memory.most_bytes = memory.held_bytes + MIB
    many, _ = connected(node)
    waiting = many.send(produce(1, 5_000), VERSION)
    assert memory.is_short
    few, _ = connected(node)
    assert few.ask(produce(1, 1, bytes(20 * KIB)), VERSION)
    for asking, sent in (client, busy), (many, waiting):
        while asking.receive(sent, within_s=0) is Outcome.SILENCE:
            await asyncio.sleep(0)
    assert not memory.is_short


def test_an_entry_takes_no_more_than_it_counts() -> None:
    for request in produce(1, 3_500), produce(1, 3_500, b"x"), produce(3_500, 0), produce(1_375, 1):
        data = memoryview(encode(request, VERSION))
        entries = sum(1 + len(topic.partition_data) for topic in request.topic_data)
        assert entries <= len(data) // 3
        tracemalloc.start()
        decoded, _ = decoder(ProduceRequest, VERSION)(data, 0, len(data))
        shapes, _ = check_shapes(decoded.topic_data, VERSION)
        answers = {
            (topic.name, each.index): refused(each.index, Error.UNKNOWN_TOPIC_OR_PARTITION)
            for topic in decoded.topic_data
            for each in topic.partition_data
        }
        held_bytes, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held_bytes <= entries * PRODUCED_ENTRY_BYTES, (len(shapes), len(answers))


def test_many_wait_for_room_and_few_go_on(schedule: Schedule) -> None:
    needed = PRODUCED_ENTRY_BYTES * most_produced(len(MANY) - 4)
    memory = memory_of(schedule, needed + MIB)
    asking = Client(schedule, memory).send(MANY)
    assert len(asking.dispatcher.waiting) == 1
    asking.connection.hold_produced(most_produced(len(MANY) - 4))
    assert needed <= memory.requests.held_bytes <= needed + 128 * KIB
    other = Client(schedule, memory).send(MANY)
    assert other.dispatcher.served == []
    few = Client(schedule, memory).send(FEW)
    assert len(few.dispatcher.waiting) == 1
    asking.dispatcher.waiting[0].set_result([b"answer"])
    for _ in range(2):
        schedule.advance(0)
    assert len(other.dispatcher.waiting) == 1


def test_a_second_request_in_the_same_turn_asks_for_memory_too(schedule: Schedule) -> None:
    memory = memory_of(schedule, 8 * MIB)
    client = Client(schedule, memory).send(frame(b"asks" + bytes(300 * KIB)))  # its buffer stays
    Client(schedule, memory).send(frame(b"\0\0wait" + bytes(3 * MIB)))
    client.send(frame(b"asks" + bytes(17 * KIB)) + frame(b"wait" + bytes(250 * KIB)))
    assert len(client.dispatcher.served) == 2
    assert memory.requests.held_bytes <= 8 * MIB

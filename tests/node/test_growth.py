"""The cost of a request doesn't grow with what it doesn't concern. A node that has few of a thing takes as many steps
as one that has a hundred times as many.

The tests count Python's own steps in the code of the broker, which are the same in each run. They don't see what C does
in one step; `python -m tests.bench.growth` measures that.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import broker
from broker.server import Server
from protocol.errors import Error
from protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest
from protocol.messages.metadata import FindCoordinatorRequest, MetadataRequest, MetadataRequestTopic
from protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.produce import InitProducerIdRequest
from protocol.records.batch import build_batch
from protocol.wire.schema import Message
from tests.node.computing import SHORT, produce
from tests.node.test_nothing_in_cycles import is_idle
from tests.node.transactional import Producer, coordinating, create
from tests.support.straight import Straight
from tests.support.wire import Client, Outcome

HOUSE = str(Path(broker.__file__).parents[1])
FLOORS = tuple(f"{HOUSE}/{name}/" for name in ("broker", "coordinator", "protocol", "storage"))
FEW, MANY = 2, 200
TIMES = 4
"""Each exchange is measured this often. On a slow machine the clock lets others in between, which takes steps, too."""
TOLERATED = 1.02
INDEXED = 200
"""These are more batches than lie between two entries of an index. With fewer batches a search takes fewer steps."""
TOPIC = 2

Grow = Callable[[Server, int], Awaitable[None]]
Exchange = Callable[[Server, Client], Awaitable[None]]


class Counted:
    """Counts the steps of Python's interpreter in the broker's code while this is entered."""

    def __init__(self) -> None:
        self.steps = 0

    def __enter__(self) -> Counted:
        sys.settrace(self._call)
        return self

    def __exit__(self, *exception: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(FLOORS):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: FrameType, event: str, arg: object) -> Any:
        self.steps += event == "opcode"
        return self._step


# --- what there is much of ------------------------------------------------------------------------------------


async def partitions(node: Server, count: int) -> None:
    create(node, "wide", count)


async def topics(node: Server, count: int) -> None:
    for number in range(count):
        create(node, f"one-of-many-{number}")


async def connections(node: Server, count: int) -> None:
    for _ in range(count):
        await Client(Straight(node)).answer(FindCoordinatorRequest(key="g"), 2)


async def waiting_fetches(node: Server, count: int) -> None:
    create(node, "wide", count)
    for index in range(count):
        Client(Straight(node)).send(fetch("wide", index), 11)


async def groups(node: Server, count: int) -> None:
    client = Client(Straight(node))
    for number in range(count):
        await client.answer(commit(f"group-{number}"), 8)


async def members(node: Server, count: int) -> None:
    """Have this many members join another group."""
    client = Client(Straight(node))
    for number in range(count):
        await client.answer(heartbeat("crowd", f"member-{number}", 0), 1)


async def producers(node: Server, count: int) -> None:
    client = Client(Straight(node))
    for _ in range(count):
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1
        )
        answer = await client.answer(request, 4)
        batch = build_batch(
            [(node.clock.now_ms(), None, b"x", ())],
            producer_id=answer.producer_id,
            producer_epoch=answer.producer_epoch,
            base_sequence=0,
        )
        await client.answer(produce((0, batch)), 9)


async def open_transactions(node: Server, count: int) -> None:
    for number in range(count):
        producer = Producer(node, f"open-{number}").begin()
        producer.add(("t", 0))
        producer.produce(("t", 0))


async def segments(node: Server, count: int) -> None:
    client = Client(Straight(node))
    for _ in range(count):
        await client.answer(produce((0, SHORT)), 9)
        node.partitions.get("t", 0).log.roll(node.clock.now_ms())


GROWING = (
    partitions,
    topics,
    connections,
    waiting_fetches,
    groups,
    members,
    producers,
    open_transactions,
    segments,
)


# --- what is asked ----------------------------------------------------------------------------------------------


def fetch(topic: str, index: int, offset: int = 0) -> FetchRequest:
    asked = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1)
    return FetchRequest(
        max_wait_ms=500_000,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=topic, partitions=[asked])],
    )


def commit(group_id: str) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    return OffsetCommitRequest(
        group_id=group_id, topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])]
    )


def heartbeat(group_id: str, member_id: str, epoch: int) -> ConsumerGroupHeartbeatRequest:
    """Return a heartbeat. At epoch 0 it is the full one by which the member joins."""
    request = ConsumerGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=epoch)
    if not epoch:
        request.subscribed_topic_names, request.topic_partitions = ["t"], []
        request.rebalance_timeout_ms = 10_000
    return request


def offsets(timestamp: int) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[partition])])


async def a_fetch_that_is_woken(node: Server, client: Client) -> None:
    waiting = Client(Straight(node))
    sent = waiting.send(fetch("t", 1, node.partitions.get("t", 1).log.log_end_offset), 11)
    await client.answer(produce((1, SHORT)), 9)
    while waiting.receive(sent, within_s=0) is Outcome.SILENCE:
        await asyncio.sleep(0)
    waiting.close()


async def a_join_and_a_heartbeat(node: Server, client: Client) -> None:
    joined = await client.answer(heartbeat("consumers", "member", 0), 1)
    assert joined.error_code == Error.NONE
    steady = await client.answer(heartbeat("consumers", "member", joined.member_epoch), 1)
    assert steady.error_code == Error.NONE


async def a_transaction(node: Server, client: Client) -> None:
    producer = Producer(node).begin()
    producer.add(("t", 1))
    producer.produce(("t", 1))
    producer.add_offsets()
    producer.commit_offsets(1)
    assert producer.end() is Error.NONE
    await is_idle(node)


def asking(request: Message, version: int) -> Exchange:
    async def ask(node: Server, client: Client) -> None:
        await client.answer(request, version)

    return ask


EXCHANGES: dict[str, Exchange] = {
    "produce": asking(produce((0, SHORT)), 9),
    "fetch": asking(fetch("t", 0), 11),
    "a fetch that is woken": a_fetch_that_is_woken,
    "metadata": asking(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12),
    "commit": asking(commit("g"), 8),
    "committed": asking(
        OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])]), 6
    ),
    "coordinator": asking(FindCoordinatorRequest(key="g"), 2),
    "first offset": asking(offsets(-2), 7),
    "last offset": asking(offsets(-1), 7),
    "offset by time": asking(offsets(1), 7),
    "producer id": asking(
        InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1
        ),
        4,
    ),
    "configs": asking(
        DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=TOPIC, resource_name="t")]), 4
    ),
    "heartbeat": a_join_and_a_heartbeat,
    "transaction": a_transaction,
}


@pytest.mark.parametrize("grow", GROWING, ids=lambda grow: grow.__name__)
async def test_a_request_costs_the_same_however_much_there_is_beside(tmp_path: Path, grow: Grow) -> None:
    few, many = [await steps(tmp_path / str(count), grow, count) for count in (FEW, MANY)]
    assert {name: (few[name], many[name]) for name in few if many[name] > few[name] * TOLERATED} == {}


async def steps(folder: Path, grow: Grow, count: int) -> dict[str, int]:
    """Return for each exchange the fewest steps that it took, leaving out the first time."""
    node = await coordinating(folder)
    try:
        client = Client(Straight(node))
        for _ in range(INDEXED):
            await client.answer(produce((0, SHORT), (1, SHORT)), 9)
        await grow(node, count)
        await is_idle(node)
        found = {}
        for name, exchange in EXCHANGES.items():
            await exchange(node, client)
            counts = []
            for _ in range(TIMES):
                await is_idle(node)
                with Counted() as counted:
                    await exchange(node, client)
                counts.append(counted.steps)
            await is_idle(node)
            found[name] = min(counts)
        return found
    finally:
        await node.stop()

"""Produce requests whose answer waits for the disk because of `flush.messages`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from broker.handlers import produce as produce_handler
from broker.network.context import RequestContext
from broker.server import Server
from protocol.errors import Error
from protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig
from tests.support.answers import answered
from tests.support.partition_logs import HeldBackground, batch, produced
from tests.support.topics import topics_of
from tests.support.whole_server import crash, handled, started

UNIQUE = "0" * 32


async def syncing(folder: Path, flush_messages: int) -> tuple[Server, list[HeldBackground]]:
    """Start a broker with a topic `orders` of two partitions. The test says when each one is synced."""
    node = await started(folder)
    flush = CreatableTopicConfig(name="flush.messages", value=str(flush_messages))
    topics_of(node).create(
        [CreatableTopic(name="orders", num_partitions=2, replication_factor=1, configs=[flush])]
    )
    backgrounds = []
    for index in range(2):
        background = HeldBackground()
        node.partitions.get("orders", index).log.background = background
        backgrounds.append(background)
    return node, backgrounds


def produce(
    node: Server, partitions: tuple[int, ...], count: int = 1
) -> Coroutine[Any, Any, ProduceResponse]:
    data = [
        PartitionProduceData(index=index, records=memoryview(batch(count, timestamp=node.clock.now_ms())))
        for index in partitions
    ]
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="orders", partition_data=data)]
    )
    context = cast(RequestContext, Context())
    return answered(handled(node, produce_handler, context, request))


class Context:
    api_version = 9
    client_id = "test"


def errors(response: ProduceResponse) -> list[int]:
    return [answer.error_code for topic in response.responses for answer in topic.partition_responses]


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_producer_that_hangs_up_leaves_no_other_unanswered(tmp_path: Path) -> None:
    node, (background, _other) = await syncing(tmp_path, 1)
    first, gone, behind = (asyncio.ensure_future(produce(node, (0,))) for _ in range(3))
    await settle()
    gone.cancel()
    await settle()
    background.run_all()
    await settle()
    assert first.done()
    assert behind.done()
    assert errors(behind.result()) == [Error.NONE]
    crash(node)


async def test_an_answer_waits_only_for_its_own_batch(tmp_path: Path) -> None:
    node, (slow, quick) = await syncing(tmp_path, 3)
    waiting = asyncio.ensure_future(produce(node, (0, 1), 3))
    await settle()
    quick.run_all()
    assert errors(await produce(node, (1,), 1)) == [Error.NONE]
    await settle()
    assert not waiting.done()
    slow.run_all()
    await settle()
    assert waiting.done()
    assert errors(waiting.result()) == [Error.NONE, Error.NONE]
    crash(node)


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_batch_that_is_sent_again_is_not_acknowledged_before_the_disk_has_the_first(
    tmp_path: Path, acks: int
) -> None:
    node, (background, _other) = await syncing(tmp_path, 1)

    def send() -> asyncio.Task[ProduceResponse]:
        data = PartitionProduceData(index=0, records=memoryview(produced(0, timestamp=node.clock.now_ms())))
        topic = TopicProduceData(name="orders", partition_data=[data])
        request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])
        context = cast(RequestContext, Context())
        return asyncio.ensure_future(answered(handled(node, produce_handler, context, request)))

    first, again = send(), send()
    await settle()
    assert not first.done()
    assert not again.done()
    background.run_all()
    await settle()
    assert [errors(each.result()) for each in (first, again)] == [[Error.NONE], [Error.NONE]]
    crash(node)


async def test_a_batch_that_the_disk_refuses_has_no_offset(tmp_path: Path) -> None:
    node, _backgrounds = await syncing(tmp_path, 1)
    waiting = asyncio.ensure_future(produce(node, (0,)))
    await settle()
    node.partitions.get("orders", 0).log.give_up(OSError(5, "broken"))
    await settle()
    [answer] = waiting.result().responses[0].partition_responses
    assert answer.error_code == Error.KAFKA_STORAGE_ERROR
    assert (answer.base_offset, answer.log_append_time_ms, answer.log_start_offset) == (-1, -1, -1)
    crash(node)


async def test_a_producer_that_waits_for_a_deleted_topic_is_answered(tmp_path: Path) -> None:
    node, _backgrounds = await syncing(tmp_path, 1)
    waiting = asyncio.ensure_future(produce(node, (0,)))
    await settle()
    node.partitions.get("orders", 0).log.delete(UNIQUE)
    await settle()
    assert waiting.done()
    assert errors(waiting.result()) == [Error.KAFKA_STORAGE_ERROR]
    crash(node)


async def test_records_that_flush_messages_has_not_synced_are_neither_read_nor_reported(
    tmp_path: Path,
) -> None:
    node, (background, _) = await syncing(tmp_path, 1)
    partition = node.partitions.get("orders", 0)
    answer = produce(node, (0,))
    assert (partition.log.log_end_offset, partition.log.high_watermark) == (1, 0)
    told: list[object] = []
    partition.leader().when_committed(1, told.append)
    assert told == []
    background.run_all()
    assert partition.log.high_watermark == 1
    assert told == [None]
    assert (await answer).responses[0].partition_responses[0].error_code == 0
    crash(node)


async def test_a_producer_learns_that_its_topic_was_deleted_and_not_that_the_disk_failed(
    tmp_path: Path,
) -> None:
    node, _backgrounds = await syncing(tmp_path, 1)
    waiting = asyncio.ensure_future(produce(node, (0,)))
    await settle()
    topics_of(node).delete([node.metadata.image.topics["orders"]])
    await settle()
    assert waiting.done()
    assert errors(waiting.result()) == [Error.NOT_LEADER_OR_FOLLOWER]
    crash(node)

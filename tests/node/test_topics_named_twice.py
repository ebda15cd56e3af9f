"""A topic that one decision asks for twice is created once. A log that creates it twice couldn't be read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from broker.server import Server
from protocol.errors import Error, KafkaError
from protocol.messages.topics import CreatableTopic
from tests.support.submitting import ask_controller
from tests.support.whole_server import in_loop, started


async def asked_to_create(node: Server, names: Sequence[str], **how: Any) -> list[object]:
    told = asyncio.get_running_loop().create_future()
    wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    ask_controller(node.controller, node.topics.create(wanted, **how), told.set_result, told.set_exception)
    return [result.error if isinstance(result, KafkaError) else len(result) for _, result in await told]


@in_loop
async def test_a_name_that_comes_again_finds_the_topic_that_was_decided_before_it(tmp_path: Path) -> None:
    node = await started(tmp_path)
    names = ("a", "b", "a", "a")
    exists = Error.TOPIC_ALREADY_EXISTS
    assert await asked_to_create(node, names, validate_only=True) == [16, 16, exists, exists]
    assert await asked_to_create(node, names) == [16, 16, exists, exists]
    ids = [topic.topic_id for topic in node.metadata.image.topics.values()]
    await node.stop()
    again = await started(tmp_path)
    assert [topic.topic_id for topic in again.metadata.image.topics.values()] == ids
    await again.stop()


@in_loop
async def test_a_name_that_was_refused_may_be_asked_for_again(tmp_path: Path) -> None:
    node = await started(tmp_path)
    taken: list[int] = []

    def take(partitions: int) -> None:
        taken.append(partitions)
        if len(taken) == 1:
            raise KafkaError(Error.THROTTLING_QUOTA_EXCEEDED)

    results = await asked_to_create(node, ("a", "a", "a"), take=take)
    assert results == [Error.THROTTLING_QUOTA_EXCEEDED, 16, Error.TOPIC_ALREADY_EXISTS]
    assert len(taken) == 2  # nothing of a quota for what was there
    await node.stop()

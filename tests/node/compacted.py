"""A node with a compacted topic of small segments, and what is in its log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker.replicas.partition import Partition
from broker.server import Server
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig
from protocol.records.batch import CONTROL_BIT, build_batch, read_header, read_records
from storage.log.log_state import AppendOrigin
from tests.support.topics import topics_of
from tests.support.whole_server import started
from tests.support.wishes import tell

DEADLINE_S = 120.0
SMALL_SEGMENTS = {"cleanup.policy": "compact", "internal.segment.bytes": "500", "file.delete.delay.ms": "0"}
BY_ITSELF_NEVER = {"min.cleanable.dirty.ratio": "1.0"}


async def with_topic(folder: Path, *settings: str, **configs: str) -> Server:
    """Start a node with the topic `t`, which is compacted only on request."""
    node = await started(folder, *settings)
    create(node, "t", **configs)
    return node


def create(node: Server, name: str, **configs: str) -> None:
    settings = (
        SMALL_SEGMENTS | BY_ITSELF_NEVER | {key.replace("_", "."): text for key, text in configs.items()}
    )
    topics_of(node).create(
        [
            CreatableTopic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                configs=[CreatableTopicConfig(name=key, value=text) for key, text in settings.items()],
            )
        ]
    )


def delete(node: Server, name: str) -> None:
    topics_of(node).delete([node.metadata.image.topics[name]])


def partition_of(node: Server, topic: str = "t") -> Partition:
    return node.partitions.get(topic, 0)


def append(
    node: Server, key: bytes, value: bytes | None = b"v" * 50, topic: str = "t", **producer: Any
) -> int:
    """Append one record in a batch of its own. Returns its offset."""
    partition = partition_of(node, topic)
    data = build_batch([(node.clock.now_ms(), key, value, ())], **producer)
    appended = partition.log.append(
        data, leader_epoch=partition.leader_epoch, now_ms=node.clock.now_ms(), origin=AppendOrigin.CLIENT
    )
    partition.leader().advance()
    return appended.base_offset


def fill(node: Server, count: int = 20, keys: int = 3, topic: str = "t") -> None:
    """Append records of a few keys in turn, and begin a new segment after them."""
    for number in range(count):
        append(node, b"k%d" % (number % keys), b"%d" % number + b" " * 50, topic)
    partition_of(node, topic).log.roll(node.clock.now_ms())


def records(node: Server, topic: str = "t") -> dict[int, tuple[bytes | None, bytes | None]]:
    """Return the key and value of each record in the log, by offset."""
    log = partition_of(node, topic).log
    return {
        record.offset: (record.key, None if record.value is None else bytes(record.value).rstrip())
        for header, data in log.batches(log.log_start_offset, upper_bound=log.log_end_offset)
        if not header.attributes & CONTROL_BIT
        for record in read_records(data)
    }


def batches(node: Server, topic: str = "t") -> list[tuple[int, int]]:
    """Return the base offset and the number of records of each batch."""
    log = partition_of(node, topic).log
    found = log.batches(log.log_start_offset, upper_bound=log.log_end_offset)
    return [(header.base_offset, read_header(data).records_count) for header, data in found]


def checkpoint(node: Server, topic: str = "t") -> int | None:
    return partition_of(node, topic).directory.cleaner_offsets.get((topic, 0))


async def cleaned(node: Server, topic: str = "t", *, roll: bool = False) -> Exception | None:
    """Compact the partition now. Returns None, or why it can't be compacted."""
    outcome: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
    tell(node.cleaner.clean_now(partition_of(node, topic), roll=roll), outcome.set_result)
    return await asyncio.wait_for(outcome, DEADLINE_S)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0)

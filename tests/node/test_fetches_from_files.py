"""Fetches whose answers still lie in files when they are sent."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from broker.handlers import fetch
from broker.replicas.fetching import MOST_READ_AT_ONCE
from broker.server import Server
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.topics import CreatableTopic
from protocol.wire.codec import decode
from storage.files import FileRange
from tests.node.test_unsent_answers import SMALL_BUFFER_BYTES, exactly
from tests.support.partition_logs import append, batch_of_bytes
from tests.support.topics import topics_of
from tests.support.whole_server import handled
from tests.support.wire import request_frame


async def test_a_fetch_is_answered_to_its_end_though_its_topic_is_deleted(node: Server) -> None:
    topics = topics_of(node)
    topics.create([CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    partition = node.partitions.find("t", 0)
    assert partition is not None
    for _ in range(100):
        append(partition.log, batch_of_bytes(100_000))
    partition.leader().advance()
    expected = partition.log.read(0, 1 << 30, upper_bound=100).records
    version = 11
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 30)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1 << 30, topics=[FetchTopic(topic="t", partitions=[asked])]
    )
    host, _, port = node.bootstrap.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=SMALL_BUFFER_BYTES)
    writer.write(request_frame(request, version))
    size = int.from_bytes(await exactly(reader, 4), "big")
    topics.delete([node.metadata.image.topics["t"]])
    answer = decode(FetchResponse, version, await exactly(reader, size), 4)
    assert answer.responses[0].partitions[0].records == expected
    writer.close()
    await writer.wait_closed()


@pytest.mark.limit("broker.replicas.fetching.MOST_READ_AT_ONCE")
async def test_an_answer_of_many_partitions_holds_little_of_their_records(node: Server) -> None:
    topics_of(node).create([CreatableTopic(name="t", num_partitions=30, replication_factor=1)])
    batch = batch_of_bytes(50_000)
    for index in range(30):
        partition = node.partitions.find("t", index)
        assert partition is not None
        append(partition.log, batch.copy())
        partition.leader().advance()
    asked = [FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(30)]
    request = FetchRequest(max_bytes=1 << 30, topics=[FetchTopic(topic="t", partitions=asked)])
    answer = handled(node, fetch, SimpleNamespace(api_version=11, listener_name="PLAINTEXT"), request)
    held = left = 0
    for data in answer.responses[0].partitions:
        for chunk in data.records if isinstance(data.records, list) else [data.records]:
            if isinstance(chunk, FileRange):
                left += len(chunk)
            else:
                held += len(chunk)
    assert held + left == 30 * len(batch)
    assert MOST_READ_AT_ONCE / 2 < held < MOST_READ_AT_ONCE + 30 * 512

"""In a Fetch of many partitions the later ones have the same bounds as the first ones, though little of them is taken
at once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.config.topic_config import MOST_BETWEEN_INDEX_ENTRIES
from broker.handlers import fetch
from broker.replicas.fetching import MOST_READ_AT_ONCE, PARTITION_AT_ONCE_BYTES
from broker.server import Server
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig
from protocol.records.batch import read_header, walk_batches
from storage.log import segment
from tests.support.partition_logs import NOW_MS, append, batch, batch_of_bytes, produced
from tests.support.topics import topics_of
from tests.support.whole_server import handled, in_loop, started

BACKLOGS = 2 * MOST_READ_AT_ONCE // PARTITION_AT_ONCE_BYTES
LAST = BACKLOGS


async def started_with_backlogs(folder: Path) -> Server:
    """Start a node on which every partition but the last has more than is taken of an answer at once."""
    node = await started(folder)
    topics_of(node).create([CreatableTopic(name="t", num_partitions=BACKLOGS + 1, replication_factor=1)])
    for index in range(BACKLOGS):
        append(node.partitions.find("t", index).log, batch_of_bytes(100_000))
    return node


def fetched_last(
    node: Server, *, isolation_level: int = 0, partition_max_bytes: int = 1 << 20
) -> PartitionData:
    """Fetch all partitions. Returns the answer of the last one."""
    asked = [
        FetchPartition(partition=index, partition_max_bytes=partition_max_bytes if index == LAST else 1 << 20)
        for index in range(BACKLOGS + 1)
    ]
    request = FetchRequest(
        max_bytes=50 << 20, isolation_level=isolation_level, topics=[FetchTopic(topic="t", partitions=asked)]
    )
    context = SimpleNamespace(api_version=11, listener_name="PLAINTEXT")
    (topic,) = handled(node, fetch, context, request).responses
    return next(each for each in topic.partitions if each.partition_index == LAST)


def offsets(answer: PartitionData) -> list[int]:
    return [header.base_offset for _, header in walk_batches(memoryview(answer.records))]


@in_loop
async def test_an_open_transaction_stays_unseen_in_the_last_of_many_partitions(tmp_path: Path) -> None:
    node = await started_with_backlogs(tmp_path)
    log = node.partitions.find("t", LAST).log
    log.verifies_transactions = False
    append(log, batch(values=[b"committed"]))
    append(log, produced(0, values=[b"open"], transactional=True))
    answer = fetched_last(node, isolation_level=1)
    assert (answer.last_stable_offset, offsets(answer)) == (1, [0])
    await node.stop()


@in_loop
async def test_uncommitted_records_stay_unseen_in_the_last_of_many_partitions(tmp_path: Path) -> None:
    node = await started_with_backlogs(tmp_path)
    log = node.partitions.find("t", LAST).log
    append(log, batch())
    log.append(batch(), leader_epoch=0, now_ms=NOW_MS)
    answer = fetched_last(node)
    assert (answer.high_watermark, offsets(answer)) == (1, [0])
    await node.stop()


@pytest.mark.parametrize("room", [100, 300])
def test_the_last_of_many_partitions_gives_no_more_than_asked(tmp_path: Path, room: int) -> None:
    @in_loop
    async def run() -> None:
        node = await started_with_backlogs(tmp_path)
        for _ in range(10):
            append(node.partitions.find("t", LAST).log, batch())
        assert len(fetched_last(node, partition_max_bytes=room).records) == room
        await node.stop()

    run()


@pytest.mark.limit("broker.config.topic_config.MOST_BETWEEN_INDEX_ENTRIES")
def test_a_read_walks_over_few_batches_however_sparse_an_index_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked = []

    def counted(*place: Any) -> Any:
        walked.append(place)
        return read_header(*place)

    @in_loop
    async def run() -> None:
        node = await started(tmp_path)
        sparse = CreatableTopicConfig(name="index.interval.bytes", value="1000000000")
        topics_of(node).create(
            [CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=[sparse])]
        )
        log = node.partitions.find("t", 0).log
        size = len(batch())
        count = 10 * MOST_BETWEEN_INDEX_ENTRIES // size
        for _ in range(count):
            append(log, batch())
        monkeypatch.setattr(segment, "read_header", counted)
        assert log.read(count - 1, 1000, count).records
        assert len(walked) <= MOST_BETWEEN_INDEX_ENTRIES // size + 2
        await node.stop()

    run()

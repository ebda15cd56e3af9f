"""barnabas starts on folders of Apache Kafka 4.3: after a shutdown, after a kill, with snapshots of the metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from broker.controller.image import BROKER_RESOURCE, TOPIC_RESOURCE
from broker.server import Server
from coordinator.transaction.producer_ids import NoProducerIdError
from protocol.records.batch import walk_batches
from protocol.wire.primitives import uuid_to_text
from storage.checkpoints import read_partition_metadata
from tests.support import kafka_folders
from tests.support.disk import files
from tests.support.kafka_folders import DOWN, KILL, NAMES, NOW_MS, SNAPSHOT
from tests.support.whole_server import crash, in_loop, started, take_turns
from tests.unit.storage.test_kafka_folders import fetch

FEATURES = {
    "metadata.version": 30,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}
TOPICS = {"plain": 2, "compacted": 1, "txn": 2, "__transaction_state": 3, "__consumer_offsets": 3}

Test = Callable[[Server, dict[str, Any]], Coroutine[Any, Any, None]]


def on_each_folder(test: Test) -> Callable[..., None]:
    """Run the test on a broker that started on each of the folders, once as Kafka left it and once as we did."""

    @pytest.mark.parametrize("again", [False, True], ids=["as Kafka left it", "as we left it"])
    @pytest.mark.parametrize("name", NAMES)
    @in_loop
    async def run(tmp_path: Path, name: str, again: bool) -> None:
        data = kafka_folders.unpack(name, tmp_path)
        node = await started(data, now_ms=NOW_MS)
        if again:
            await node.stop()
            node = await started(data, now_ms=NOW_MS)
        await test(node, kafka_folders.contents(name) | {"name": name, "data": data})
        await node.stop()

    run.__name__ = test.__name__
    return run


@on_each_folder
async def test_topics_and_their_ids_are_those_of_the_folders(node: Server, found: dict[str, Any]) -> None:
    topics = dict(TOPICS)
    if found["name"] == SNAPSHOT:
        topics["after-the-snapshot"] = 1
    image = node.metadata.image
    assert {name: len(topic.partitions) for name, topic in image.topics.items()} == topics
    for name, topic in image.topics.items():
        path = found["data"] / f"{name}-0" / "partition.metadata"
        if path.exists():
            assert read_partition_metadata(files, str(path)) == uuid_to_text(topic.topic_id)
    assert not list(found["data"].glob("*-stray"))


@on_each_folder
async def test_features_and_configs_are_kafkas(node: Server, found: dict[str, Any]) -> None:
    image = node.metadata.image
    assert image.features == FEATURES
    assert image.configs[BROKER_RESOURCE, ""] == {"min.insync.replicas": "1"}
    assert image.configs[TOPIC_RESOURCE, "txn"] == {"segment.bytes": "1048576"}
    assert image.configs[TOPIC_RESOURCE, "compacted"] == {"cleanup.policy": "compact"}
    assert node.partitions.by_name["txn"].config.segment_bytes == 1_048_576
    if found["name"] == SNAPSHOT:
        assert image.configs[TOPIC_RESOURCE, "after-the-snapshot"] == {"retention.ms": "1000000"}
        assert node.partitions.by_name["after-the-snapshot"].config.retention_ms == 1_000_000


@on_each_folder
async def test_producer_ids_continue_after_kafkas_block(node: Server, found: dict[str, Any]) -> None:
    with pytest.raises(NoProducerIdError):
        node.producer_ids.next()  # causes a request for a block
    await asyncio.sleep(0)
    take_turns(node)
    assert node.producer_ids.next() == 1000


@on_each_folder
async def test_offsets_and_the_last_stable_offset_are_kafkas(node: Server, found: dict[str, Any]) -> None:
    for name, (start, stable) in found["watermarks"].items():
        topic, _dash, index = name.rpartition("-")
        log = node.partitions.get(topic, int(index)).log
        assert (log.log_start_offset, log.last_stable_offset) == (start, stable)
        assert log.high_watermark == log.log_end_offset


@on_each_folder
async def test_the_records_equal_kafkas(node: Server, found: dict[str, Any]) -> None:
    for index in (0, 1):
        log = node.partitions.get("txn", index).log
        assert fetch(log, committed=True) == found["committed"][str(index)]
        uncommitted = [*found["committed"][str(index)], *found["aborted"][str(index)]]
        uncommitted += found["open"][str(index)] + ["after the open one"] * (index == 0)
        assert sorted(fetch(log, committed=False)) == sorted(uncommitted)


@on_each_folder
async def test_the_open_transaction_is_known_with_its_producer(node: Server, found: dict[str, Any]) -> None:
    for index in (0, 1):
        log = node.partitions.get("txn", index).log
        [producer] = [known for known in log.producers.producers.values() if known.txn_first_offset >= 0]
        assert producer.txn_first_offset == log.last_stable_offset
        assert len(log.producers.producers) == 3


@on_each_folder
async def test_this_node_leads_every_partition_in_a_later_epoch(node: Server, found: dict[str, Any]) -> None:
    for topic in node.metadata.image.topics.values():
        for index, partition in topic.partitions.items():
            assert (partition.leader, partition.isr, partition.elr) == (1, [1], [])
            assert partition.leader_epoch >= 2
            assert node.partitions.get(topic.name, index).leader_epoch == partition.leader_epoch


@pytest.mark.parametrize("name", [DOWN, KILL])
@in_loop
async def test_kafkas_files_stay_byte_for_byte(tmp_path: Path, name: str) -> None:
    data = kafka_folders.unpack(name, tmp_path)
    before = {path: path.read_bytes() for path in data.glob("*-*/*.log")}
    node = await started(data, now_ms=NOW_MS)
    await node.stop()
    for path, content in before.items():
        assert path.read_bytes()[: len(content)] == content


@in_loop
async def test_an_incomplete_snapshot_is_skipped_for_the_previous_one(tmp_path: Path) -> None:
    data = kafka_folders.unpack(SNAPSHOT, tmp_path)
    folder = data / "__cluster_metadata-0"
    newest = folder / "00000000000000000097-0000000001.checkpoint"
    newest.chmod(0o600)
    newest.write_bytes(newest.read_bytes()[:-1])
    node = await started(data, now_ms=NOW_MS)
    assert len(node.metadata.image.topics) == 6
    assert node.metadata.snapshots.newest is not None
    assert node.metadata.snapshots.newest.offset == 96
    assert not newest.exists()
    crash(node)


@in_loop
async def test_snapshots_below_the_log_and_leftovers_are_deleted_as_kafka_does(tmp_path: Path) -> None:
    data = kafka_folders.unpack(SNAPSHOT, tmp_path)
    folder = data / "__cluster_metadata-0"
    (folder / "00000000000000000099-0000000001-123.checkpoint.part").write_bytes(b"")
    (folder / "00000000000000000078-0000000001.checkpoint.deleted").write_bytes(b"")
    node = await started(data, now_ms=NOW_MS)
    assert node.metadata.log.log_start_offset == 80
    offsets = sorted(int(path.name[:20]) for path in folder.glob("*.checkpoint*"))
    assert offsets[0] == 80
    assert offsets[-1] == 97
    assert not [path for path in folder.iterdir() if path.suffix in (".part", ".deleted")]
    await node.stop()


@in_loop
async def test_a_log_that_ends_before_its_newest_snapshot_restarts_after_it(tmp_path: Path) -> None:
    data = kafka_folders.unpack(SNAPSHOT, tmp_path)
    folder = data / "__cluster_metadata-0"
    last = folder / "00000000000000000094.log"
    content = last.read_bytes()
    (_, first), *_ = walk_batches(content)
    last.write_bytes(content[: first.size_bytes])  # a follower that was killed before it cut its log
    node = await started(data, now_ms=NOW_MS)
    assert node.metadata.log.log_start_offset == 97
    assert len(node.metadata.image.topics) == 6
    await node.stop()
    again = await started(data, now_ms=NOW_MS)
    assert len(again.metadata.image.topics) == 6
    await again.stop()

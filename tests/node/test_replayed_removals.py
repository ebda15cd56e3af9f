"""A start replays the removal of topics. That is history, so offsets committed since for topics of the same name
stay. Some offsets have no topic id: those that Kafka 4.3 commits in a transaction, or by OffsetCommit v2 to v4 with a
retention, and all that Kafka up to 3.9 has written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from broker.controller.image import ClusterImage, TopicChanges
from broker.controller.snapshots import SnapshotPolicy
from broker.server import Server
from coordinator.group.records import CommittedOffset, OffsetKey, OffsetRecord
from protocol.errors import Error
from protocol.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.metadata_records import RemoveTopicRecord
from protocol.waiting import at_once
from tests.node.hosting import Hosting
from tests.node.metadata_logs import begin, topic
from tests.node.observers import Controller, catch_up, observer_in
from tests.node.transactional import Producer, ask, committed, coordinating, create, delete
from tests.support.whole_server import crash

DAY_MS = 86_400_000
WITH_SNAPSHOTS = "metadata.log.max.record.bytes.between.snapshots=1"

Commit = Callable[[Server], None]


async def recreated(folder: Path, *settings: str) -> Server:
    """Start a broker whose topic `t` is the second one of that name."""
    node = await coordinating(folder, *settings)
    delete(node, "t")
    create(node, "t")
    return node


async def restarted(node: Server, folder: Path, *, clean: bool = False) -> Server:
    if clean:
        await node.stop()
    else:
        crash(node)
    return await coordinating(folder)


def in_transaction(node: Server) -> None:
    producer = Producer(node).begin()
    assert producer.commit_offsets(7) == [Error.NONE]
    assert producer.end() is Error.NONE


def with_retention(node: Server) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    asked = OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = OffsetCommitRequest(group_id="g", retention_time_ms=DAY_MS, topics=[asked])
    assert ask(node, request, 4).topics[0].partitions[0].error_code == Error.NONE


def by_an_older_kafka(node: Server) -> None:
    [shard] = node.groups.all_shards()
    shard.journal.write([OffsetRecord(OffsetKey("g", "t", 0), CommittedOffset(7, -1, "", 0))])


@pytest.mark.parametrize("settings", [(), (WITH_SNAPSHOTS,)], ids=["log", "snapshot"])
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("commit", [in_transaction, with_retention, by_an_older_kafka])
async def test_an_offset_without_a_topic_id_outlives_a_start_after_a_namesake_was_deleted(
    tmp_path: Path, commit: Commit, clean: bool, settings: tuple[str, ...]
) -> None:
    node = await recreated(tmp_path, *settings)
    commit(node)
    for _ in range(2):  # what a start removes is removed for good
        assert committed(node) == (7, Error.NONE)
        node = await restarted(node, tmp_path, clean=clean)
    assert committed(node) == (7, Error.NONE)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
async def test_an_offset_of_a_transaction_that_is_open_over_a_start_counts_once_that_is_committed(
    tmp_path: Path, clean: bool
) -> None:
    node = await recreated(tmp_path)
    producer = Producer(node).begin()
    assert producer.commit_offsets(7) == [Error.NONE]
    producer.node = await restarted(node, tmp_path, clean=clean)
    assert committed(producer.node) == (-1, Error.UNSTABLE_OFFSET_COMMIT)
    assert producer.end() is Error.NONE
    assert committed(producer.node) == (7, Error.NONE)


async def test_an_offset_without_a_topic_id_goes_with_a_topic_that_is_deleted_after_a_start(
    tmp_path: Path,
) -> None:
    node = await recreated(tmp_path)
    with_retention(node)
    node = await restarted(node, tmp_path)
    delete(node, "t")
    assert committed(node) == (-1, Error.NONE)


async def test_an_offset_that_names_a_deleted_topic_by_its_id_goes_at_the_next_start(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    gone = node.metadata.image.topics["t"].topic_id
    delete(node, "t")
    create(node, "t")
    [shard] = node.groups.all_shards()  # as if the tombstone had got lost
    record = OffsetRecord(OffsetKey("g", "t", 0), CommittedOffset(7, -1, "", 0, topic_id=gone))
    shard.journal.write([record])
    node = await restarted(node, tmp_path)
    assert committed(node) == (-1, Error.NONE)


async def test_a_coordinator_forgets_only_by_id_topics_deleted_before_it_came(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    with_retention(node)
    gone = TopicChanges({}, [node.metadata.image.topics["t"]], [])
    node.groups.unload()  # as if another node had led the partition, and had taken the offset after the deletion
    at_once(node.groups.follow(gone))
    assert committed(node) == (7, Error.NONE)
    at_once(node.groups.follow(gone))
    assert committed(node) == (-1, Error.NONE)


async def test_shards_learn_whether_they_came_with_the_change_though_they_load_later(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.coordination.hosted_shards.AT_ONCE", 0)
    create(node, "t", 2)
    hosting = Hosting(node)
    told: list[tuple[int, bool]] = []

    def tell(change: int) -> None:
        async def note(_: object, is_new: bool) -> None:
            told.append((change, is_new))

        hosting.follow()
        at_once(hosting.shards.tell_in_steps(note))

    tell(1)
    tell(2)
    hosting.shards._take_turn()
    tell(3)
    assert sorted(told) == [(1, True), (1, True), (2, False), (2, False), (3, False), (3, False)]


# --- what whoever follows the metadata is told ----------------------------------------------------------------


def told(image: ClusterImage) -> tuple[list[str], list[str], list[str]]:
    changes = image.take_changes()
    removed, bygone = ([each.name for each in some] for some in (changes.removed, changes.bygone))
    return [*changes.touched], removed, bygone


def removal(name: str) -> RemoveTopicRecord:
    return RemoveTopicRecord(topic_id=name.encode().ljust(16, b"-"))


def test_a_topic_that_came_and_went_between_two_looks_is_bygone_and_not_removed() -> None:
    image = ClusterImage()
    for record in (*topic("stays"), *topic("goes"), removal("goes"), *topic("later")):
        image.apply(record)
    assert told(image) == (["stays", "later"], [], ["goes"])

    image.apply(removal("later"))
    assert told(image) == ([], ["later"], [])


def test_an_observer_that_begins_with_a_snapshot_hears_only_of_topics_it_knew(tmp_path: Path) -> None:
    metadata = begin(tmp_path / "leader", SnapshotPolicy(1, 0, 0, -1), segment_bytes=400)
    metadata.append(topic("stays"))
    observer = observer_in(tmp_path / "observer")
    catch_up(observer, Controller(metadata))
    image = observer._metadata.image
    assert told(image)[1:] == ([], [])
    metadata.append(topic("seen"))
    catch_up(observer, Controller(metadata))
    assert told(image)[1:] == ([], [])
    metadata.append(topic("unseen"))
    catch_up(observer, Controller(metadata))  # nobody looks at it meanwhile
    for name in ("seen", "unseen"):
        metadata.append([removal(name)])
    metadata.append(topic("comes"))
    metadata.snapshots.clean(0)
    assert metadata.log.log_start_offset > observer._log.log_end_offset
    catch_up(observer, Controller(metadata))
    assert told(image) == (["stays", "comes"], ["seen"], ["unseen"])

"""A log directory that fails while others remain: its partitions are offline, and all else goes on (KIP-112)."""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.controller import metadata_log
from broker.handlers import (
    alter_replica_log_dirs,
    delete_records,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    elect_leaders,
    find_coordinator,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
)
from broker.replicas.fetch_sessions import FetchTarget
from broker.replicas.fetching import DelayedFetch, FetchParameters, Reading, Results
from broker.server import Server
from protocol.errors import Error, KafkaError
from protocol.messages.fetch import FetchPartition
from protocol.messages.topics import CreatableTopic
from protocol.waiting import Later
from tests.node.log_dirs import (
    DEADLINE_S,
    KEPT,
    LOST,
    ask,
    fail,
    filled,
    id_of,
    move,
    refuse,
    started,
    until,
    write,
)
from tests.support.answers import answered
from tests.support.disk import files
from tests.support.topics import topics_of
from tests.support.whole_server import crash


@pytest.fixture(autouse=True)
def _a_whole_disk_afterwards() -> Iterator[None]:
    yield
    files.set_fault_hook(None)


def reading(node: Server, index: int, offset: int = 0) -> Reading:
    parameters = FetchParameters(
        api_version=11,
        replica_id=-1,
        max_wait_ms=60_000,
        min_bytes=1_000_000,
        max_bytes=50_000_000,
        read_committed=False,
    )
    wanted = FetchPartition(
        partition=index, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=-1
    )
    found = Reading(node.partitions, parameters, lambda topic: True)
    found.read([FetchTarget("t", wanted)])
    return found


async def waiting(node: Server, found: Reading) -> Results:
    found.forget()
    await DelayedFetch(found).wait(node.scheduler, node.turns)
    found.read_anew(found.found)
    return found.results


def fetched(node: Server, index: int) -> Error:
    [(_, answer)] = reading(node, index).results
    return Error(answer.error_code)


def errors(node: Server, index: int) -> set[Error]:
    """Return the errors that answer requests for the partition."""
    partition = {"partition_index": index, "timestamp": -1, "current_leader_epoch": -1}
    offsets = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "t", "partitions": [partition]}]}
    epoch = {"partition": index, "current_leader_epoch": -1, "leader_epoch": 0}
    epochs = {"replica_id": -2, "topics": [{"topic": "t", "partitions": [epoch]}]}
    deleted = {"partition_index": index, "offset": 0}
    deletion = {"timeout_ms": 1000, "topics": [{"name": "t", "partitions": [deleted]}]}
    producers = {"topics": [{"name": "t", "partition_indexes": [index]}]}
    answers = [
        ask(node, list_offsets, 2, 5, offsets).topics[0].partitions[0],
        ask(node, offset_for_leader_epoch, 23, 3, epochs).topics[0].partitions[0],
        ask(node, delete_records, 21, 2, deletion).topics[0].partitions[0],
        ask(node, describe_producers, 61, 0, producers).topics[0].partitions[0],
    ]
    return {Error(answer.error_code) for answer in answers} | {write(node, index), fetched(node, index)}


async def test_partitions_of_a_failed_directory_get_a_storage_error_and_others_do_not(
    tmp_path: Path,
) -> None:
    node = await filled(tmp_path)
    await fail(node)
    assert errors(node, LOST) == {Error.KAFKA_STORAGE_ERROR}
    assert errors(node, KEPT) == {Error.NONE}
    assert errors(node, 3) == {Error.UNKNOWN_TOPIC_OR_PARTITION}


async def test_partitions_of_a_failed_directory_have_no_leader_and_an_offline_replica(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    await fail(node)
    asked = {"topics": [{"name": "t"}], "allow_auto_topic_creation": False}
    cursor = {"topics": [{"name": "t"}], "response_partition_limit": 10, "cursor": None}
    for topic, without_leader in (
        (ask(node, metadata, 3, 9, asked).topics[0], Error.LEADER_NOT_AVAILABLE),
        (ask(node, describe_topic_partitions, 75, 0, cursor).topics[0], Error.NONE),
    ):
        told = {
            each.partition_index: (each.error_code, each.leader_id, each.leader_epoch, each.isr_nodes)
            for each in topic.partitions
        }
        assert told[LOST] == (without_leader, -1, 1, [])
        assert told[KEPT] == (Error.NONE, 1, 0, [1])
        assert [each.offline_replicas for each in topic.partitions] == [[], [1], []]
    assert node.metadata.image.brokers[1].log_dirs == sorted(id_of(tmp_path, name) for name in "ac")


async def test_the_directory_is_described_as_failed_and_nothing_goes_there(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    await fail(node)
    files.set_fault_hook(None)
    answer = ask(node, describe_log_dirs, 35, 4, {"topics": None})
    assert {Path(each.log_dir).name: Error(each.error_code) for each in answer.results} == {
        "a": Error.NONE,
        "b": Error.KAFKA_STORAGE_ERROR,
        "c": Error.NONE,
    }
    assert move(node, KEPT, tmp_path / "b") is Error.KAFKA_STORAGE_ERROR
    assert move(node, KEPT, tmp_path / "a") is Error.KAFKA_STORAGE_ERROR  # while any directory is offline
    assert move(node, KEPT, tmp_path / "c") is Error.NONE
    assert move(node, LOST, tmp_path / "a") is Error.KAFKA_STORAGE_ERROR
    topics_of(node).create([CreatableTopic(name="u", num_partitions=4, replication_factor=1)])
    assert {node.partitions.get("u", index).directory.path for index in range(4)} == {
        str(tmp_path / "a"),
        str(tmp_path / "c"),
    }


async def test_a_fetch_that_waits_is_answered(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    fetch = node.turns.answer(waiting(node, reading(node, LOST, 1)))
    assert isinstance(fetch, Later)
    await fail(node)
    [(_, answer)] = await asyncio.wait_for(answered(fetch), DEADLINE_S)
    assert answer.error_code == Error.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("name", ["replication-offset-checkpoint", "recovery-point-offset-checkpoint"])
async def test_a_checkpoint_that_cannot_be_written_fails_it(tmp_path: Path, name: str) -> None:
    node = await filled(tmp_path)
    refuse(f"/b/{name}")
    node.housekeeping.checkpoint_high_watermarks()
    node.housekeeping.checkpoint_recovery_points()
    await until(lambda: len(node.log_dirs.all()) == 2)
    assert node.partitions.missing("t", LOST) is Error.KAFKA_STORAGE_ERROR


async def test_a_topic_in_it_can_be_deleted_and_created_again(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    await fail(node)
    topics_of(node).delete([node.metadata.image.topics["t"]])
    topics_of(node).create([CreatableTopic(name="t", num_partitions=3, replication_factor=1)])
    assert errors(node, LOST) == {Error.NONE}
    await node.stop()
    files.set_fault_hook(None)
    again = await started(tmp_path)
    assert again.partitions.get("t", LOST).log.log_end_offset == 1
    assert list((tmp_path / "b").glob("t-1.*-stray"))


async def test_a_folder_that_cannot_be_given_up_fails_it(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    refuse("/b/t-1", "rename")
    topics_of(node).delete([node.metadata.image.topics["t"]])
    await until(lambda: len(node.log_dirs.all()) == 2)


async def test_the_groups_in_it_have_no_coordinator_and_all_others_go_on(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    keys = [f"group-{number}" for number in range(20)]
    asked = {"key_type": 0, "coordinator_keys": keys}
    ask(node, find_coordinator, 10, 4, asked)
    await fail(node)
    offline = node.partitions.by_name["__consumer_offsets"].offline
    assert offline
    answers = ask(node, find_coordinator, 10, 4, asked).coordinators
    for key, answer in zip(keys, answers, strict=True):
        lost = node.groups.partition_of(key) in offline
        assert answer.error_code == (Error.COORDINATOR_NOT_AVAILABLE if lost else Error.NONE)
    await node.stop()
    again = await started(tmp_path, "a", "c")
    assert again.groups.partition_of("group-1") == node.groups.partition_of("group-1")


async def test_a_directory_that_works_again_after_a_restart_has_all_its_records(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    await fail(node)
    await node.stop()
    assert node.failure is None
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "b" / ".kafka_cleanshutdown").exists()
    files.set_fault_hook(None)
    again = await started(tmp_path)
    assert [again.partitions.get("t", index).log.log_end_offset for index in range(3)] == [1, 1, 1]
    assert errors(again, LOST) == {Error.NONE}


async def test_a_move_to_it_is_over(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    refuse("/b/t-2.", "append")
    assert move(node, KEPT, tmp_path / "b") is Error.NONE
    await until(lambda: len(node.log_dirs.all()) == 2)
    assert node.partitions.get("t", KEPT).move is None
    assert errors(node, KEPT) == {Error.NONE}


async def test_the_last_of_two_directories_that_fail_at_once_stays(tmp_path: Path) -> None:
    node = await started(tmp_path, "a", "b", metadata="m")
    topics_of(node).create([CreatableTopic(name="t", num_partitions=2, replication_factor=1)])
    refuse("/t-", "append")
    assert {write(node, index) for index in range(2)} == {Error.KAFKA_STORAGE_ERROR}
    await until(lambda: len(node.log_dirs.all()) == 2)
    await asyncio.sleep(0)
    assert {Path(each.path).name for each in node.log_dirs.all()} == {"b", "m"}
    files.set_fault_hook(None)
    assert write(node, 1) is Error.NONE


async def test_a_failure_that_cannot_be_recorded_is_recorded_later(tmp_path: Path) -> None:
    node = await filled(tmp_path)

    def hook(name: str, path: str, size: int) -> None:
        if "/b/" in path or ("__cluster_metadata" in path and name == "append"):
            raise OSError(errno.EIO, "refused", path)

    files.set_fault_hook(hook)
    assert write(node, LOST) is Error.KAFKA_STORAGE_ERROR
    await until(lambda: len(node.log_dirs.all()) == 2)
    node.housekeeping.record_failed_directories()
    image = node.metadata.image
    assert image.topics["t"].partitions[LOST].leader == 1
    files.set_fault_hook(None)
    node.housekeeping.record_failed_directories()
    assert image.topics["t"].partitions[LOST].leader == -1
    assert image.brokers[1].log_dirs == sorted(id_of(tmp_path, name) for name in "ac")
    written = node.metadata.next_offset
    node.housekeeping.record_failed_directories()
    assert node.metadata.next_offset == written


async def test_partitions_of_a_failed_directory_cannot_be_elected(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    await fail(node)
    asked = {"timeout_ms": 1000, "topic_partitions": [{"topic": "t", "partitions": [LOST]}]}
    for election_type, error in (
        (0, Error.PREFERRED_LEADER_NOT_AVAILABLE),
        (1, Error.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ):
        answer = ask(node, elect_leaders, 43, 2, asked | {"election_type": election_type})
        assert answer.replica_election_results[0].partition_result[0].error_code == error
    assert node.metadata.image.topics["t"].partitions[LOST].leader == -1


async def test_replicas_to_be_created_in_a_failed_directory_go_elsewhere(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    dirs = [{"path": str(tmp_path / "b"), "topics": [{"name": "new", "partitions": [0]}]}]
    ask(node, alter_replica_log_dirs, 34, 2, {"dirs": dirs})
    await fail(node)
    topics_of(node).create([CreatableTopic(name="new", num_partitions=1, replication_factor=1)])
    assert Path(node.partitions.get("new", 0).directory.path).name in ("a", "c")


async def test_the_metadatas_directory_and_the_last_one_answer_errors_and_stay(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    refuse("t-", "append")
    assert {write(node, index) for index in range(3)} == {Error.KAFKA_STORAGE_ERROR}
    await until(lambda: len(node.log_dirs.all()) == 1)
    assert node.log_dirs.all()[0].path == str(tmp_path / "a")
    files.set_fault_hook(None)
    assert write(node, 0) is Error.NONE


async def test_a_log_that_cannot_be_opened_takes_its_directory_offline_at_the_start(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    crash(node)
    refuse("/b/t-1", "list_directory")
    again = await started(tmp_path)
    assert len(again.log_dirs.all()) == 2
    assert errors(again, LOST) == {Error.KAFKA_STORAGE_ERROR}
    assert errors(again, KEPT) == {Error.NONE}
    assert again.metadata.image.topics["t"].partitions[LOST].leader == -1


async def test_a_log_that_cannot_be_opened_is_offline_where_there_is_no_other_directory(
    tmp_path: Path,
) -> None:
    node = await started(tmp_path, "a")
    topics_of(node).create([CreatableTopic(name="t", num_partitions=2, replication_factor=1)])
    write(node, 0)
    write(node, 1)
    crash(node)
    refuse("/a/t-0", "list_directory")
    again = await started(tmp_path, "a")
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        again.partitions.get("t", 0)
    assert again.partitions.get("t", 1).log.log_end_offset == 1
    assert again.metadata.image.topics["t"].partitions[0].leader == -1
    files.set_fault_hook(None)
    await again.stop()
    once_more = await started(tmp_path, "a")
    assert once_more.partitions.get("t", 0).leader().log.log_end_offset == 1


async def test_more_that_is_offline_than_one_batch_holds_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await filled(tmp_path)
    topics_of(node).create([CreatableTopic(name="u", num_partitions=6, replication_factor=1)])
    monkeypatch.setattr(metadata_log, "MAX_RECORDS_PER_BATCH", 2)
    await fail(node)
    offline = node.partitions.offline()
    assert len(offline) == 3
    topics = node.metadata.image.topics_by_id
    assert {topics[topic_id].partitions[index].leader for topic_id, index in offline} == {-1}
    await node.stop()
    assert node.failure is None


@pytest.mark.fault("volume")
async def test_a_directory_whose_disk_hides_its_size_is_described_as_failed(
    tmp_path: Path,
) -> None:
    node = await filled(tmp_path)
    refuse(f"{tmp_path}/b", "volume")
    results = ask(node, describe_log_dirs, 35, 4, {"topics": None}).results
    told = {Path(each.log_dir).name: (Error(each.error_code), each.total_bytes > 0) for each in results}
    assert told == {"a": (Error.NONE, True), "b": (Error.KAFKA_STORAGE_ERROR, False), "c": (Error.NONE, True)}


async def test_a_directory_that_is_deleted_goes_offline_like_one_that_fails(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    shutil.rmtree(tmp_path / "b")

    node.log_dirs.find_deleted()
    await until(lambda: len(node.log_dirs.all()) == 2)

    assert write(node, LOST) is Error.KAFKA_STORAGE_ERROR
    assert write(node, KEPT) is Error.NONE
    assert node.failure is None
    assert not (tmp_path / "b").exists()


@pytest.mark.fault("exists")
async def test_a_directory_whose_disk_hides_whether_it_exists_goes_offline(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    refuse(f"{tmp_path}/b/", "exists")
    node.log_dirs.find_deleted()
    await until(lambda: len(node.log_dirs.all()) == 2)
    assert node.failure is None


@pytest.mark.parametrize("moved", [False, True])
async def test_the_metadatas_directory_that_is_deleted_or_moved_away_stops_the_node(
    tmp_path: Path, moved: bool
) -> None:
    node = await filled(tmp_path)
    if moved:
        (tmp_path / "a").rename(tmp_path / "elsewhere")
    else:
        shutil.rmtree(tmp_path / "a")

    node.log_dirs.find_deleted()

    assert f"{tmp_path / 'a'} was deleted or replaced" in str(node.failure)
    await node.stop()
    assert not (tmp_path / "a").exists()


async def test_a_topic_that_needs_a_deleted_directory_does_not_recreate_it(tmp_path: Path) -> None:
    node = await started(tmp_path, "a")
    shutil.rmtree(tmp_path / "a")

    topics_of(node).create([CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    assert write(node, 0) is Error.KAFKA_STORAGE_ERROR

    assert "was deleted or replaced" in str(node.failure)
    await node.stop()
    assert not (tmp_path / "a").exists()

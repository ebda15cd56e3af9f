"""A change of the metadata is told once it is on the disk."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.environment.environment import Environment
from broker.handlers import find_coordinator, init_producer_id, metadata
from broker.server import Server
from protocol.errors import Error
from protocol.messages.metadata import FindCoordinatorRequest, MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import InitProducerIdRequest
from protocol.messages.topics import CreatableTopic
from protocol.waiting import Later
from tests.support import whole_server
from tests.support.disk import files
from tests.support.held_syncs import HeldSyncs
from tests.support.manual_clock import ManualClock
from tests.support.nodes import begin
from tests.support.partition_logs import NOW_MS, append, batch
from tests.support.submitting import ask_controller
from tests.support.whole_server import configured, handled, in_loop, take_turns

PATIENCE_S = 30


async def started(folder: Path, *settings: str) -> tuple[Server, HeldSyncs]:
    syncs = HeldSyncs()
    here = replace(Environment.of_this_machine(ManualClock(), files), background=syncs)
    node = await begin(configured(folder, *settings), here)
    node.metadata.commit_when_synced()
    syncs.is_held = True
    return node, syncs


def context(listener_name: str, api_version: int) -> Any:
    return SimpleNamespace(listener_name=listener_name, api_version=api_version)


def asked_to_create(node: Server, *names: str) -> list[Any]:
    """Ask to create these topics. Returns the list of answers, which may come later."""
    answers: list[Any] = []
    wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    ask_controller(node.controller, node.topics.create(wanted), answers.append)
    return answers


def answered(asked: Any) -> Any:
    """Return the answer, or None if it hasn't come yet."""
    if not isinstance(asked, Later):
        return asked
    return asked.result() if asked.answer() is not asked else None


def described(node: Server, *names: str) -> Any:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    return handled(node, metadata, context("PLAINTEXT", 9), request)


@in_loop
async def test_a_topic_exists_and_its_client_is_answered_once_the_disk_has_it(tmp_path: Path) -> None:
    node, syncs = await started(tmp_path)
    answers = asked_to_create(node, "t")
    assert answers == []
    assert "t" not in node.metadata.image.topics
    assert node.partitions.find("t", 0) is None
    syncs.run_one()
    take_turns(node)
    assert "t" in node.metadata.image.topics
    assert len(answers) == 1
    await node.stop()


@in_loop
async def test_changes_that_come_while_one_is_synced_share_the_next_sync(tmp_path: Path) -> None:
    node, syncs = await started(tmp_path)
    answers = [asked_to_create(node, f"t{number}") for number in range(5)]
    syncs.run_one()
    take_turns(node)
    assert [len(each) for each in answers] == [1, 0, 0, 0, 0]
    syncs.run_one()
    take_turns(node)
    assert [len(each) for each in answers] == [1] * 5
    assert syncs.waiting == []
    assert [*node.metadata.image.topics] == [f"t{number}" for number in range(5)]
    await node.stop()


@in_loop
async def test_decisions_see_records_written_but_not_yet_synced(tmp_path: Path) -> None:
    node, syncs = await started(tmp_path)
    asked_to_create(node, "t")
    again = asked_to_create(node, "t")
    await syncs.finish()
    take_turns(node)
    ((_, refused),) = again[0]
    assert refused.error is Error.TOPIC_ALREADY_EXISTS
    await node.stop()


@in_loop
async def test_a_topic_whose_deletion_is_not_synced_is_not_deleted_twice(tmp_path: Path) -> None:
    node, syncs = await started(tmp_path)
    asked_to_create(node, "t")
    syncs.run_one()
    take_turns(node)
    topic = node.metadata.image.topics["t"]
    first: list[Any] = []
    second: list[Any] = []
    ask_controller(node.controller, node.topics.delete([topic]), first.append)
    ask_controller(node.controller, node.topics.delete([topic]), second.append)
    await syncs.finish()
    take_turns(node)
    assert first == [[(topic, None)]]
    ((_, refused),) = second[0]
    assert refused.error is Error.UNKNOWN_TOPIC_OR_PARTITION
    await node.stop()


@in_loop
async def test_a_topic_that_metadata_creates_is_announced_once_the_disk_has_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    node, syncs = await started(tmp_path)
    first, second = described(node, "t"), described(node, "t")
    assert answered(first) is None
    await syncs.finish()
    take_turns(node)
    for each in (first, second):
        (topic,) = answered(each).topics
        assert (topic.error_code, len(topic.partitions)) == (Error.LEADER_NOT_AVAILABLE, 0)
    (topic,) = answered(described(node, "t")).topics
    assert (topic.error_code, len(topic.partitions)) == (Error.NONE, 1)
    assert "created topic t automatically" in caplog.text
    assert "is not created automatically" not in caplog.text
    await node.stop()


@in_loop
async def test_a_topic_whose_directory_fails_before_it_is_synced_has_no_leader(tmp_path: Path) -> None:
    log_dirs = ",".join(str(tmp_path / name) for name in "abc")
    node, syncs = await started(tmp_path, f"log.dirs={log_dirs}", f"metadata.log.dir={tmp_path / 'a'}")
    asked_to_create(node, "t0", "t1", "t2")
    lost_id = [*node.log_dirs.online][1]
    node.log_dirs.report(node.log_dirs.online[lost_id], OSError("the disk is gone"))
    while node.log_dirs.failing:
        await asyncio.sleep(0)
    await syncs.finish()
    take_turns(node)
    of_topic = {name: node.metadata.image.topics[name].partitions[0] for name in ("t0", "t1", "t2")}
    (lost,) = [name for name, each in of_topic.items() if each.directories == [lost_id]]
    assert {name: each.leader for name, each in of_topic.items()} == {**dict.fromkeys(of_topic, 1), lost: -1}
    assert node.partitions.missing(lost, 0) is Error.KAFKA_STORAGE_ERROR
    await node.stop()


@in_loop
async def test_a_coordinator_is_found_though_its_topic_is_made_for_it(tmp_path: Path) -> None:
    node, syncs = await started(tmp_path)
    asked = handled(
        node, find_coordinator, context("PLAINTEXT", 3), FindCoordinatorRequest(key="g", key_type=0)
    )
    assert answered(asked) is None
    await syncs.finish()
    take_turns(node)
    assert answered(asked).error_code == Error.NONE
    await node.stop()


@in_loop
async def test_a_producer_id_is_given_out_once_its_block_is_on_the_disk(tmp_path: Path) -> None:
    node, syncs = await started(tmp_path)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    first, second = (handled(node, init_producer_id, context("PLAINTEXT", 4), request) for _ in range(2))
    assert answered(first) is None
    await syncs.finish()
    take_turns(node)
    assert [answered(each).producer_id for each in (first, second)] == [0, 1]
    third = handled(node, init_producer_id, context("PLAINTEXT", 4), request)
    assert third.producer_id == 2
    await node.stop()


@in_loop
async def test_a_failing_disk_refuses_waiting_and_later_requests(tmp_path: Path) -> None:
    node, syncs = await started(tmp_path)
    answers = asked_to_create(node, "t")
    syncs.fail_one()
    take_turns(node)
    ((_, refused),) = answers[0]
    assert refused.error is Error.KAFKA_STORAGE_ERROR
    later = asked_to_create(node, "u")
    ((_, refused),) = later[0]
    assert refused.error is Error.KAFKA_STORAGE_ERROR
    (topic,) = answered(described(node, "t")).topics
    assert topic.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    await node.stop()


@in_loop
async def test_a_change_does_not_wait_for_the_slow_sync_of_a_partition(tmp_path: Path) -> None:
    node = await whole_server.started(tmp_path)
    node.metadata.commit_when_synced()
    is_told = threading.Event()
    is_syncing = threading.Event()

    def slow(operation: str, path: str, size: int) -> None:
        if operation == "sync" and "/t-0/" in path and not is_told.is_set():
            is_syncing.set()
            assert is_told.wait(PATIENCE_S)

    await created(node, "t")
    files.set_fault_hook(slow)
    log = node.partitions.get("t", 0).log
    append(log, batch())
    log.flush(NOW_MS)
    await asyncio.to_thread(is_syncing.wait, PATIENCE_S)
    try:
        await asyncio.wait_for(created(node, "u"), PATIENCE_S)
        assert log.recovery_point == 0
    finally:
        is_told.set()
    await node.stop()


async def created(node: Server, name: str) -> None:
    told = asyncio.get_running_loop().create_future()
    wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1)]
    ask_controller(node.controller, node.topics.create(wanted), told.set_result, told.set_exception)
    await told

"""DeleteRecords of a partition on its way to another log directory: it is answered once the log there follows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from broker.disks import moves
from broker.server import Server
from protocol.errors import Error
from protocol.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.waiting import Later
from tests.node.log_dir_moves import (
    DEADLINE_S,
    catch_up,
    expected,
    filled,
    lag,
    move,
    moved,
    partition_of,
    until,
    values,
)
from tests.node.transactional import ask
from tests.support.manual_clock import ManualClock
from tests.support.whole_server import crash, take_turns

OFFSET = 20


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "SLICE_BATCHES", 2)
    monkeypatch.setattr(moves, "RETRY_S", 0.001)


def delete(node: Server) -> Any:
    topics = [
        DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=OFFSET)])
    ]
    return ask(node, DeleteRecordsRequest(topics=topics, timeout_ms=60_000), 2)


def result(response: Any) -> tuple[Error, int]:
    [topic] = response.topics
    [partition] = topic.partitions
    return Error(partition.error_code), partition.low_watermark


def is_told(deleted: Any) -> bool:
    return not isinstance(deleted.answer(), Later)


async def test_a_request_waits_until_the_log_there_begins_at_the_offset(tmp_path: Path) -> None:
    node = await filled(tmp_path, "replica.alter.log.dirs.io.max.bytes.per.second=100")
    move(node, tmp_path / "b")
    change = partition_of(node).move
    assert change is not None
    await until(lambda: 0 < change.log.log_end_offset < OFFSET)
    deleted = delete(node)
    assert not is_told(deleted)
    assert change.log.log_start_offset == 0
    async with asyncio.timeout(DEADLINE_S):
        while not is_told(deleted):
            cast(ManualClock, node.clock).advance_ms(100)
            await asyncio.sleep(0.002)
    take_turns(node)
    assert result(deleted.answer()) == (Error.NONE, OFFSET)
    assert partition_of(node).move is change
    assert change.log.log_start_offset == OFFSET
    crash(node)


async def test_a_change_of_places_answers_the_request(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    lag(node)
    move(node, tmp_path / "b")
    change = partition_of(node).move
    assert change is not None
    await until(lambda: change.assigning)
    deleted = delete(node)
    assert not is_told(deleted)
    catch_up(node)
    await moved(node)
    take_turns(node)
    assert result(deleted.answer()) == (Error.NONE, OFFSET)
    assert values(node) == expected(start=OFFSET)
    crash(node)


async def test_giving_up_the_move_answers_the_request(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    move(node, tmp_path / "b")
    deleted = delete(node)
    assert not is_told(deleted)
    move(node, tmp_path / "a")
    take_turns(node)
    assert result(deleted.answer()) == (Error.NONE, OFFSET)
    crash(node)

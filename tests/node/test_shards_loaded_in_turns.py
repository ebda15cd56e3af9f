"""A long log is loaded in turns of the loop. The tests say what is served meanwhile, and what a shard knows in the
end."""

from __future__ import annotations

import asyncio
import errno
import logging
from pathlib import Path

import pytest

from broker.coordination import hosted_shards
from broker.coordination.hosted_shards import STEP_COST
from broker.server import Server
from protocol.errors import Error, KafkaError
from protocol.waiting import at_once
from tests.node import log_dir_moves
from tests.node.hosting import NONSENSE, Hosting, RecordedShard, elect_again
from tests.node.transactional import create, delete
from tests.support.disk import files


def append_many(hosting: Hosting, index: int, steps: int) -> None:
    """Append records that take this many steps to load."""
    batch = [(b"%d" % number, b"value") for number in range(STEP_COST)]
    for _ in range(steps):
        hosting.runtime_of(hosting.node.partitions.get("t", index)).append(batch)


STEPS_AT_ONCE = hosted_shards.AT_ONCE // STEP_COST


async def loaded(hosting: Hosting, index: int) -> None:
    """Wait until the shard is loaded. Raises AssertionError if that takes too many turns of the loop."""
    for _ in range(2 * STEPS_AT_ONCE):
        if index in hosting.loaded():
            return
        await asyncio.sleep(0)
    raise AssertionError(f"the shard of {index} isn't loaded")


@pytest.mark.limit("broker.coordination.hosted_shards.AT_ONCE")
async def test_a_long_log_is_loaded_in_turns_and_the_next_partition_waits_for_it(node: Server) -> None:
    create(node, "t", 3)
    hosting = Hosting(node)
    append_many(hosting, 0, STEPS_AT_ONCE - 1)
    append_many(hosting, 1, 3)
    hosting.append(2, b"a")

    hosting.follow()

    assert hosting.loaded() == [0]
    assert hosting.error_at(1) is hosting.error_at(2) is Error.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        hosting.shards.all()
    await asyncio.sleep(0)
    assert hosting.loaded() == [0]
    await loaded(hosting, 1)
    await loaded(hosting, 2)
    assert hosting.events[-1] == "start"
    assert "replay a" in hosting.events
    assert hosting.events.count("start") == 3


async def test_others_are_served_while_a_shard_is_loaded_before_a_change_is_followed(
    node: Server,
) -> None:
    create(node, "t", 150)
    hosting = Hosting(node)
    append_many(hosting, 0, 3)
    steps = hosting.shards.follow()

    read = 0
    for _ in range(3):
        steps.send(None)
        assert read < len(hosting.events) <= read + STEP_COST
        read = len(hosting.events)
        assert hosting.error_at(0) is hosting.error_at(149) is Error.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.sleep(0)
        assert len(hosting.events) == read  # nothing is read beside it
    steps.send(None)
    assert 0 in hosting.loaded()
    assert hosting.error_at(149) is Error.COORDINATOR_LOAD_IN_PROGRESS
    at_once(steps)
    assert len(hosting.loaded()) == 150


async def test_values_that_are_long_to_replay_are_fewer_in_a_step(node: Server) -> None:
    create(node, "t")
    hosting = Hosting(node)
    hosting.runtime_of(node.partitions.get("t", 0)).append(
        [(b"%d" % each, bytes(3_200)) for each in range(50)]
    )
    steps = hosting.shards.follow()

    steps.send(None)
    assert 1 <= len(hosting.events) <= 5
    at_once(steps)
    await loaded(hosting, 0)
    assert len(hosting.events) == 51


async def test_a_load_that_stops_between_two_steps_reads_no_more(node: Server) -> None:
    create(node, "t")
    hosting = Hosting(node)
    append_many(hosting, 0, 3)
    steps = hosting.shards.follow()
    steps.send(None)

    read = len(hosting.events)
    hosting.shards.unload()
    at_once(steps)
    await asyncio.sleep(0)

    assert len(hosting.events) == read
    assert hosting.error_at(0) is Error.NOT_COORDINATOR


async def test_a_shard_has_all_records_appended_while_it_was_loaded(node: Server) -> None:
    create(node, "t")
    hosting = Hosting(node)
    append_many(hosting, 0, STEPS_AT_ONCE + 1)
    hosting.follow()

    hosting.append(0, b"late")
    await loaded(hosting, 0)

    assert hosting.events[-2:] == ["replay late", "start"]


async def test_a_shard_learns_after_its_start_what_it_missed_while_loading(node: Server) -> None:
    create(node, "t")
    hosting = Hosting(node)
    append_many(hosting, 0, STEPS_AT_ONCE + 1)
    hosting.follow()

    hosting.shards.tell(lambda shard: shard.told("first"))
    hosting.shards.tell(lambda shard: shard.told("second"))
    await loaded(hosting, 0)

    assert hosting.events[-3:] == ["start", "first", "second"]


async def test_a_shard_that_goes_while_it_is_loaded_never_starts(node: Server) -> None:
    create(node, "t")
    hosting = Hosting(node)
    append_many(hosting, 0, STEPS_AT_ONCE + 1)
    hosting.follow()

    delete(node, "t")
    hosting.follow()
    for _ in range(STEPS_AT_ONCE):
        await asyncio.sleep(0)

    assert hosting.error_at(0) is Error.NOT_COORDINATOR
    assert {event.split()[0] for event in hosting.events} == {"replay"}


@pytest.mark.parametrize("reloads", [False, True])
async def test_a_new_leader_epoch_comes_while_a_shard_is_loaded(node: Server, reloads: bool) -> None:
    create(node, "t")
    hosting = Hosting(node, reloads_in_new_epoch=reloads)
    append_many(hosting, 0, STEPS_AT_ONCE + 1)
    hosting.follow()
    replayed = len(hosting.events)

    elect_again(node, "t")
    hosting.follow()
    assert len(hosting.events) == (2 if reloads else 1) * replayed
    await loaded(hosting, 0)

    assert hosting.shards.at(0).leader_epoch == (1 if reloads else 0)
    assert hosting.events.count("start") == 1
    assert hosting.events.count("replay 0") == STEPS_AT_ONCE + 1 + (STEPS_AT_ONCE if reloads else 0)


async def test_a_partition_that_turns_out_not_to_be_readable_holds_up_no_other(
    node: Server, caplog: pytest.LogCaptureFixture
) -> None:
    create(node, "t", 2)
    hosting = Hosting(node)
    append_many(hosting, 0, STEPS_AT_ONCE + 1)
    hosting.append(0, NONSENSE)
    hosting.follow()

    with caplog.at_level(logging.ERROR, "barnabas.coordination"):
        await loaded(hosting, 1)

    assert caplog.messages == [
        f"the things of t-0 can't be loaded: at offset {STEP_COST * (STEPS_AT_ONCE + 1)}: nonsense"
    ]
    assert hosting.error_at(0) is Error.COORDINATOR_LOAD_IN_PROGRESS
    hosting.shards.tell(lambda shard: shard.told("all who can be told"))
    assert hosting.events[-2:] == ["start", "all who can be told"]


async def test_nothing_is_compacted_while_it_is_loaded(node: Server) -> None:
    create(node, "t")
    hosting = Hosting(node)
    append_many(hosting, 0, STEPS_AT_ONCE + 1)
    partition = node.partitions.get("t", 0)
    hosting.follow()

    assert not node.cleaner._may_be_cleaned(partition)
    await loaded(hosting, 0)
    assert node.cleaner._may_be_cleaned(partition)


async def test_a_stopped_host_loads_nothing_more(node: Server) -> None:
    create(node, "t")
    hosting = Hosting(node)
    append_many(hosting, 0, STEPS_AT_ONCE + 1)
    hosting.follow()

    hosting.shards.stop_loading()
    for _ in range(STEPS_AT_ONCE):
        await asyncio.sleep(0)

    assert hosting.loaded() == []
    assert hosting.error_at(0) is Error.COORDINATOR_LOAD_IN_PROGRESS


async def test_a_partition_that_moves_while_it_is_loaded_is_read_on_in_its_new_directory(
    tmp_path: Path,
) -> None:
    node = await log_dir_moves.started(tmp_path)
    create(node, "t")
    hosting = Hosting(node)
    append_many(hosting, 0, STEPS_AT_ONCE + 5)
    hosting.append(0, b"last")
    partition = node.partitions.get("t", 0)
    assert log_dir_moves.move(node, tmp_path / "b") is Error.NONE
    move = partition.move
    assert move is not None
    await log_dir_moves.until(lambda: move.log.log_end_offset == partition.log.log_end_offset)
    hosting.follow()
    loop_turns, hosting.shards._turn = hosting.shards._turn, None
    assert loop_turns is not None
    loop_turns.cancel()  # until the move is over

    await log_dir_moves.moved(node)
    assert partition.directory.path == str(tmp_path / "b")
    assert hosting.loaded() == []
    for _ in range(10):
        hosting.shards._take_turn()

    assert hosting.loaded() == [0]
    assert len(hosting.events) == STEP_COST * (STEPS_AT_ONCE + 5) + 2
    assert hosting.events[-2:] == ["replay last", "start"]


async def test_many_small_partitions_cost_no_more_than_a_large_one(node: Server) -> None:
    create(node, "t", 40)
    hosting = Hosting(node)
    for index in range(40):
        batch = [(b"%d" % number, b"value") for number in range(STEP_COST * 4 // 5)]
        hosting.runtime_of(node.partitions.get("t", index)).append(batch)

    hosting.follow()

    first = len(hosting.loaded())
    assert STEPS_AT_ONCE <= first <= STEPS_AT_ONCE * 3 // 2
    await asyncio.sleep(0)
    assert first < len(hosting.loaded()) <= first + 2
    hosting.shards.stop_loading()


async def test_too_little_memory_puts_loading_off(
    node: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hosted_shards, "_RETRY_S", 0.001)
    create(node, "t", 2)
    hosting = Hosting(node)
    append_many(hosting, 0, 2)
    hosting.append(1, b"a")
    monkeypatch.setattr(RecordedShard, "replay", _no_memory)

    hosting.follow()
    assert hosting.error_at(0) is hosting.error_at(1) is Error.COORDINATOR_LOAD_IN_PROGRESS
    monkeypatch.undo()
    await log_dir_moves.until(lambda: hosting.loaded() == [0, 1])

    assert caplog.messages == ["the things of t-0 will be loaded later: there is too little memory"]
    assert hosting.events.count("replay 0") == 2
    assert hosting.events.count("start") == 2


async def test_no_descriptor_left_puts_loading_off(
    node: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hosted_shards, "_RETRY_S", 0.001)
    create(node, "t")
    hosting = Hosting(node)
    hosting.append(0, b"a")
    caplog.clear()

    def refuse(operation: str, path: str, _size: int) -> None:
        if operation.startswith("read") and "/t-0/" in path:
            raise OSError(errno.EMFILE, "too many", path)

    files.set_fault_hook(refuse)
    hosting.follow()
    assert hosting.error_at(0) is Error.COORDINATOR_LOAD_IN_PROGRESS
    files.set_fault_hook(None)
    await log_dir_moves.until(lambda: hosting.loaded() == [0])

    assert "the things of t-0 will be loaded later: too many files are open" in caplog.messages
    assert hosting.events == ["replay a", "start"]


async def test_a_shard_that_lacked_memory_to_start_is_loaded_again(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted_shards, "_RETRY_S", 0.001)
    create(node, "t", 2)
    hosting = Hosting(node)
    hosting.append(0, b"a")
    monkeypatch.setattr(RecordedShard, "start", _no_memory)

    hosting.follow()
    assert hosting.error_at(0) is hosting.error_at(1) is Error.COORDINATOR_LOAD_IN_PROGRESS
    monkeypatch.undo()
    await log_dir_moves.until(lambda: hosting.loaded() == [0, 1])

    assert [event for event in hosting.events if event != "unload"] == ["replay a"] * 2 + ["start"] * 2


async def test_a_shard_that_lacked_memory_to_learn_learns_when_it_is_reloaded(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted_shards, "_RETRY_S", 0.001)
    create(node, "t")
    hosting = Hosting(node)
    append_many(hosting, 0, STEPS_AT_ONCE + 1)
    hosting.follow()
    tries = iter([_no_memory, lambda shard: shard.told("first")])

    hosting.shards.tell(lambda shard: next(tries)(shard))
    hosting.shards.tell(lambda shard: shard.told("second"))
    await log_dir_moves.until(lambda: hosting.events[-1:] == ["second"])

    assert hosting.events[-3:] == ["start", "first", "second"]
    assert hosting.loaded() == [0]


def _no_memory(*_: object) -> None:
    raise MemoryError

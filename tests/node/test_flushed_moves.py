"""A partition is moved to another directory, or deleted, while somebody waits for `flush.messages` to be synced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from broker.environment.environment import Environment
from broker.process.command_line import parse_command_line
from broker.server import Server
from protocol.errors import Error, KafkaError
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig
from protocol.records.batch import build_batch
from storage.background import Lane
from tests.support.disk import files
from tests.support.held_syncs import HeldSyncs
from tests.support.immediate_background import run_at_once
from tests.support.manual_clock import ManualClock
from tests.support.nodes import begin
from tests.support.topics import topics_of


class Heard:
    """Notes who was told, and with which error."""

    def __init__(self) -> None:
        self.all: list[tuple[str, Error]] = []

    def __call__(self, name: str) -> Callable[[KafkaError | None], None]:
        return lambda error: self.all.append((name, Error.NONE if error is None else error.error))


async def started(folder: Path, background: HeldSyncs) -> Server:
    """Start a node with a topic of one partition, which is synced after every two records."""
    arguments = ["--port", "0", "-o", "log.dirs=" + ",".join(str(folder / name) for name in "ab")]
    arguments += ["-o", "metadata.log.dir=" + str(folder / "m")]
    here = Environment.of_this_machine(ManualClock(1_700_000_000_000), files)
    node = await begin(parse_command_line(arguments, {}).config, replace(here, background=background))
    flush = CreatableTopicConfig(name="flush.messages", value="2")
    topics_of(node).create(
        [CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=[flush])]
    )
    background.is_held = True
    return node


def append_two(node: Server, then: Callable[[KafkaError | None], None]) -> None:
    leader = node.partitions.get("t", 0).leader()
    for _ in range(2):
        leader.log.append(
            build_batch([(node.clock.now_ms(), None, b"x", ())]),
            leader_epoch=leader.leader_epoch,
            now_ms=node.clock.now_ms(),
        )
        leader.advance()
    leader.when_committed(leader.log.log_end_offset, then)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(240):
        while not condition():
            await asyncio.sleep(0)


async def test_a_waiter_for_a_commit_is_called_by_the_log_that_a_move_brings(tmp_path: Path) -> None:
    background, heard = HeldSyncs(), Heard()
    node = await started(tmp_path, background)
    partition = node.partitions.get("t", 0)
    append_two(node, heard("first"))
    append_two(node, heard("second"))
    there = next(
        key for key, directory in node.log_dirs.online.items() if directory is not partition.directory
    )
    node.moves.begin(partition, there)
    future = partition.move.log if partition.move is not None else None
    assert future is not None
    await until(lambda: future.flushing.running)
    while partition.move is not None:  # the flush of the future log overtakes that of the present one
        if background.waiting:
            run_at_once(*background.waiting.pop(), lane=Lane.FLUSHING)
        await asyncio.sleep(0)
    assert partition.log is future
    assert heard.all == [("first", Error.NONE), ("second", Error.NONE)]
    append_two(node, heard("later"))
    while background.waiting:
        background.run_one()
    assert heard.all[2:] == [("later", Error.NONE)]
    assert len(partition.leader()._waiters) == 0
    await node.stop()


async def test_a_waiter_for_a_commit_in_a_deleted_topic_learns_that_it_is_not_led_here(
    tmp_path: Path,
) -> None:
    background, heard = HeldSyncs(), Heard()
    node = await started(tmp_path, background)
    append_two(node, heard("committed"))
    topics_of(node).delete([node.metadata.image.topics["t"]])
    assert heard.all == [("committed", Error.NOT_LEADER_OR_FOLLOWER)]
    await node.stop()

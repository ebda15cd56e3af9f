"""A follower's partition moves to another log directory, while its leader's log makes it lose its end."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from pathlib import Path

import pytest

from broker.controller.image import UNASSIGNED
from broker.disks import moves
from broker.disks.log_dirs import LogDirMove
from broker.environment.environment import Environment
from broker.process.command_line import parse_command_line
from broker.replicas.replica import Follower
from broker.replicas.replica_fetcher import FollowState, ReplicaFetcher
from broker.server import Server
from protocol.messages.metadata_records import PartitionChangeRecord
from protocol.messages.topics import CreatableTopic
from protocol.waiting import at_once
from storage.directory import future_log_copying
from storage.log.partition_log import append_as_follower
from tests.node.followers import Leading, bytes_of
from tests.node.log_dir_moves import (
    append,
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
from tests.support.disk import files
from tests.support.held_syncs import HeldSyncs
from tests.support.manual_clock import ManualClock
from tests.support.nodes import begin
from tests.support.partition_logs import NOW_MS, open_log
from tests.support.replication_quota import AdjustableQuota
from tests.support.topics import topics_of
from tests.support.whole_server import crash

OTHER = 2
IN_COMMON = 5
RECORDS = 8
TURNS = 200
"""More turns than a move of so few records takes."""


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "SLICE_BATCHES", 2)
    monkeypatch.setattr(moves, "RETRY_S", 0.001)


class Followed:
    """A node whose replica has records that its leader lacks. The leader has led since offset `IN_COMMON`."""

    def __init__(self, node: Server, background: HeldSyncs, leader: Leading) -> None:
        self.node = node
        self.background = background
        self.leader = leader
        clock = ManualClock(NOW_MS)
        self.fetcher = ReplicaFetcher(1, lambda: 0, clock, AdjustableQuota(clock))
        self.topic_id = partition_of(node).topic.topic_id

    @property
    def move(self) -> LogDirMove:
        found = partition_of(self.node).move
        assert found is not None
        return found

    @property
    def future_end(self) -> int:
        return self.move.log.log_end_offset

    @property
    def end_offset(self) -> int:
        return partition_of(self.node).log.log_end_offset

    def cut(self) -> None:
        """Have the leader say where the logs diverge, and the replica cut its log off there."""
        self._step()
        assert self.end_offset == IN_COMMON

    def fill(self) -> None:
        """Have the replica fetch until it is level with its leader. That works once its disk has the cut."""
        while self.end_offset < self.leader.log.log_end_offset:
            self._step()
            assert self.fetcher.state_of(self.topic_id, 0) is FollowState.FETCHING

    def _step(self) -> None:
        role = partition_of(self.node).role
        assert isinstance(role, Follower)
        self.fetcher.follow(self.topic_id, "t", 0, role)
        request = self.fetcher.request()
        assert request is not None
        at_once(self.fetcher.answered(request, self.leader.answer(request)))

    async def turns(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)


async def followed(folder: Path) -> Followed:
    background = HeldSyncs()
    arguments = ["--port", "0", "-o", "log.dirs=" + ",".join(str(folder / name) for name in "ab")]
    arguments += ["-o", "metadata.log.dir=" + str(folder / "m")]
    environment = Environment.of_this_machine(ManualClock(NOW_MS), files)
    config = parse_command_line(arguments, {}).config
    node = await begin(config, replace(environment, background=background))
    topics_of(node).create([CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    for number in range(IN_COMMON):
        append(node, b"%d" % number)
    leader = Leading(open_log(folder / "leader"), 0)
    log = partition_of(node).log
    append_as_follower(leader.log, bytes_of(log), leader_epoch=0, now_ms=0, has_gaps=False)
    for _ in range(IN_COMMON, RECORDS):
        append(node, b"lost")
    topic_id = partition_of(node).topic.topic_id
    change = PartitionChangeRecord(
        topic_id=topic_id,
        partition_id=0,
        leader=OTHER,
        replicas=[node.node_id, OTHER],
        isr=[node.node_id, OTHER],
        directories=[node.metadata.image.topics["t"].partitions[0].directories[0], UNASSIGNED],
    )
    node.metadata.append([change])
    leader = Leading(leader.log, partition_of(node).leader_epoch)
    for number in range(IN_COMMON, RECORDS):
        leader.append(f"{number}")
    return Followed(node, background, leader)


def all_values() -> list[bytes]:
    return [b"%d" % number for number in range(RECORDS)]


async def test_records_beyond_the_cut_are_gone_when_the_logs_change_places(tmp_path: Path) -> None:
    """The new directory is being recorded meanwhile, so nothing wakes the move."""
    here = await followed(tmp_path)
    lag(here.node)
    move(here.node, tmp_path / "b")
    await until(lambda: here.move.assigning)
    future = here.move.log
    here.cut()
    here.fill()
    assert future.log_end_offset == here.end_offset == RECORDS
    catch_up(here.node)
    await moved(here.node)
    assert partition_of(here.node).log is future
    assert values(here.node) == all_values()
    assert bytes_of(future) == bytes_of(here.leader.log)
    crash(here.node)


async def test_a_move_ends_without_further_records(tmp_path: Path) -> None:
    here = await followed(tmp_path)
    lag(here.node)
    move(here.node, tmp_path / "b")
    await until(lambda: here.move.assigning)
    here.cut()
    catch_up(here.node)
    await here.turns()
    assert partition_of(here.node).move is None
    assert values(here.node) == all_values()[:IN_COMMON]
    here.fill()
    assert values(here.node) == all_values()
    crash(here.node)


async def test_a_cut_during_the_copying_is_followed_and_the_copying_goes_on(tmp_path: Path) -> None:
    here = await followed(tmp_path)
    move(here.node, tmp_path / "b")
    await until(lambda: here.future_end > IN_COMMON)
    here.cut()
    here.fill()
    await moved(here.node)
    assert values(here.node) == all_values()
    crash(here.node)


async def test_a_cut_during_the_sync_of_the_future_log_syncs_it_again(tmp_path: Path) -> None:
    here = await followed(tmp_path)
    here.background.is_held = True
    move(here.node, tmp_path / "b")
    await until(lambda: here.move.syncing)
    future = here.move.log
    here.background.is_held = False
    here.cut()
    here.fill()
    here.background.is_held = True
    here.node.moves.go_on()
    await until(lambda: here.move.syncing_cut)
    assert here.future_end == IN_COMMON
    await here.turns()
    assert here.future_end == IN_COMMON  # it waits for the disk
    assert not here.move.syncing
    await finish(here)
    assert partition_of(here.node).log is future
    assert values(here.node) == all_values()
    crash(here.node)


async def finish(here: Followed) -> None:
    while partition_of(here.node).move is not None:
        if here.background.waiting:
            here.background.run_one()
        await asyncio.sleep(0)


async def test_a_failed_sync_of_a_cut_does_not_end_the_move(tmp_path: Path) -> None:
    here = await followed(tmp_path)
    lag(here.node)
    move(here.node, tmp_path / "b")
    await until(lambda: here.move.assigning)
    here.cut()
    here.fill()
    here.background.is_held = True
    catch_up(here.node)
    await until(lambda: here.move.syncing_cut)
    here.background.waiting.pop()[1](OSError(errno.EMFILE, "too many open files"))
    await until(lambda: bool(here.background.waiting))  # tried again
    assert here.future_end == IN_COMMON
    await finish(here)
    assert values(here.node) == all_values()
    crash(here.node)


async def test_a_move_of_a_leaders_log_follows_no_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await filled(tmp_path)

    def cut_off(*_: object) -> None:
        raise AssertionError("nothing was cut off")

    monkeypatch.setattr(future_log_copying, "_cut_off", cut_off)
    move(node, tmp_path / "b")
    await moved(node)
    assert values(node) == expected()
    crash(node)

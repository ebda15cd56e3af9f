"""A follower asks its leader again only when its disk has the last cut, and everything that the follower says it
has."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.peers.replica_fetcher_manager import ReplicaFetching
from broker.replicas.replica import Follower
from broker.replicas.replica_fetcher import FetchSettings, FollowState, ReplicaFetcher
from protocol.messages.fetch import FetchRequest
from protocol.waiting import Later
from storage.log.log_state import Flushing
from tests.node.followers import FETCHING, PAUSED, TOPIC, Following, Leading, batch, bytes_of, leader_of_three
from tests.node.log_dirs import refuse
from tests.support.disk import files
from tests.support.failing_calls import fail
from tests.support.partition_logs import HeldBackground, open_log

SYNCING = FollowState.SYNCING
BACKOFF_MS = FetchSettings().backoff_ms


@pytest.fixture
def leader(tmp_path: Path) -> Leading:
    return leader_of_three(tmp_path / "leader")


@pytest.fixture
def background() -> HeldBackground:
    return HeldBackground()


@pytest.fixture
def cut(tmp_path: Path, leader: Leading, background: HeldBackground) -> Following:
    """Return a follower that has cut off what its leader lacks. Its disk doesn't have the cut yet."""
    following = Following(open_log(tmp_path / "follower", background=background))
    following.until_level(leader)
    following.log.append(batch("lost"), leader_epoch=0, now_ms=0)
    leader.epoch = 1
    leader.log.assign_leader_epoch(1)
    leader.append("kept")
    following.follow(1)
    background.run_all()
    following.step(leader)
    assert (following.log.log_end_offset, following.state) == (3, SYNCING)
    return following


def test_a_follower_waits_for_the_disk_though_the_isr_changes(
    leader: Leading, cut: Following, background: HeldBackground
) -> None:
    cut.follow(1)  # the same epoch, by another role
    assert cut.state is SYNCING
    assert cut.fetcher.request() is None
    background.run_all()
    cut.until_level(leader)


def test_a_follower_waits_for_the_disk_in_the_next_epoch_too(
    leader: Leading, cut: Following, background: HeldBackground
) -> None:
    cut.follow(2)
    leader.epoch = 2
    assert cut.state is SYNCING
    assert cut.fetcher.request() is None
    background.run_all()
    assert cut.log.cut is None
    cut.until_level(leader)
    assert bytes_of(cut.log) == bytes_of(leader.log)


def test_the_leader_does_not_hear_of_records_that_the_disk_refuses_to_sync(
    tmp_path: Path, leader: Leading, background: HeldBackground
) -> None:
    """Else it is committed, and a power loss might lose it."""
    following = Following(open_log(tmp_path / "follower", background=background, flush_messages=1))
    following.step(leader)
    assert following.log.log_end_offset == 3
    assert following.fetcher.request() is None, "it waits for the disk"
    refuse("follower", "sync")
    background.run_all()
    files.set_fault_hook(None)
    assert following.log.failure is not None
    assert following.fetcher.request() is None
    assert following.fetcher.wait_s() is None
    following.follow(0)
    assert following.fetcher.request() is None, "not by another role either"


def test_another_fetcher_waits_for_the_disk_too(cut: Following, background: HeldBackground) -> None:
    """The partition has another leader, or the leader has another address."""
    other = ReplicaFetcher(7, lambda: 99, cut.clock, cut.quota)
    other.follow(TOPIC, "t", 0, Follower(cut.log, cut.fetches, 2, 2))
    assert other.state_of(TOPIC, 0) is SYNCING
    background.run_all()
    assert other.state_of(TOPIC, 0) is FETCHING


def test_another_log_of_the_same_epoch_starts_from_the_beginning(tmp_path: Path, cut: Following) -> None:
    """The partition was on other brokers in between."""
    cut.log = open_log(tmp_path / "made-anew")
    cut.follow(1)
    assert cut.state is FETCHING
    request = cut.request()
    assert isinstance(request, FetchRequest)
    assert request.topics[0].partitions[0].fetch_offset == 0


def test_a_follower_paused_after_a_cut_waits_for_the_disk(
    tmp_path: Path, leader: Leading, background: HeldBackground
) -> None:
    """The step after the cut failed, so nobody waits for the disk yet."""
    following = Following(open_log(tmp_path / "follower", background=background))
    following.until_level(leader)
    following.log.truncate_to(2, 0)
    following.fetcher._pause(following.fetcher._followed[TOPIC, 0])
    background.run_all()
    following.clock.advance_ms(BACKOFF_MS)
    assert following.fetcher.request() is None
    assert following.state is SYNCING
    background.run_all()
    following.until_level(leader)


def test_a_follower_that_lacks_memory_to_wait_for_the_disk_asks_later(
    tmp_path: Path, leader: Leading, background: HeldBackground, monkeypatch: pytest.MonkeyPatch
) -> None:
    following = Following(open_log(tmp_path / "follower", flush_messages=1, background=background))
    following.step(leader)
    with monkeypatch.context() as patched:
        fail(patched, Flushing, "wait")
        assert following.fetcher.request() is None
    assert following.state is PAUSED
    assert following.fetcher.wait_s() == BACKOFF_MS / 1000
    following.clock.advance_ms(BACKOFF_MS)
    assert following.fetcher.request() is None
    assert following.fetcher.wait_s() is None, "it waits for the disk now"
    background.run_all()
    following.until_level(leader)


def test_a_disk_that_has_the_cut_at_once_makes_no_second_request(tmp_path: Path, leader: Leading) -> None:
    following = Following(open_log(tmp_path / "follower"))
    following.until_level(leader)
    following.log.hole = 1
    asked: list[object] = []
    peer: Any = SimpleNamespace(ask=lambda request, version: asked.append(request) or Later())
    scheduler: Any = SimpleNamespace()
    stopped: list[Exception] = []
    ReplicaFetching(following.fetcher, peer, scheduler, stopped.append).wake()
    assert following.log.log_end_offset == 1
    assert (len(asked), stopped) == (1, [])

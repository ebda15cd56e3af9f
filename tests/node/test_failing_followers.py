"""If a follower's disk refuses an operation on one partition, or memory is lacking for it, that partition waits and all
others go on."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.peers.replica_fetcher_manager import ReplicaFetching
from broker.replicas.replica import Follower
from broker.replicas.replica_fetcher import FollowState, ReplicaFetcher
from protocol.errors import BrokenInvariantError, Error, KafkaError
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.offsets import ListOffsetsRequest
from protocol.waiting import Later, at_once
from storage.log.partition_log import PartitionLog
from tests.node.followers import (
    FAILED,
    FETCHING,
    OUT_OF_RANGE,
    PAUSED,
    TOPIC,
    Following,
    Leading,
    batch,
    bytes_of,
    leader_of_three,
)
from tests.support.disk import files
from tests.support.failing_calls import fail
from tests.support.partition_logs import open_log

OTHER = b"U" * 16
BACKOFF_MS = 1_000


@pytest.fixture(autouse=True)
def _a_whole_disk_afterwards() -> Iterator[None]:
    yield
    files.set_fault_hook(None)


def refuse(operation: str, part_of_path: str, code: int = errno.ENOSPC) -> None:
    def hook(name: str, path: str, _size: int) -> None:
        if name == operation and part_of_path in path:
            raise OSError(code, "refused", path)

    files.set_fault_hook(hook)


class Pair:
    """Two partitions of one leader, and the node that follows both. The disk refuses operations in `one`."""

    def __init__(self, folder: Path) -> None:
        self.one = Leading(open_log(folder / "leader-of-one"), 0)
        self.other = Leading(open_log(folder / "leader-of-other"), 0)
        for text in "abc":
            self.one.append(text)
            self.other.append(text)
        self.following = Following(open_log(folder / "one"))
        self.fetcher = self.following.fetcher
        self.log = self.following.log
        self.other_log = open_log(folder / "other")
        role = Follower(self.other_log, self.following.fetches, 1, 0)
        self.fetcher.follow(OTHER, "u", 0, role)
        self.asked: list[tuple[Any, Later[Any]]] = []
        self.stopped: list[Exception] = []
        peer: Any = SimpleNamespace(ask=self._ask, stop=lambda: None, forget=lambda: None)
        self.timers: list[float] = []
        timer = SimpleNamespace(cancel=lambda: None)
        scheduler: Any = SimpleNamespace(
            call_later=lambda delay_s, then: self.timers.append(delay_s) or timer  # type: ignore[func-returns-value]
        )
        self.fetching = ReplicaFetching(self.fetcher, peer, scheduler, self.stopped.append)

    def _ask(self, request: Any, *, version: int) -> Later[Any]:
        answer: Later[Any] = Later()
        self.asked.append((request, answer))
        return answer

    def step(self) -> None:
        """Answer one request. Afterwards the next one is under way, or there is none."""
        if not self.asked:
            self.fetching.wake()
        [(request, answer)] = self.asked
        self.asked.clear()
        if isinstance(request, ListOffsetsRequest):
            answer.reply(self.one.answer(request))
            return
        leaders = {TOPIC: self.one, OTHER: self.other}
        answers = [
            leaders[topic.topic_id].answer(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic]))
            for topic in request.topics
        ]
        answer.reply(
            FetchResponse(
                responses=[
                    each for one in answers if isinstance(one, FetchResponse) for each in one.responses
                ]
            )
        )

    def until_level(self) -> None:
        for _ in range(20):
            self.following.clock.advance_ms(BACKOFF_MS)
            self.step()
        assert self.following.state is FETCHING
        assert bytes_of(self.log) == bytes_of(self.one.log, self.log.log_start_offset)
        assert self.log.log_end_offset == self.one.log.log_end_offset

    def lead_anew(self, epoch: int) -> None:
        """Have another node lead, which appends a record in this epoch."""
        self.one.epoch = epoch
        self.one.log.assign_leader_epoch(epoch)
        self.one.append("by the new one")
        self.following.follow(epoch)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def about_to_append(pair: Pair) -> None:
    refuse("append", "/one/")


def about_to_begin_later(pair: Pair) -> None:
    pair.until_level()
    pair.one.log.update_high_watermark(3)
    pair.one.log.delete_records_before(2)
    refuse("write_whole", "/one/")


def about_to_truncate(pair: Pair) -> None:
    pair.until_level()
    pair.log.append(batch("lost"), leader_epoch=1, now_ms=0)
    pair.lead_anew(2)
    refuse("write_whole", "/one/")


def about_to_take_the_end(pair: Pair) -> None:
    pair.until_level()
    for epoch in (1, 1, 2):
        pair.log.append(batch("lost"), leader_epoch=epoch, now_ms=0)
    pair.log.leader_epochs.entries = [(7, 4)]  # so that only the end offset tells
    refuse("write_whole", "/one/")


def about_to_begin_at_a_hole(pair: Pair) -> None:
    pair.until_level()
    pair.log.append(batch("behind the hole"), leader_epoch=1, now_ms=0)
    pair.log.hole = 2
    refuse("write_whole", "/one/")


SCENES = [
    about_to_append,
    about_to_begin_later,
    about_to_truncate,
    about_to_take_the_end,
    about_to_begin_at_a_hole,
]


def go_on_beside(pair: Pair) -> None:
    """Check that the other partition goes on, whatever becomes of the first one."""
    pair.other.append("meanwhile")
    for _ in range(4):
        pair.step()
    assert pair.stopped == []
    assert bytes_of(pair.other_log) == bytes_of(pair.other.log)


@pytest.mark.parametrize("scene", SCENES)
def test_a_full_disk_costs_only_its_partition_which_goes_on_once_there_is_room(
    pair: Pair, scene: Callable[[Pair], None]
) -> None:
    scene(pair)
    go_on_beside(pair)
    assert pair.following.state is PAUSED
    assert pair.log.failure is None
    files.set_fault_hook(None)
    pair.until_level()


def test_a_log_cut_off_only_in_part_is_the_only_one_lost(pair: Pair) -> None:
    about_to_truncate(pair)
    refuse("truncate", "/one/", errno.EIO)
    go_on_beside(pair)
    assert pair.log.failure is not None
    assert pair.following.state is FAILED


@pytest.mark.parametrize("name", ["append", "delete_records_before"])
def test_too_little_memory_costs_its_partition_a_while(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    about_to_begin_later(pair)
    files.set_fault_hook(None)
    pair.one.append("d")
    with monkeypatch.context() as patched:
        fail(patched, PartitionLog, name)
        for _ in range(2):
            pair.step()
    assert (pair.following.state, pair.stopped) == (PAUSED, [])
    pair.until_level()
    assert pair.log.log_start_offset == 2


@pytest.mark.parametrize("name", ["request", "answered"])
def test_too_little_memory_for_a_request_or_its_answer_costs_a_while(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    pair.step()
    with monkeypatch.context() as patched:
        fail(patched, ReplicaFetcher, name)
        pair.step()
    assert (pair.stopped, pair.asked) == ([], [])
    assert pair.timers == [BACKOFF_MS / 1000]
    pair.until_level()


def test_an_unforeseen_error_costs_only_its_partition(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fail(monkeypatch, Follower, "learn_high_watermark", error=IndexError("out of it"))
    go_on_beside(pair)
    assert pair.following.state is FAILED
    assert "can't follow" in caplog.text


def test_a_broken_invariant_stops_the_node(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = BrokenInvariantError("it can't be")
    fail(monkeypatch, Follower, "learn_high_watermark", error=broken)
    pair.step()
    assert pair.stopped == [broken]


@pytest.mark.parametrize("state", [FETCHING, PAUSED, OUT_OF_RANGE])
def test_partitions_no_longer_followed_are_not_fetched(tmp_path: Path, state: FollowState) -> None:
    """This happens when the partition's directory has failed. Else its leader would take it for in sync, and keep
    sending records that nobody takes."""
    leader, following = leader_of_three(tmp_path / "leader"), Following(open_log(tmp_path / "follower"))
    following.until_level(leader)
    if state is OUT_OF_RANGE:
        following.log.truncate_fully_and_start_at(9, 0)
        following.step(leader)
    elif state is PAUSED:
        request = following.request()
        at_once(following.fetcher.answered(request, KafkaError(Error.NETWORK_EXCEPTION)))
    assert following.state is state
    following.role.is_over = True
    following.clock.advance_ms(10_000)
    assert following.fetcher.request() is None
    assert following.fetcher.wait_s() is None

    following.follow(0)
    assert following.fetcher.request() is not None


def test_partitions_no_longer_followed_hold_up_no_others(tmp_path: Path) -> None:
    """The partition's end isn't in the leader's log. The other partition is asked for nevertheless."""
    leader, following = leader_of_three(tmp_path / "leader"), Following(open_log(tmp_path / "follower"))
    following.until_level(leader)
    following.log.truncate_fully_and_start_at(9, 0)
    following.step(leader)
    assert following.state is OUT_OF_RANGE
    following.role.is_over = True
    following.fetcher.follow(OTHER, "u", 0, Following(open_log(tmp_path / "other")).role)
    request = following.fetcher.request()
    assert isinstance(request, FetchRequest)
    assert [topic.topic_id for topic in request.topics] == [OTHER]


def test_too_little_memory_to_ask_is_asked_again(tmp_path: Path) -> None:
    pair = Pair(tmp_path)

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    peer: Any = SimpleNamespace(ask=fail, forget=lambda: None)
    asking, pair.fetching._peer = pair.fetching._peer, peer
    pair.fetching.wake()
    assert (pair.asked, pair.timers) == ([], [BACKOFF_MS / 1000])
    pair.fetching._peer = asking
    pair.fetching.wake()
    assert len(pair.asked) == 1

"""A leader's answer with many partitions is taken in steps. Others are served in between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.peers.replica_fetcher_manager import ReplicaFetching
from broker.replicas.replica import Follower, WaitingFetches
from broker.replicas.replica_fetcher import ReplicaFetcher
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from protocol.records.batch import patch_offset_and_epoch
from protocol.waiting import Later, at_once
from storage.log.partition_log import PartitionLog
from tests.node.followers import TOPIC, batch
from tests.support.manual_clock import ManualClock
from tests.support.partition_logs import open_log
from tests.support.replication_quota import AdjustableQuota

PARTITIONS = 60
MOST_IN_ONE_STEP = 5  # of new logs


class Many:
    """Many partitions of one leader. The test answers what the leader is asked, and says when turns of the loop
    come."""

    def __init__(self, folder: Path) -> None:
        clock = ManualClock()
        self.fetcher = ReplicaFetcher(7, lambda: 99, clock, AdjustableQuota(clock))
        self.logs: list[PartitionLog] = []
        for index in range(PARTITIONS):
            (folder / str(index)).mkdir()
            self.logs.append(open_log(folder / str(index)))
            self.follow(index, 0)
        self.asked: list[FetchRequest] = []
        self.turns: list[Callable[[], None]] = []
        self.stopped: list[Exception] = []
        peer: Any = SimpleNamespace(ask=self._ask, stop=lambda: None, forget=lambda: None)
        scheduler: Any = SimpleNamespace(call_soon=self._call_soon)
        self.fetching = ReplicaFetching(self.fetcher, peer, scheduler, self.stopped.append)
        self.fetching.wake()

    def follow(self, index: int, epoch: int) -> None:
        self.fetcher.follow(TOPIC, "t", index, Follower(self.logs[index], WaitingFetches(), 1, epoch))

    def _ask(self, request: FetchRequest, *, version: int) -> Later[FetchResponse]:
        self.asked.append(request)
        answer: Later[FetchResponse] = Later()
        self.reply = answer.reply
        return answer

    def _call_soon(self, then: Callable[..., None], *args: Any) -> Any:
        self.turns.append(lambda: then(*args))
        turn = self.turns[-1]
        return SimpleNamespace(cancel=lambda: self.turns.remove(turn))

    def answer(self, offset: int = 0) -> FetchResponse:
        """Return an answer with one record for each partition."""
        built = batch("a")
        patch_offset_and_epoch(built, 0, offset, 0)
        record = bytes(built)
        partitions = [
            PartitionData(partition_index=index, high_watermark=0, log_start_offset=0, records=record)
            for index in range(PARTITIONS)
        ]
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC, partitions=partitions)])

    def taken(self) -> int:
        return sum(log.log_end_offset for log in self.logs)

    def take_turn(self) -> None:
        [turn] = self.turns
        self.turns.clear()
        turn()


@pytest.fixture
def many(tmp_path: Path) -> Many:
    return Many(tmp_path)


def test_no_step_has_more_than_some_partitions_and_nothing_is_asked_before_the_last(many: Many) -> None:
    many.reply(many.answer())

    taken = many.taken()
    assert 0 < taken <= MOST_IN_ONE_STEP
    while many.turns:
        many.fetching.wake()
        assert len(many.asked) == 1
        many.take_turn()
        assert taken < many.taken() <= taken + MOST_IN_ONE_STEP
        taken = many.taken()

    assert taken == PARTITIONS
    assert len(many.asked) == 2
    assert [each.fetch_offset for each in many.asked[1].topics[0].partitions] == [1] * PARTITIONS
    assert not many.stopped


def test_continuing_in_the_same_epoch_costs_less(many: Many) -> None:
    many.reply(many.answer())
    while many.turns:
        many.take_turn()

    many.reply(many.answer(offset=1))

    assert PARTITIONS + 40 <= many.taken() < 2 * PARTITIONS


def test_a_partition_with_another_leader_by_its_turn_is_skipped(many: Many) -> None:
    many.reply(many.answer())
    before = many.taken()
    many.follow(PARTITIONS - 1, 1)
    many.fetcher.forget(TOPIC, PARTITIONS - 2)

    while many.turns:
        many.take_turn()

    assert before < many.taken() == PARTITIONS - 2
    assert [log.log_end_offset for log in many.logs[-2:]] == [0, 0]


def test_a_stopped_fetcher_takes_nothing_more(many: Many) -> None:
    many.reply(many.answer())
    before = many.taken()

    many.fetching.stop()

    assert not many.turns
    assert many.taken() == before


def test_a_cut_is_more_work_than_a_record(many: Many) -> None:
    for log in many.logs:
        log.append(batch("lost"), leader_epoch=1, now_ms=0)
    many.asked.clear()
    for index in range(PARTITIONS):
        many.follow(index, 2)
    request = many.fetcher.request()
    assert isinstance(request, FetchRequest)
    answer = many.answer()
    for each in answer.responses[0].partitions:
        each.records, each.diverging_epoch = b"", EpochEndOffset(epoch=1, end_offset=0)

    steps = many.fetcher.answered(request, answer)
    steps.send(None)
    assert PARTITIONS - 5 <= many.taken() < PARTITIONS
    at_once(steps)
    assert many.taken() == 0


def test_large_records_are_fewer_in_a_step(many: Many) -> None:
    request = many.asked[0]
    answer = many.answer()
    for each in answer.responses[0].partitions:
        each.records = bytes(batch("a" * 1_000_000))
    steps = many.fetcher.answered(request, answer)

    steps.send(None)
    assert many.taken() == 1
    at_once(steps)
    assert many.taken() == PARTITIONS

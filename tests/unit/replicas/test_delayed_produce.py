"""A Produce that waits for many partitions begins and ends its wait over several turns of the loop."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from broker.network import turns
from broker.network.turns import Turns
from broker.replicas.append_records import AwaitedAppend
from protocol.errors import Error
from protocol.messages.produce import PartitionProduceResponse
from protocol.waiting import Later

COUNT = 5


class Waiting:
    """A Produce of five partitions, two of which are handled in a turn. What it waits for comes when the test
    says so."""

    def __init__(self, *, flushes: bool = False) -> None:
        self.soon: list[Callable[[], object]] = []
        self.due: list[Callable[[], object]] = []
        self.done: list[str] = []
        self.failures: list[BaseException] = []
        self.commits: list[Callable[[None], object]] = []
        self.flushes: list[Callable[[None], object]] = []
        self.gave_up: list[object] = []
        self.answers = [PartitionProduceResponse(index=index) for index in range(COUNT)]
        log = SimpleNamespace(when_flushed=lambda _offset, then: self.flushes.append(then))
        leader: Any = SimpleNamespace(
            log=log,
            is_under_min_after_append=False,
            when_committed=self.when_committed,
            wait_no_more=self.gave_up.append,
        )
        scheduler: Any = SimpleNamespace(call_soon=self.call_soon, call_later=self.call_later)
        appends = [AwaitedAppend(each, leader, 1, commits=True, flushes=flushes) for each in self.answers]
        turns = Turns(scheduler)
        produce: Any = turns.answer(turns.all_done(appends, 1000, scheduler), to_the_end=True)
        assert isinstance(produce, Later)
        self.produce = produce
        produce.when_answered(self._ended)

    def _ended(self) -> None:
        try:
            self.produce.result()
        except MemoryError as error:
            self.failures.append(error)
        else:
            self.done.append("done")

    def when_committed(self, _offset: int, then: Callable[[None], object]) -> object:
        self.commits.append(then)
        return then

    def call_soon(self, callback: Callable[[], object]) -> object:
        self.soon.append(callback)
        return SimpleNamespace(cancel=self.soon.clear)

    def call_later(self, _delay_s: float, callback: Callable[[], object]) -> object:
        self.due.append(callback)
        return SimpleNamespace(cancel=self.due.clear)

    def turn(self) -> None:
        self.soon.pop(0)()

    def turns(self) -> None:
        while self.soon:
            self.turn()

    @property
    def errors(self) -> list[int]:
        return [each.error_code for each in self.answers]


@pytest.fixture(autouse=True)
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PER_TURN", 2)


def test_a_produce_begins_to_wait_for_some_partitions_in_each_turn() -> None:
    it = Waiting()
    for waited_for in (2, 4, 5):
        assert len(it.commits) == waited_for
        if it.soon:
            it.turn()
    for committed in it.commits:
        assert it.done == []
        committed(None)
    it.turns()
    assert it.done == ["done"]
    assert it.due == []


def test_a_produces_time_may_be_over_while_it_begins_to_wait() -> None:
    it = Waiting()
    assert len(it.commits) == 2
    it.due[0]()
    it.turns()
    assert it.done == ["done"]
    assert it.errors == [Error.REQUEST_TIMED_OUT] * COUNT


def test_batches_committed_before_the_wait_for_others_count() -> None:
    it = Waiting()
    for committed in it.commits[:2]:
        committed(None)
    it.turns()
    for committed in it.commits[2:]:
        assert it.done == []
        committed(None)
    it.turns()
    assert it.done == ["done"]


def test_a_produce_times_out_for_some_partitions_in_each_turn() -> None:
    it = Waiting()
    it.turns()
    it.due.pop()()
    assert len(it.gave_up) == 2
    it.turn()
    assert len(it.gave_up) == 4
    assert it.done == []
    it.turns()
    assert it.done == ["done"]
    assert it.errors == [Error.REQUEST_TIMED_OUT] * COUNT


@pytest.mark.parametrize("flushes", [False, True])
def test_a_produces_time_may_be_over_before_it_waits_for_all(flushes: bool) -> None:
    it = Waiting(flushes=flushes)
    it.due.pop()()
    it.turns()
    for flushed in it.flushes:
        assert it.done == []
        flushed(None)
    it.turns()
    assert it.done == ["done"]
    assert it.errors == [Error.REQUEST_TIMED_OUT] * COUNT
    assert len(it.flushes) == (COUNT if flushes else 0)


@pytest.mark.parametrize("waits_for_all", [False, True])
def test_nothing_waits_for_a_client_that_has_gone(waits_for_all: bool) -> None:
    it = Waiting()
    if waits_for_all:
        it.turns()
    it.produce.abandon()
    it.turns()
    assert it.gave_up == it.commits
    assert it.due == it.done == []


def test_an_error_in_a_later_turn_is_reported_once_and_nothing_else_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it = Waiting()

    def fails(_append: AwaitedAppend, _done: Callable[[], None]) -> None:
        raise MemoryError

    monkeypatch.setattr(AwaitedAppend, "start", fails)
    it.turns()
    assert [type(error) for error in it.failures] == [MemoryError]
    assert it.due == []
    for committed in it.commits:
        committed(None)
    assert it.done == []


def test_an_error_for_a_gone_client_is_reported_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Waiting()
    it.turns()
    it.produce.abandon()

    def fails(_append: AwaitedAppend) -> None:
        raise MemoryError

    monkeypatch.setattr(AwaitedAppend, "abandon", fails)
    it.turns()
    assert it.failures == []

"""Who goes first when the memory that all connections share is short."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from broker.network.memory import LONG_WAIT_S, MOST_CHECKS_FULL, STALLED_S, RequestMemory
from tests.node.test_answer_memory import read_all, unread
from tests.node.test_connection import frame
from tests.node.test_connection_memory import KIB, MIB, Client, Schedule, half, memory_of
from tests.support.examples import examples


@pytest.fixture
def schedule() -> Schedule:
    return Schedule()


class Holder:
    """A connection that holds memory for requests, or waits for it."""

    def __init__(self, memory: RequestMemory, host: str, *, may_be_closed: bool = False) -> None:
        self.peer_host = host
        self.is_receiving = False
        self.granted: list[int] = []
        self.is_hung = False
        self.waits = False
        self.wanted = 0
        self.since_s = 0.0
        self.is_closed_because = ""
        self._may_be_closed = may_be_closed
        self._memory = memory

    def ask(self, size: int) -> Holder:
        if not self.waits:
            self.since_s = self._memory._scheduler.time()
        self.wanted, self.waits = size, True
        if self._memory.ask(self, size, lambda: self._have(size)):
            self._have(size)
        return self

    def _have(self, size: int) -> None:
        self.waits = False
        self.granted.append(size)

    def free(self) -> None:
        self._memory.free(self, sum(self.granted))
        self.granted.clear()

    def lose(self) -> Holder:
        self._memory.forget(self)
        return self

    def shrink(self) -> None:
        pass

    def abort(self, reason: str) -> None:
        assert self._may_be_closed, reason
        self.is_closed_because = reason
        self.lose()


def test_an_address_that_holds_little_comes_before_smaller_needs_of_a_greedy_one(
    schedule: Schedule,
) -> None:
    memory = RequestMemory(schedule, 100)
    busy = [Holder(memory, "greedy").ask(50) for _ in range(2)]
    small = [Holder(memory, "greedy").ask(10) for _ in range(10)]
    large = Holder(memory, "modest").ask(40)
    busy[0].free()
    assert large.granted == [40]
    assert [each.granted for each in small] == [[10]] + [[]] * 9


def test_a_long_waiter_is_not_passed_over_by_smaller_needs_forever(schedule: Schedule) -> None:
    memory = RequestMemory(schedule, 100)
    busy = [Holder(memory, "a").ask(20) for _ in range(5)]
    large = Holder(memory, "a").ask(60)
    for _ in range(LONG_WAIT_S):
        assert large.granted == []
        small = Holder(memory, "a").ask(20)
        busy.pop(0).free()
        assert small.granted == [20]  # there is no room for the large one yet
        busy.append(small)
        schedule.advance(1)
    assert large.granted == [60]  # above the bound
    waiting = []
    while busy:
        waiting.append(Holder(memory, "a").ask(20))
        busy.pop(0).free()
    assert [each.granted for each in waiting] == [[20], [20], [], [], []]


def test_long_waiters_go_in_the_order_they_came(schedule: Schedule) -> None:
    memory = RequestMemory(schedule, 100)
    busy = [Holder(memory, "a").ask(50) for _ in range(2)]
    first, second, small = (Holder(memory, host) for host in ("a", "a", "b"))
    for each, size in ((first, 30), (second, 40), (small, 20)):
        each.ask(size)
    schedule.advance(LONG_WAIT_S)
    assert [each.granted for each in (first, second, small)] == [[30], [], []]
    busy[0].free()
    assert [each.granted for each in (first, second, small)] == [[30], [40], []]


def test_many_that_wait_long_for_less_do_not_keep_a_large_need_waiting(schedule: Schedule) -> None:
    memory = RequestMemory(schedule, 100)
    busy = [Holder(memory, "a").ask(20) for _ in range(5)]
    large = Holder(memory, "a").ask(60)
    waiting = [Holder(memory, "a").ask(20) for _ in range(15)]
    for _ in range(LONG_WAIT_S):
        assert large.granted == []
        schedule.advance(1)
        waiting.append(Holder(memory, "a").ask(20))
        busy.pop(0).free()
        busy += [each for each in waiting if each.granted]
        waiting = [each for each in waiting if not each.granted]
    assert large.granted == [60]


def test_a_request_in_work_for_long_holds_up_no_request_that_fits(schedule: Schedule) -> None:
    memory = RequestMemory(schedule, 100)
    Holder(memory, "a").ask(10)  # as a long poll
    whole = Holder(memory, "b").ask(100)
    for _ in range(LONG_WAIT_S):
        small = Holder(memory, "c").ask(1)
        assert small.granted == [1]
        small.free()
        assert whole.granted == []
        schedule.advance(1)
    assert whole.granted == [100]  # above the bound
    later = Holder(memory, "c").ask(1)
    assert later.granted == []
    whole.free()
    assert later.granted == [1]


def test_requests_in_work_that_fill_the_memory_hold_up_others_no_longer_than_a_while(
    schedule: Schedule,
) -> None:
    memory = RequestMemory(schedule, 100)
    small, large = (Holder(memory, "a", may_be_closed=True).ask(size) for size in (30, 70))
    first, second = Holder(memory, "b").ask(20), Holder(memory, "c").ask(10)
    schedule.advance(LONG_WAIT_S)
    assert (first.granted, second.granted) == ([20], [])
    schedule.advance(MOST_CHECKS_FULL * STALLED_S - LONG_WAIT_S)
    assert "in work for 60 s" in large.is_closed_because
    assert second.granted == [10]
    assert not small.is_closed_because
    assert not memory.is_short
    assert not schedule.pending()


def test_closing_a_connection_while_nobody_waits_costs_nothing_for_the_others(
    schedule: Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = RequestMemory(schedule, 1_000)
    asked: list[Holder] = []
    holders = [Holder(memory, "a").ask(1) for _ in range(100)]
    monkeypatch.setattr(Holder, "peer_host", property(lambda self: asked.append(self) or "a"), raising=False)
    holders[0].lose()
    assert {*asked} <= {holders[0]}


def test_a_connection_that_is_gone_does_not_wait_any_more(schedule: Schedule) -> None:
    memory = memory_of(schedule, MIB)
    busy = Client(schedule, memory).send(half(MIB))
    held_bytes = memory.requests.held_bytes
    gone = Client(schedule, memory).send(frame(bytes([0, 3]) + bytes(100 * KIB)))
    assert not gone.is_read_from
    gone.lose()
    assert not memory.requests.is_short
    assert not schedule.pending()
    busy.lose()
    assert gone.dispatcher.served == []
    assert held_bytes > 0 == memory.requests.held_bytes


@pytest.mark.parametrize("seed", range(examples(2)))
def test_no_request_waits_forever_and_only_one_goes_above_the_bound(schedule: Schedule, seed: int) -> None:
    """Connections ask for more and more, and end or are lost after a while. Some hang for ever."""
    chance = Random(seed)
    memory = RequestMemory(schedule, 100)
    most, hung = 30, 0.1
    present: list[Holder] = []
    waited_s = [0.0]
    while schedule.time() < 1_500 or any(each.waits for each in present):
        if len(present) < most and schedule.time() < 1_500:
            fresh = Holder(memory, chance.choice("abc"), may_be_closed=True)
            fresh.is_receiving = chance.random() < 0.5
            fresh.is_hung = chance.random() < hung
            present.append(fresh.ask(chance.choice((1, 5, 20, 60, 100))))
        for each in chance.sample(present, min(len(present), 8)):
            if each.is_hung or each.is_closed_because:
                continue
            if each.waits:
                each.ask(each.wanted)
            elif each.is_receiving and sum(each.granted) < 200 and chance.random() < 0.5:
                each.ask(sum(each.granted))
            elif chance.random() < 0.5:
                each.free()
                present.remove(each)
            if chance.random() < 0.01 and each in present:
                present.remove(each.lose())
        schedule.advance(1)
        present = [each for each in present if not each.is_closed_because]
        held = [sum(each.granted) for each in present]
        assert memory.held_bytes == sum(held)
        assert sum(held) - max(held, default=0) <= memory.most_bytes
        waited_s += [schedule.time() - each.since_s for each in present if each.waits]
        assert max(waited_s) <= LONG_WAIT_S + most * (MOST_CHECKS_FULL + 1) * STALLED_S
    assert max(waited_s) > LONG_WAIT_S


def test_among_waiting_connections_addresses_with_the_least_unread_come_first(
    schedule: Schedule,
) -> None:
    memory = memory_of(schedule, MIB, unread_bytes=900_000)
    first, second = unread(schedule, memory, 1), unread(schedule, memory, 1)
    first.connection.peer_host = second.connection.peer_host = "greedy"
    served: list[str] = []
    for host in ("greedy", "modest"):
        waiting = Client(schedule, memory).connection
        waiting.peer_host = host
        memory.answers.when_room(waiting, partial(served.append, host))
    read_all(first)
    schedule.advance(0)
    assert served == ["modest", "greedy"]


@pytest.mark.limit("broker.network.memory.MOST_CHECKS_FULL")
def test_reading_a_byte_now_and_then_does_not_keep_others_waiting_forever(
    schedule: Schedule, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    memory = memory_of(schedule, MIB, unread_bytes=1_900_000)
    slower, slow = unread(schedule, memory, 3), unread(schedule, memory, 1)
    waiting = Client(schedule, memory).send(frame(b"one"))
    for _ in range(MOST_CHECKS_FULL - 1):
        for each in (slower, slow):
            del each.transport.written[:10]
        schedule.advance(STALLED_S)
        assert not slower.transport.aborted
    del slower.transport.written[:10]
    del slow.transport.written[:10]
    schedule.advance(STALLED_S)
    assert (slower.transport.aborted, slow.transport.aborted) == (True, False)
    assert "are the most, and others wait for memory" in caplog.text
    slower.lose()
    schedule.advance(0)
    assert waiting.dispatcher.served == [b"one"]


def test_the_time_that_answers_fill_the_memory_restarts_once_there_was_room(schedule: Schedule) -> None:
    memory = memory_of(schedule, MIB, unread_bytes=1_900_000)
    slower, slow = unread(schedule, memory, 3), unread(schedule, memory, 1)
    for _ in range(MOST_CHECKS_FULL - 1):
        for each in (slower, slow):
            del each.transport.written[:10]
        schedule.advance(STALLED_S)
    read_all(slow)
    assert not memory.answers.is_full
    slow = unread(schedule, memory, 1)
    assert memory.answers.is_full
    for _ in range(MOST_CHECKS_FULL - 1):
        for each in (slower, slow):
            del each.transport.written[:10]
        schedule.advance(STALLED_S)
        assert not slower.transport.aborted
    del slower.transport.written[:10]
    schedule.advance(STALLED_S)
    assert slower.transport.aborted

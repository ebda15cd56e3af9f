"""Who goes first where the memory that all connections share is short."""

from __future__ import annotations

from functools import partial

import pytest

from broker.network.memory import MOST_CHECKS_FULL, STALLED_S, RequestMemory
from tests.node.test_connection import frame
from tests.node.test_connection_memory import MIB, Client, Schedule, memory_of, read_all, unread


@pytest.fixture
def schedule() -> Schedule:
    return Schedule()


class Holder:
    """A connection that holds memory for requests, or waits for it."""

    def __init__(self, memory: RequestMemory, host: str) -> None:
        self.peer_host = host
        self.is_receiving = False
        self.granted: list[int] = []
        self._memory = memory

    def ask(self, size: int) -> Holder:
        if self._memory.ask(self, size, lambda: self.granted.append(size)):
            self.granted.append(size)
        return self

    def free(self) -> None:
        self._memory.free(self, sum(self.granted))
        self.granted.clear()

    def shrink(self) -> None:
        pass

    def abort(self, reason: str) -> None:
        raise AssertionError(reason)


def test_an_address_that_holds_little_comes_before_smaller_needs_of_one_that_holds_much(
    schedule: Schedule,
) -> None:
    memory = RequestMemory(schedule, 100)
    busy = [Holder(memory, "greedy").ask(50) for _ in range(2)]
    small = [Holder(memory, "greedy").ask(10) for _ in range(10)]
    large = Holder(memory, "modest").ask(40)
    busy[0].free()
    assert large.granted == [40]
    assert [each.granted for each in small] == [[10]] + [[]] * 9


def test_who_has_waited_long_is_not_passed_over_by_smaller_needs_for_ever(schedule: Schedule) -> None:
    memory = RequestMemory(schedule, 100)
    busy = [Holder(memory, "a").ask(20) for _ in range(5)]
    large = Holder(memory, "a").ask(60)
    for _ in range(STALLED_S):
        small = Holder(memory, "a").ask(20)
        busy.pop(0).free()
        assert small.granted == [20]  # there is no room for the large one yet
        busy.append(small)
        schedule.advance(1)
    schedule.advance(1)
    waiting = []
    while busy:
        waiting.append(Holder(memory, "a").ask(20))
        busy.pop(0).free()
        assert large.granted == ([60] if len(busy) <= 2 else [])
    assert [each.granted for each in waiting] == [[20], [20], [], [], []]


def test_of_those_that_waited_to_be_served_addresses_with_the_least_unread_come_first(
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
def test_who_reads_a_byte_now_and_then_does_not_keep_others_waiting_for_ever(
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
    assert "are the most, and others wait for them" in caplog.text
    slower.lose()
    schedule.advance(0)
    assert waiting.dispatcher.served == [b"one"]

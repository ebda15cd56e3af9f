"""Periodic tasks go over all logs in turns of the loop, and handle each log once, however many there are."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from broker import housekeeping
from broker.environment.scheduler import TURN_S
from broker.server import Server
from protocol.errors import Error
from storage.log.log_config import LONG_MAX
from storage.log.partition_log import PartitionLog
from tests.node.admin_requests import TOPIC, alter, create
from tests.support.whole_server import clock_of

TASKS = {
    "retention": ("enforce_retention", "apply_retention"),
    "producer expiry": ("expire_producers", "expire_producers"),
    "flush": ("flush_due_logs", "flush_if_due"),
}


class Done:
    """Counts the logs that a task was done for, and how many of them in each turn."""

    def __init__(self, node: Server, monkeypatch: pytest.MonkeyPatch, method: str, takes_ms: int = 0) -> None:
        self.logs: Counter[str] = Counter()
        self.turns: list[int] = []

        def counted(log: PartitionLog, *_: Any) -> int:
            self.logs[log.directory] += 1
            clock_of(node).advance_ms(takes_ms)
            return 0

        monkeypatch.setattr(PartitionLog, method, counted)

    async def turn(self) -> None:
        before = self.logs.total()
        await asyncio.sleep(0)
        self.turns.append(self.logs.total() - before)


@pytest.mark.limit("broker.housekeeping.MOST_LOGS_AT_ONCE")
@pytest.mark.parametrize("what", TASKS)
async def test_one_turn_covers_a_limited_number_of_logs(
    node: Server, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    task, method = TASKS[what]
    create(node, ("t", 8))
    topic = node.partitions.by_name["t"]
    topic.configure(replace(topic.config, flush_ms=1))
    monkeypatch.setattr(housekeeping, "MOST_LOGS_AT_ONCE", 3)
    done = Done(node, monkeypatch, method)
    getattr(node.housekeeping, task)()
    assert done.logs.total() == 3
    getattr(node.housekeeping, task)()  # it is under way
    for _ in range(3):
        await done.turn()
    assert done.turns == [3, 2, 0]
    assert {*done.logs.values()} == {1}
    assert len(done.logs) == 8
    getattr(node.housekeeping, task)()
    assert done.logs.total() == 11


async def test_only_logs_of_topics_with_flush_ms_are_examined(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(node, ("t", 2), ("other", 3))
    done = Done(node, monkeypatch, "flush_if_due")
    for value, expected in ((1, {"t-0", "t-1"}), (LONG_MAX, set())):
        assert alter(node, (TOPIC, "t", {"flush.ms": str(value)})) == [Error.NONE]
        done.logs.clear()
        node.housekeeping.flush_due_logs()
        assert {directory.rpartition("/")[2] for directory in done.logs} == expected


async def test_a_turn_is_over_when_it_has_taken_its_time(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(node, ("t", 5))
    done = Done(node, monkeypatch, "apply_retention", takes_ms=int(TURN_S * 1000) // 2)
    node.housekeeping.enforce_retention()
    assert done.logs.total() == 2
    for _ in range(3):
        await done.turn()
    assert done.turns == [2, 1, 0]


async def test_a_log_closed_meanwhile_is_skipped_and_a_stop_ends_the_task(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(node, ("t", 5))
    monkeypatch.setattr(housekeeping, "MOST_LOGS_AT_ONCE", 1)
    done = Done(node, monkeypatch, "apply_retention")
    node.housekeeping.enforce_retention()
    partitions = [each for each in node.partitions.all() if each.log.directory not in done.logs]
    partitions[0].log.close()
    await done.turn()
    assert partitions[0].log.directory not in done.logs
    await done.turn()
    node.housekeeping.stop()
    for _ in range(3):
        await done.turn()
    assert done.logs.total() == 2


async def test_an_unforeseen_error_in_one_log_does_not_affect_the_next_round(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(node, ("t", 2))

    def fail(*_: Any) -> int:
        raise ValueError("of a log")

    with monkeypatch.context() as patched:
        patched.setattr(PartitionLog, "apply_retention", fail)
        with pytest.raises(ValueError, match="of a log"):
            node.housekeeping.enforce_retention()
    done = Done(node, monkeypatch, "apply_retention")
    node.housekeeping.enforce_retention()
    assert done.logs.total() == 2


class Memory:
    """A scheduler whose machine has enough memory, or is short of it."""

    def __init__(self) -> None:
        self.is_short = False
        self.due: list[Any] = []

    def call_later(self, _delay_s: float, callback: Any) -> Any:
        return self._timer(callback)

    def call_soon(self, callback: Any) -> Any:
        return self._timer(callback)

    def _timer(self, callback: Any) -> Any:
        if self.is_short:
            raise MemoryError
        self.due.append(callback)
        return SimpleNamespace(cancel=lambda: None)


async def test_tasks_that_lacked_memory_to_repeat_repeat_once_another_is_due(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    it, memory = node.housekeeping, Memory()
    it.stop()
    monkeypatch.setattr(it, "_scheduler", memory)
    it.start()
    periodic = {*it._timers}
    assert len(periodic) > 5
    first, second, third, *_ = memory.due
    memory.is_short = True
    first()
    second()
    assert len(it._timers) == len(periodic) - 2
    memory.is_short = False
    memory.due.clear()
    third()
    assert {*it._timers} == periodic
    assert [*memory.due] == [first, second, third]
    it.stop()


async def test_tasks_that_lacked_memory_to_go_on_are_woken(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaner, moves, memory = node.cleaner, node.moves, Memory()
    monkeypatch.setattr(cleaner, "_scheduler", memory)
    monkeypatch.setattr(moves, "_scheduler", memory)
    monkeypatch.setattr(moves, "_moving", {"somebody": None})
    monkeypatch.setattr(moves, "_next", SimpleNamespace(cancel=lambda: None))
    memory.is_short = True
    for begins in (cleaner.look, moves._soon):
        with pytest.raises(MemoryError):
            begins()
    node.housekeeping.wake()
    memory.is_short = False
    node.housekeeping.wake()
    assert [*memory.due] == [cleaner._turn, moves._turn]
    node.housekeeping.wake()
    assert memory.due.count(moves._turn) == 1  # it is about to begin
    monkeypatch.setattr(moves, "_moving", {})

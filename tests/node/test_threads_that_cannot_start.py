"""A container's limit of threads is reached, or there is no memory for a stack: what threads are to do comes later."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from broker.environment import threads
from broker.environment.scheduler import LoopScheduler
from broker.environment.threads import (
    AT_ONCE,
    BackgroundThreads,
    ComputingThreads,
    Threads,
    run_all,
    tell_loop,
)
from storage.background import Lane, Then


class Refusal:
    """No thread can be started until this ends."""

    def __init__(self) -> None:
        self.error: Exception | None = RuntimeError("can't start new thread")
        self.asked = 0

    def end(self) -> None:
        self.error = None


@pytest.fixture
def refusal(monkeypatch: pytest.MonkeyPatch) -> Refusal:
    refusal = Refusal()
    start = threading.Thread.start

    def refusing(thread: threading.Thread) -> None:
        refusal.asked += 1
        if refusal.error is not None:
            raise refusal.error
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refusing)
    monkeypatch.setattr(threads, "RETRY_S", 0.0)
    return refusal


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not is_so():
            await asyncio.sleep(0)


class Noted:
    """Notes what was done, in which thread, and what was told in which order."""

    def __init__(self) -> None:
        self.done: list[int] = []
        self.here: list[bool] = []
        self.told: list[int] = []

    def work(self, number: int) -> Callable[[], None]:
        def work() -> None:
            self.done.append(number)
            self.here.append(threading.current_thread() is threading.main_thread())

        return work

    def then(self, number: int) -> Then:
        return lambda _: self.told.append(number)


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
async def test_a_lane_keeps_its_order_until_its_thread_can_be_started(
    refusal: Refusal, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    refusal.error = error
    background, noted = BackgroundThreads(), Noted()
    for number in range(3):
        background(noted.work(number), noted.then(number), lane=Lane.FLUSHING)
    await until(lambda: refusal.asked >= 3)
    assert not noted.done
    refusal.end()
    await until(lambda: len(noted.told) == 3)
    assert noted.done == noted.told == [0, 1, 2]
    assert not any(noted.here)
    [line] = caplog.messages
    assert "no thread for flushing can be started" in line
    assert "pids limit" in line
    await background.finish()


async def test_starting_a_thread_is_retried_by_the_clock_and_not_by_each_work(
    refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "RETRY_S", 60.0)
    background, noted = BackgroundThreads(), Noted()
    for number in range(3):
        background(noted.work(number), noted.then(number), lane=Lane.FLUSHING)
    assert refusal.asked == 1
    await background.finish()


async def test_if_even_the_timer_lacks_memory_the_next_work_tries_it(
    refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    background, noted = BackgroundThreads(), Noted()

    def refuse(*_: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(LoopScheduler, "call_later", refuse)
        background(noted.work(0), noted.then(0), lane=Lane.FLUSHING)
    refusal.end()
    background(noted.work(1), noted.then(1), lane=Lane.FLUSHING)
    await until(lambda: len(noted.told) == 2)
    assert noted.done == [0, 1]
    await background.finish()


async def test_the_end_does_work_that_waits_for_a_thread(refusal: Refusal) -> None:
    background, noted = BackgroundThreads(), Noted()

    def and_more(_: Exception | None) -> None:
        noted.told.append(0)
        background(noted.work(2), noted.then(2), lane=Lane.METADATA)

    background(noted.work(0), and_more, lane=Lane.FLUSHING)
    background(noted.work(1), noted.then(1), lane=Lane.WRITING)
    async with asyncio.timeout(30):
        await background.finish()
    assert noted.done == noted.told == [0, 1, 2]
    assert all(noted.here)


async def test_a_caller_that_waits_for_a_lane_does_the_work_that_lacks_a_thread(refusal: Refusal) -> None:
    background, noted = BackgroundThreads(), Noted()
    background(noted.work(0), noted.then(0), lane=Lane.FLUSHING)
    background(noted.work(1), noted.then(1), lane=Lane.WRITING)
    async with asyncio.timeout(30):
        await background.passed(Lane.FLUSHING)
    assert noted.told == [0]
    refusal.end()
    await until(lambda: noted.told == [0, 1])
    background(noted.work(2), noted.then(2), lane=Lane.FLUSHING)
    await background.finish()
    assert noted.here == [True, False, False]


async def test_work_that_cannot_even_wait_is_refused_and_nobody_waits_for_it(
    refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise MemoryError

    refusal.end()
    background, noted = BackgroundThreads(), Noted()
    with monkeypatch.context() as patch:
        patch.setattr(Threads, "put", refuse)
        with pytest.raises(MemoryError):
            background(noted.work(0), noted.then(0), lane=Lane.FLUSHING)
    background(noted.work(1), noted.then(1), lane=Lane.FLUSHING)
    async with asyncio.timeout(30):
        await background.finish()
    assert noted.done == noted.told == [1]


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
async def test_computing_waits_for_a_thread(refusal: Refusal, error: Exception) -> None:
    refusal.error = error
    computing, found = ComputingThreads(), list[int]()
    for number in range(3):
        computing(lambda number=number: number, lambda value, _: found.append(value))  # type: ignore[misc]
    await until(lambda: refusal.asked >= 3)
    assert not found
    refusal.end()
    await until(lambda: len(found) == 3)
    assert found == [0, 1, 2]
    computing.stop()


async def test_a_stop_ends_the_trying(refusal: Refusal) -> None:
    computing = ComputingThreads()
    computing(lambda: 1, lambda value, error: None)
    computing.stop()
    asked = refusal.asked
    for _ in range(5):
        await asyncio.sleep(0)
    assert refusal.asked == asked


@pytest.mark.parametrize("started", [0, 1, AT_ONCE - 2])
def test_the_caller_does_work_of_many_threads_if_too_few_start(
    refusal: Refusal, monkeypatch: pytest.MonkeyPatch, started: int
) -> None:
    refusal.end()
    start = threading.Thread.start

    def some(thread: threading.Thread) -> None:
        if refusal.asked == started:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", some)
    noted = Noted()
    assert run_all([noted.work(number) for number in range(3 * AT_ONCE + 5)]) == [None] * (3 * AT_ONCE + 5)
    assert sorted(noted.done) == [*range(3 * AT_ONCE + 5)]


async def test_a_thread_tells_the_loop_once_there_is_memory(
    refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal.end()
    loop = asyncio.get_running_loop()
    tell, calls = loop.call_soon_threadsafe, 0

    def failing(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise MemoryError
        return tell(*args)

    monkeypatch.setattr(loop, "call_soon_threadsafe", failing)
    told: list[int] = []
    tell_loop(loop, told.append, 1)
    await until(lambda: told == [1])

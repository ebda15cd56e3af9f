"""Nothing is done twice if a lack of memory is noticed only when the thread runs already, or the loop is told
already."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from broker.environment import threads
from broker.environment.threads import AT_ONCE, BackgroundThreads, ComputingThreads, run_all
from storage.background import Lane

COUNT = 3 * AT_ONCE


class Starts:
    """Has the first start of a thread raise, as if there were no memory for the lock that waits for the thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[threading.Thread] = []
        self.begun = threading.Event()
        """Set when the first thread's work has begun."""
        self.really = threading.Thread.start
        monkeypatch.setattr(threads, "RETRY_S", 0.0)
        self._monkeypatch = monkeypatch

    def fail(self, *, is_late: bool) -> None:
        """Have the first start raise. `is_late`: the thread runs nevertheless, and has begun its work."""

        def start(thread: threading.Thread) -> None:
            self.asked.append(thread)
            if len(self.asked) > 1:
                self.really(thread)
                return
            if is_late:
                self.really(thread)
                assert self.begun.wait(30)
            raise MemoryError

        self._monkeypatch.setattr(threading.Thread, "start", start)


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Starts:
    return Starts(monkeypatch)


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not is_so():
            await asyncio.sleep(0)


async def test_a_thread_that_has_begun_keeps_its_lane_to_itself(starts: Starts) -> None:
    starts.fail(is_late=True)
    background, go_on = BackgroundThreads(), threading.Event()
    done: list[int] = []

    def first() -> None:
        starts.begun.set()
        go_on.wait()
        done.append(0)

    background(first, lambda _: None, lane=Lane.FLUSHING)
    background(lambda: done.append(1), lambda _: None, lane=Lane.FLUSHING)
    for _ in range(5):
        await asyncio.sleep(0)  # it would be tried again meanwhile
    go_on.set()
    await until(lambda: len(done) == 2)
    assert done == [0, 1]
    [thread] = starts.asked
    await background.finish()
    assert not thread.is_alive()


async def test_a_thread_that_begins_when_it_is_given_up_does_nothing(
    starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "RETRY_S", 60.0)
    starts.fail(is_late=False)
    background = BackgroundThreads()
    done: list[int] = []
    background(lambda: done.append(0), lambda _: None, lane=Lane.FLUSHING)
    [thread] = starts.asked
    starts.really(thread)
    await until(lambda: done or not thread.is_alive())
    assert not done
    await background.finish()
    assert done == [0]


def test_a_share_that_its_thread_has_begun_is_waited_for_and_done_once(starts: Starts) -> None:
    starts.fail(is_late=True)
    go_on = threading.Event()
    begun: list[int] = []
    done: list[int] = []

    def work(number: int) -> None:
        begun.append(number)
        if threading.current_thread() in starts.asked:
            starts.begun.set()
            go_on.wait()
        elif len(begun) == COUNT - COUNT // AT_ONCE + 1:
            go_on.set()  # all but the rest of that share
        done.append(number)

    works = [lambda number=number: work(number) for number in range(COUNT)]  # type: ignore[misc]
    assert run_all(works) == [None] * COUNT
    assert sorted(done) == [*range(COUNT)]
    assert sorted(begun) == [*range(COUNT)]
    assert len(starts.asked) == 1


def test_a_share_that_the_caller_has_done_its_thread_does_not_do_again(starts: Starts) -> None:
    starts.fail(is_late=False)
    done: list[int] = []
    works = [lambda number=number: done.append(number) for number in range(COUNT)]  # type: ignore[misc]
    assert run_all(works) == [None] * COUNT
    [thread] = starts.asked
    starts.really(thread)
    thread.join()
    assert sorted(done) == [*range(COUNT)]


class Asking:
    peer_host = "host"

    def __init__(self) -> None:
        self.computed_s = 0.0


async def test_a_computation_is_reported_and_counted_once(
    starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    tell, calls = loop.call_soon_threadsafe, 0

    def failing(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        handle = tell(*args)
        if calls == 1:
            raise MemoryError
        return handle

    monkeypatch.setattr(loop, "call_soon_threadsafe", failing)
    computing, asking = ComputingThreads(), Asking()
    found: list[object] = []
    took: list[float] = []

    def then(value: object, _: BaseException | None) -> None:
        found.append(value)
        took.append(asking.computed_s)

    computing(lambda: sum(range(100_000)), then, asking)
    computing(lambda: "next", lambda value, _: found.append(value))
    await until(lambda: "next" in found)
    assert calls == 3
    assert found == [sum(range(100_000)), "next"]
    assert took == [asking.computed_s]
    computing.stop()

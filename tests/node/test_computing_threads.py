"""The threads that compute beside the loop: who waits for whom, and which time is told as theirs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from broker.environment.threads import LONG_AT_ONCE as AT_ONCE
from broker.environment.threads import Alone, Brief, ComputingThreads


async def test_brief_work_does_not_wait_for_long_work() -> None:
    computing = ComputingThreads()
    go_on = threading.Event()
    found: list[str] = []

    def told(value: str, error: BaseException | None) -> None:
        found.append(value)

    for _ in range(AT_ONCE + 1):
        computing(lambda: go_on.wait() and "long", told)
    computing(Brief(lambda: "brief"), told)
    while not found:
        await asyncio.sleep(0)
    go_on.set()
    while len(found) < AT_ONCE + 2:
        await asyncio.sleep(0)
    assert found == ["brief"] + ["long"] * (AT_ONCE + 1)
    computing.stop()


class Asking:
    """A request of a client at this host."""

    def __init__(self, peer_host: str) -> None:
        self.peer_host = peer_host
        self.computed_s = 0.0


class Holding:
    """Work that lasts until the test lets it end."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Semaphore(0), threading.Event()

    def __call__(self) -> str:
        self.begun.release()
        self.go_on.wait()
        return "held"


async def test_hosts_take_turns_however_much_one_of_them_asks_for() -> None:
    computing = ComputingThreads()
    hold = Holding()
    found: list[str] = []

    def ask(compute: Callable[[], str], host: str) -> None:
        computing(Brief(compute), lambda value, error: found.append(value), Asking(host))

    ask(hold, "greedy")
    await asyncio.to_thread(hold.begun.acquire)
    for _ in range(3):
        ask(lambda: "of the greedy", "greedy")
    ask(lambda: "of the modest", "modest")
    hold.go_on.set()
    while len(found) < 5:
        await asyncio.sleep(0)
    assert found == ["held", "of the greedy", "of the modest", "of the greedy", "of the greedy"]
    computing.stop()


async def test_the_caller_learns_the_threads_time() -> None:
    computing = ComputingThreads()
    asking = Asking("host")
    found: list[object] = []
    computing(lambda: sum(range(100_000)), lambda value, error: found.append(asking.computed_s), asking)
    while not found:
        await asyncio.sleep(0)
    assert found == [asking.computed_s]
    assert asking.computed_s > 0
    computing.stop()


async def test_exclusive_work_runs_one_at_a_time_and_other_work_beside_it() -> None:
    computing = ComputingThreads()
    begun, go_on = threading.Semaphore(0), threading.Event()
    found: list[str] = []

    def compute() -> str:
        begun.release()
        go_on.wait()
        return "alone"

    for _ in range(2):
        computing(Alone(compute), lambda value, error: found.append(value))
    await asyncio.to_thread(begun.acquire)
    computing(lambda: "beside", lambda value, error: found.append(value))
    while not found:
        await asyncio.sleep(0)
    assert not begun.acquire(blocking=False)
    go_on.set()
    while len(found) < 3:
        await asyncio.sleep(0)
    assert found == ["beside", "alone", "alone"]
    computing.stop()


async def test_cancelled_work_waits_no_longer_and_begun_work_goes_on() -> None:
    computing = ComputingThreads()
    hold = Holding()
    found: list[str] = []

    def ask(compute: Callable[[], str], host: str) -> Callable[[], object]:
        take_back = computing(compute, lambda value, error: found.append(value), Asking(host))
        assert take_back is not None
        return take_back

    has_begun = ask(hold, "a")
    await asyncio.to_thread(hold.begun.acquire)
    waiting = [ask(lambda: "of no use", host) for host in "aab"]
    ask(lambda: "of use", "a")
    for take_back in (*waiting, has_begun):
        take_back()
        take_back()
    assert sum(map(len, computing._long._waiting.values())) == 1
    hold.go_on.set()
    while len(found) < 2:
        await asyncio.sleep(0)
    assert found == ["held", "of use"]
    again = ask(lambda: "at last", "b")
    while len(found) < 3:
        await asyncio.sleep(0)
    again()
    assert found[-1] == "at last"
    assert not computing._long._waiting
    computing.stop()

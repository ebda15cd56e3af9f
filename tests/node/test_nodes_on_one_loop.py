"""Several nodes on one loop: each stops because of its own failures, and of those that belong to no node in
particular."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.environment.environment import Environment
from broker.server import Server
from protocol.errors import BrokenInvariantError
from storage.background import Lane
from tests.support.whole_server import started

TURNS = 5


async def two(folder: Path) -> tuple[Server, Server]:
    return await started(folder / "one"), await started(folder / "other")


def breaks() -> None:
    raise BrokenInvariantError("impossible")


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


def has_mark(node: Server) -> bool:
    [folder] = node.config.log_dirs
    return (Path(folder) / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("broken", [0, 1])
async def test_a_broken_callback_stops_its_own_node(tmp_path: Path, broken: int) -> None:
    nodes = await two(tmp_path)
    failing, other = nodes[broken], nodes[1 - broken]
    failing.scheduler.call_soon(breaks)
    failing.scheduler.call_later(0, breaks)
    await turns()
    assert isinstance(failing.failure, BrokenInvariantError)
    assert failing.stopped.is_set()
    assert not other.stopped.is_set()
    for node in nodes:
        await node.stop()
    assert not has_mark(failing)
    assert has_mark(other)


async def test_errors_in_the_background_or_in_computing_reach_their_own_node() -> None:
    told: list[tuple[str, BaseException]] = []
    came = asyncio.Event()

    def environment(name: str) -> Environment:
        made = Environment.of_this_machine()

        def failed(error: BaseException, of_a_callback: bool) -> None:
            assert of_a_callback
            told.append((name, error))
            came.set()

        forgets.append(made.scheduler.tell_failures(failed))
        return made

    forgets: list[Callable[[], None]] = []
    one, other = environment("one"), environment("other")
    one.background(lambda: None, lambda _: breaks(), lane=Lane.FLUSHING)
    await asyncio.wait_for(came.wait(), 5)
    came.clear()
    one.computing(lambda: None, lambda *_: breaks())
    await asyncio.wait_for(came.wait(), 5)
    assert [name for name, _ in told] == ["one", "one"]
    for each in (one, other):
        each.computing.stop()
        await each.background.finish()
    for forget in forgets:
        forget()


@pytest.mark.parametrize("first", [0, 1])
async def test_the_end_of_one_leaves_the_other_its_failures(tmp_path: Path, first: int) -> None:
    nodes = await two(tmp_path)
    ended, left = nodes[first], nodes[1 - first]
    await ended.stop()
    asyncio.get_running_loop().call_exception_handler({"message": "x", "exception": AssertionError("x")})
    assert isinstance(left.failure, AssertionError)
    assert ended.failure is None
    await left.stop()
    assert asyncio.get_running_loop().get_exception_handler() is None


async def test_an_error_that_belongs_to_no_node_stops_all(tmp_path: Path) -> None:
    nodes = await two(tmp_path)
    asyncio.get_running_loop().call_exception_handler({"message": "x", "exception": AssertionError("x")})
    assert all(node.stopped.is_set() for node in nodes)
    for node in nodes:
        await node.stop()


@pytest.fixture(autouse=True)
def _all_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Accept whatever these tests log."""

"""How long the controller's own broker waits until others know that it leaves."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from broker.peers.own_cluster import CHECK_S, MOST_LEAVE_S, ControlledShutdown
from protocol.errors import Error, KafkaError
from protocol.waiting import Later
from tests.support.controller_channel import Timers
from tests.support.submitting import drive


class Left:
    """A broker that leaves, and the answers of the controller and the others."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.others_know = False
        self.controller = SimpleNamespace(submit_own=self._submit, begin=drive)
        faults: Any = SimpleNamespace(stopped=asyncio.Event(), failure=None)
        controller: Any = self.controller
        nothing: Any = None
        self._leaving = ControlledShutdown(
            nothing, controller, nothing, self.timers, faults, nothing, lambda: self.others_know
        )
        self._told: Any = None

    async def _submit(self, decide: Any, log: Any, failure: str) -> Any:
        answer: Later[Any] = Later()
        self._told = answer.reply
        return await answer

    async def begin(self) -> tuple[asyncio.Task[None], Any]:
        """Begin to leave. Return the stop that waits, and the callback by which the controller answers."""
        task = asyncio.ensure_future(self._leaving.leave())
        while self._told is None:
            await asyncio.sleep(0)
        return task, self._told


@pytest.fixture
def left() -> Left:
    return Left()


async def test_a_stopping_broker_goes_once_others_know(left: Left) -> None:
    stop, decided = await left.begin()
    decided(None)
    left.timers.next()
    assert not stop.done()
    left.others_know = True
    left.timers.next()
    await stop
    assert (left.timers.now_s, left.timers.waiting) == (2 * CHECK_S, [])


@pytest.mark.limit("broker.peers.own_cluster.MOST_LEAVE_S")
async def test_a_stopping_broker_goes_though_others_never_know(left: Left) -> None:
    stop, decided = await left.begin()
    decided(None)
    while left.timers.waiting:
        assert left.timers.now_s <= MOST_LEAVE_S
        left.timers.next()
    await stop
    assert left.timers.now_s > MOST_LEAVE_S


@pytest.mark.parametrize("error", [Error.NOT_CONTROLLER, Error.UNKNOWN_SERVER_ERROR])
async def test_a_broker_goes_if_its_partitions_cannot_be_given_away(left: Left, error: Error) -> None:
    stop, decided = await left.begin()
    decided(KafkaError(error))
    await stop
    assert left.timers.waiting == []

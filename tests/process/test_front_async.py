"""The front in `async with`."""

from __future__ import annotations

import asyncio

import pytest

import barnabas
import barnabas.broker
from tests.process.test_front import STAND_IN, answers
from tests.support.waiting import process_is_gone


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(barnabas.broker, "LAUNCHER", STAND_IN)


async def test_an_asynchronous_block_starts_and_stops_it_without_holding_the_loop() -> None:
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    turning = asyncio.create_task(turn())
    async with barnabas.Broker() as broker:
        pid, data, of_start = broker.pid, broker.data, turns
        assert answers(broker)
    assert of_start > 1
    assert turns > of_start
    assert process_is_gone(pid)
    assert not data.exists()
    turning.cancel()


async def test_an_asynchronous_block_passes_errors_on() -> None:
    with pytest.raises(ZeroDivisionError) as failure:
        async with barnabas.Broker(config={"behaviour": "stops badly"}):
            _ = 1 / 0
    assert "did not stop well" in failure.value.__notes__[0]


async def test_an_asynchronous_start_that_is_cancelled_leaves_no_broker() -> None:
    broker = barnabas.Broker()
    entering = asyncio.create_task(broker.__aenter__())
    while broker.pid < 0:
        await asyncio.sleep(0)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert not broker.running
    assert process_is_gone(broker.pid)

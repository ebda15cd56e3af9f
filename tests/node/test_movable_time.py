"""Moving the time calls what is due in its order, together with what that brings about."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.environment.movable_time import MOST_STEPS, MovableTime

SECOND_NS = 1_000_000_000


async def advanced(moved: MovableTime, by_s: float) -> None:
    done = asyncio.Event()
    moved.advance(round(by_s * SECOND_NS), done.set)
    await done.wait()


async def test_due_timers_fire_in_order_and_on_time() -> None:
    moved = MovableTime()
    moved.freeze()
    began_s, came = moved.time(), []
    for delay_s in (30, 10, 20, 70):
        moved.call_later(
            delay_s, lambda delay_s=delay_s: came.append((delay_s, round(moved.time() - began_s)))
        )
    await advanced(moved, 60)
    assert came == [(10, 10), (20, 20), (30, 30)]
    await advanced(moved, 10)
    assert came[3:] == [(70, 70)]


async def test_a_timer_that_sets_itself_again_comes_as_often_as_it_is_due() -> None:
    moved = MovableTime()
    moved.freeze()
    came: list[float] = []

    def again() -> None:
        came.append(moved.monotonic_s())
        moved.call_soon(moved.call_later, 10, again)  # its consequences come before the next call is due

    moved.call_later(10, again)
    await advanced(moved, 61)
    assert len(came) == 6


async def test_a_cancelled_timer_never_fires() -> None:
    moved = MovableTime()
    came: list[int] = []
    timer = moved.call_later(10, came.append, 1)
    moved.call_later(5, timer.cancel)
    await advanced(moved, 20)
    assert came == []
    timer.cancel()


async def test_both_clocks_go_on_together() -> None:
    moved = MovableTime()
    moved.freeze()
    before = moved.now_ms(), moved.monotonic_s(), moved.time()
    await advanced(moved, 3600)
    after = moved.now_ms(), moved.monotonic_s(), moved.time()
    assert after[0] - before[0] == pytest.approx(3_600_000, abs=1)
    assert after[1] - before[1] == pytest.approx(3600)
    assert after[2] - before[2] == pytest.approx(3600)


async def test_frozen_time_stands_still_until_it_runs_again() -> None:
    moved = MovableTime()
    moved.freeze()
    moved.freeze()
    stands_at = moved.time_ns()
    came = asyncio.Event()
    moved.call_later(0.001, came.set)
    await asyncio.sleep(0.01)
    assert moved.time_ns() == stands_at
    assert not came.is_set()
    moved.run()
    await asyncio.wait_for(came.wait(), 60)
    assert moved.time_ns() > stands_at


async def test_a_timer_set_before_the_clock_stops_waits_as_well() -> None:
    moved = MovableTime()
    came: list[int] = []
    moved.call_later(0.001, came.append, 1)
    moved.freeze()
    await asyncio.sleep(0.01)
    assert came == []
    await advanced(moved, 1)
    assert came == [1]


async def test_a_reset_returns_to_the_machines_time() -> None:
    import time

    moved = MovableTime()
    await advanced(moved, 3600)
    assert moved.now_ms() > time.time() * 1000 + 3_500_000
    moved.reset()
    assert moved.now_ms() <= time.time() * 1000 + 1
    assert not moved.stands


@pytest.mark.limit("broker.environment.movable_time.MOST_STEPS")
async def test_moving_on_skips_to_the_last_of_a_repeating_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_STEPS == 20_000
    monkeypatch.setattr("broker.environment.movable_time.MOST_STEPS", 5)
    moved = MovableTime()
    moved.freeze()
    came: list[Any] = []

    def again() -> None:
        came.append(None)
        moved.call_later(1, again)

    moved.call_later(1, again)
    await advanced(moved, 1000)
    assert len(came) == 6

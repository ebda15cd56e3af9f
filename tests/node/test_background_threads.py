"""Work that is done in several threads."""

from __future__ import annotations

import threading

import pytest

from broker.environment.threads import AT_ONCE, BackgroundThreads, run_all
from storage.background import Lane
from tests.support.whole_server import in_loop


@pytest.mark.parametrize("count", [0, 1, AT_ONCE - 1, AT_ONCE, 3 * AT_ONCE + 5])
def test_each_works_failure_is_reported_in_its_place(count: int) -> None:
    done = []

    def work(number: int) -> None:
        done.append(number)
        if number % 3 == 1:
            raise OSError(number, "refused")

    failures = run_all([lambda number=number: work(number) for number in range(count)])  # type: ignore[misc]

    assert sorted(done) == [*range(count)]
    assert [failure and failure.args[0] for failure in failures] == [
        number if number % 3 == 1 else None for number in range(count)
    ]


@pytest.mark.limit("broker.environment.threads.AT_ONCE")
def test_much_work_is_done_at_the_same_time() -> None:
    together = threading.Barrier(AT_ONCE, timeout=240)
    assert run_all([lambda: together.wait() and None] * AT_ONCE) == [None] * AT_ONCE


def test_an_error_that_ends_the_process_ends_the_waiting_too() -> None:
    def work() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all([work] * (AT_ONCE + 1))


@in_loop
async def test_a_caller_past_a_lane_finds_all_earlier_work_done_and_reported() -> None:
    background = BackgroundThreads()
    await background.passed(Lane.FLUSHING)  # nothing was begun there
    told: list[int] = []
    for number in range(3):
        background(lambda: None, lambda _, number=number: told.append(number), lane=Lane.FLUSHING)  # type: ignore[misc]
    await background.passed(Lane.FLUSHING)
    assert told == [0, 1, 2]
    await background.finish()

"""An answer that comes later comes once, to those who still wait for it."""

from __future__ import annotations

import pytest

from protocol.errors import BrokenInvariantError
from protocol.waiting import Later, begun, carry_on


def test_a_response_that_came_at_once_is_the_answer_itself() -> None:
    later: Later[str] = Later()
    later.reply("response")
    assert later.answer() == "response"


def test_a_response_of_none_is_an_answer_too() -> None:
    later: Later[None] = Later()
    later.reply(None)
    assert later.answer() is None


def test_an_immediate_failure_is_raised_to_the_handler() -> None:
    later: Later[str] = Later()
    later.fail(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        later.answer()


def test_the_callback_runs_when_the_response_comes() -> None:
    later: Later[str] = Later()
    assert later.answer() is later
    told: list[str] = []
    later.when_answered(lambda: told.append(later.result()))
    assert told == []
    later.reply("response")
    assert told == ["response"]


def test_the_callback_runs_at_once_if_the_response_is_already_there() -> None:
    later: Later[str] = Later()
    later.reply("response")
    told: list[str] = []
    later.when_answered(lambda: told.append(later.result()))
    assert told == ["response"]


def test_a_failure_is_raised_to_the_taker_of_the_response() -> None:
    later: Later[str] = Later()
    later.when_answered(lambda: None)
    later.fail(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        later.result()


@pytest.mark.parametrize("first", ["reply", "fail"])
@pytest.mark.parametrize("second", ["reply", "fail"])
def test_a_second_answer_breaks_an_invariant(first: str, second: str) -> None:
    later: Later[object] = Later()
    getattr(later, first)(ZeroDivisionError())
    with pytest.raises(BrokenInvariantError):
        getattr(later, second)(ZeroDivisionError())


def test_a_hang_up_is_reported_once_and_drops_later_answers() -> None:
    told: list[str] = []
    later: Later[str] = Later()
    later.on_abandon = lambda: told.append("abandoned")
    later.when_answered(lambda: told.append("answered"))
    later.abandon()
    later.abandon()
    later.reply("response")
    later.fail(ZeroDivisionError())
    assert told == ["abandoned"]


def test_a_hang_up_after_the_answer_is_not_reported() -> None:
    told: list[str] = []
    later: Later[str] = Later()
    later.on_abandon = lambda: told.append("abandoned")
    later.reply("response")
    later.abandon()
    assert told == []


# --- what goes on within the call of who answers ------------------------------------------------------------------


async def _sum_of(first: Later[int], second: Later[int]) -> int:
    return await first + await second


def test_begun_work_goes_on_within_the_call_that_answers() -> None:
    first: Later[int] = Later()
    second: Later[int] = Later()
    total = begun(_sum_of(first, second))
    second.reply(2)
    assert total.answer() is total
    first.reply(1)
    assert total.result() == 3


def test_begun_work_that_need_not_wait_is_done_at_once() -> None:
    first: Later[int] = Later()
    first.reply(1)
    assert begun(_sum_of(first, first)).result() == 2


def test_begun_work_receives_failures_and_fails_with_its_own_error() -> None:
    async def told_of_failure(awaited: Later[int]) -> int:
        try:
            return await awaited
        except OSError as error:
            raise ValueError("in its place") from error

    awaited: Later[int] = Later()
    answer = begun(told_of_failure(awaited))
    awaited.fail(OSError())
    with pytest.raises(ValueError, match="in its place"):
        answer.result()


def test_begun_work_is_finished_though_nobody_waits_for_it_any_more() -> None:
    first: Later[int] = Later()
    done: list[int] = []

    async def add() -> None:
        done.append(await first)

    begun(add()).abandon()
    first.reply(1)
    assert done == [1]


def test_carried_on_work_raises_to_the_caller_that_answers() -> None:
    async def refuse(awaited: Later[int]) -> None:
        await awaited
        raise ValueError("no")

    awaited: Later[int] = Later()
    carry_on(refuse(awaited))
    with pytest.raises(ValueError, match="no"):
        awaited.reply(1)

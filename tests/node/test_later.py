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


def test_what_fails_at_once_is_raised_to_the_handler() -> None:
    later: Later[str] = Later()
    later.fail(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        later.answer()


def test_who_waits_is_told_when_the_response_comes() -> None:
    later: Later[str] = Later()
    assert later.answer() is later
    told: list[str] = []
    later.when_answered(lambda: told.append(later.result()))
    assert told == []
    later.reply("response")
    assert told == ["response"]


def test_who_waits_is_told_at_once_of_a_response_that_is_there() -> None:
    later: Later[str] = Later()
    later.reply("response")
    told: list[str] = []
    later.when_answered(lambda: told.append(later.result()))
    assert told == ["response"]


def test_a_failure_is_raised_to_who_takes_the_response() -> None:
    later: Later[str] = Later()
    later.when_answered(lambda: None)
    later.fail(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        later.result()


@pytest.mark.parametrize("first", ["reply", "fail"])
@pytest.mark.parametrize("second", ["reply", "fail"])
def test_nobody_answers_twice(first: str, second: str) -> None:
    later: Later[object] = Later()
    getattr(later, first)(ZeroDivisionError())
    with pytest.raises(BrokenInvariantError):
        getattr(later, second)(ZeroDivisionError())


def test_a_hang_up_is_told_once_and_drops_what_comes_after() -> None:
    told: list[str] = []
    later: Later[str] = Later()
    later.on_abandon = lambda: told.append("abandoned")
    later.when_answered(lambda: told.append("answered"))
    later.abandon()
    later.abandon()
    later.reply("response")
    later.fail(ZeroDivisionError())
    assert told == ["abandoned"]


def test_a_hang_up_behind_the_answer_tells_nobody() -> None:
    told: list[str] = []
    later: Later[str] = Later()
    later.on_abandon = lambda: told.append("abandoned")
    later.reply("response")
    later.abandon()
    assert told == []


# --- what goes on within the call of who answers ------------------------------------------------------------------


async def _sum_of(first: Later[int], second: Later[int]) -> int:
    return await first + await second


def test_what_is_begun_goes_on_within_the_call_of_who_answers() -> None:
    first: Later[int] = Later()
    second: Later[int] = Later()
    total = begun(_sum_of(first, second))
    second.reply(2)
    assert total.answer() is total
    first.reply(1)
    assert total.result() == 3


def test_what_is_begun_and_waits_for_nothing_is_done_in_that_call() -> None:
    first: Later[int] = Later()
    first.reply(1)
    assert begun(_sum_of(first, first)).result() == 2


def test_what_is_begun_is_thrown_what_it_waits_for_and_fails_with_what_it_raises() -> None:
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


def test_what_is_begun_goes_to_its_end_though_nobody_waits_for_it_any_more() -> None:
    first: Later[int] = Later()
    done: list[int] = []

    async def add() -> None:
        done.append(await first)

    begun(add()).abandon()
    first.reply(1)
    assert done == [1]


def test_what_is_carried_on_raises_to_who_answers() -> None:
    async def refuse(awaited: Later[int]) -> None:
        await awaited
        raise ValueError("no")

    awaited: Later[int] = Later()
    carry_on(refuse(awaited))
    with pytest.raises(ValueError, match="no"):
        awaited.reply(1)

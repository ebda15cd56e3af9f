"""Asks the controller, and passes its answer to a callback."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from protocol.errors import stops_the_broker
from protocol.waiting import Later, Waiting, at_once

if TYPE_CHECKING:
    from broker.controller.controller import Controller, Decide


def unexpected(error: BaseException) -> None:
    """Raise an error that is our own mistake."""
    raise error


def submit_to(
    controller: Controller,
    decide: Decide[Any],
    reply: Callable[[Any], object],
    failed: Callable[[BaseException], object] = unexpected,
) -> None:
    """Submit a decision. `reply` gets what `Controller.submit` returns, `failed` what it raises, within this call if
    possible."""
    ask_controller(controller, controller.submit(decide), reply, failed)


def ask_controller(
    controller: Controller,
    steps: Waiting[Any],
    reply: Callable[[Any], object],
    failed: Callable[[BaseException], object] = unexpected,
) -> None:
    """Like `submit_to`, for anything that waits for the controller."""

    async def told() -> None:
        try:
            answer = await steps
        except Exception as error:
            failed(error)
            if stops_the_broker(error):
                raise
        else:
            reply(answer)

    if controller._metadata.carry_out is at_once:
        drive(told())
    else:
        controller.begin(told())


def drive(steps: Waiting[None], failed: Callable[[BaseException], object] = unexpected) -> None:
    """Drive the steps without a node, and serve nobody else. If the steps wait for a `Later`, they continue in the call
    that answers it, up to their next `await`. `failed` gets the exception that they raise."""
    _take(lambda: steps.send(None), steps, failed)


_to_go_on: list[Callable[[], None]] = []
_under_way: list[Waiting[None]] = []


def _take(step: Callable[[], Any], steps: Waiting[None], failed: Callable[[BaseException], object]) -> None:
    _under_way.append(steps)
    try:
        wish = step()
        while wish is None:
            wish = steps.send(None)
        assert isinstance(wish, Later)
        wish.when_answered(lambda: _answered(wish, steps, failed))
    except StopIteration:
        pass
    except Exception as error:
        failed(error)
    finally:
        _under_way.pop()
    while _to_go_on and not _under_way:
        _to_go_on.pop(0)()


def _answered(wish: Later[Any], steps: Waiting[None], failed: Callable[[BaseException], object]) -> None:
    def step() -> Any:
        try:
            answer = wish.result()
        except Exception as error:
            return steps.throw(error)
        return steps.send(answer)

    if _under_way:
        _to_go_on.append(lambda: _take(step, steps, failed))
    else:
        _take(step, steps, failed)

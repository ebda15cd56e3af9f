"""A handler's answer, which comes at once or later."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from protocol.waiting import Later

R = TypeVar("R")


async def answered(answer: R | Later[R]) -> R:
    """Return the response. Wait for one that comes later, and hang up if the waiting is cancelled.

    Raises what a `Later` fails with.
    """
    if not isinstance(answer, Later):
        return answer
    there = asyncio.Event()
    answer.when_answered(there.set)
    try:
        await there.wait()
    except asyncio.CancelledError:
        answer.abandon()
        raise
    return answer.result()

"""What a handler answers, at once or later."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from broker.network.later import Later

R = TypeVar("R")


async def answered(answer: R | Later[R]) -> R:
    """The response; waits for one that comes later. Raises what a `Later` fails with."""
    if not isinstance(answer, Later):
        return answer
    there = asyncio.Event()
    answer.when_answered(there.set)
    await there.wait()
    return answer.result()

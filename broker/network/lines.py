"""What is done one at a time of each of many, as it came, in turns of the loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import TypeVar

from broker.network.later import Later
from protocol.waiting import Waiting

A = TypeVar("A")
K = TypeVar("K", bound=Hashable)

Lines = dict[K, deque[Later[None]]]
"""Who waits for its turn, by what it is of; what nothing is under way of isn't in it."""


async def in_line(lines: Lines[K], key: K, steps: Waiting[A]) -> A:
    """The steps, once it is their turn."""
    place: Later[None] = Later()
    waiting = lines.get(key)
    is_first = waiting is None
    if waiting is None:
        waiting = lines[key] = deque()
    else:
        waiting.append(place)
    try:
        if not is_first:
            await place
        return await steps
    finally:
        steps.close()  # where it never began
        if place in waiting:  # it has hung up before its turn came
            waiting.remove(place)
        elif waiting:
            waiting.popleft().reply(None)
        else:
            del lines[key]

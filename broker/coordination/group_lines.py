"""What is much to decide of a group: one at a time, as it came, which is how Kafka's partition goes about it.

Requests stand in that line, and what a coordinator decides by itself.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from broker.network.later import Later
from protocol.broken_invariant import stops_the_broker

if TYPE_CHECKING:
    from broker.coordination.groups import Groups
    from broker.network.turns import RequestSteps, Turns
    from coordinator.ports import BesideSteps

log = logging.getLogger("barnabas.coordination")

A = TypeVar("A")

Deciding = dict[str, deque[Later[None]]]
"""By group, who waits for its turn; a group that nothing long is being decided of isn't in it."""


def in_line(deciding: Deciding, group_id: str, steps: RequestSteps[A]) -> RequestSteps[A]:
    """The steps, once it is their turn in the group."""
    place: Later[None] = Later()
    waiting = deciding.get(group_id)
    is_first = waiting is None
    if waiting is None:
        waiting = deciding[group_id] = deque()
    else:
        waiting.append(place)
    try:
        if not is_first:
            yield place
        return (yield from steps)
    finally:
        if place in waiting:  # it has hung up before its turn came
            waiting.remove(place)
        elif waiting:
            waiting.popleft().reply(None)
        else:
            del deciding[group_id]


def carry_out(
    groups: Groups,
    turns: Turns,
    group_id: str,
    steps: BesideSteps,
    failed: Callable[[BaseException], None],
) -> None:
    """See `coordinator.ports.Runtime.carry_out`. `failed` learns of broken invariants."""

    def unasked() -> RequestSteps[None]:
        try:
            yield from in_line(groups.deciding, group_id, steps)
        finally:
            groups.unasked.pop(under_way, None)

    def tell(error: BaseException) -> None:
        log.error("what was to be decided of group %s is lost", group_id, exc_info=error)
        if stops_the_broker(error):
            failed(error)

    under_way = unasked()
    groups.unasked[under_way] = None
    turns.carry_out(under_way, tell)

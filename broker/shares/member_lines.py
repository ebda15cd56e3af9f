"""What share partitions are asked in the name of one member: what it acknowledges, and what it gives back when its
session ends. Where it is of many of them they are asked in turns of the loop.

In between others are served, as in Kafka, whose lock is on one share partition and which asks one after the other. Each
is asked in one call, so whoever comes in between finds it as it was before or as it is after: another member's fetch,
the end of a lock, the end of the leadership. Of the member itself nothing comes in between, which in Kafka a
connection's thread sees to: all that it asks stands in one line. So a session that ends gives nothing back before what
was acknowledged before its end, and a new session acquires nothing that the old one would give back then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypeVar

from broker.network.lines import Lines, in_line
from broker.shares.share_session_cache import SessionKey, ShareKey

if TYPE_CHECKING:
    from broker.network.turns import RequestSteps

MOST_ASKED_IN_PASSING = 100
"""Share partitions that are asked in one turn of the loop, at some 60 µs each, of which most are a write."""

A = TypeVar("A")


class MemberLines:
    """`over` is called with a group once something of it is done that has taken several turns."""

    def __init__(self, carry_out: Callable[[RequestSteps[None]], None], over: Callable[[str], None]) -> None:
        """`carry_out`: steps that nobody waits for, to their end, in turns."""
        self._carry_out = carry_out
        self._over = over
        self._lines: Lines[SessionKey] = {}

    def has_any(self, group_id: str) -> bool:
        """Whether something is under way of the group."""
        return any(key[0] == group_id for key in self._lines)

    def ask_each(
        self,
        member: SessionKey,
        keys: Collection[ShareKey],
        ask: Callable[[ShareKey], None],
        asked: Callable[[], None],
    ) -> None:
        """`ask` with each of them, then `asked`: in this call where they are few, and nothing of the member is ahead of
        it. It goes on to its end where the client hangs up."""
        if len(keys) <= MOST_ASKED_IN_PASSING and member not in self._lines:
            for key in keys:
                ask(key)
            asked()
        else:
            self._carry_out(self._asking_each(member, [*keys], ask, asked))

    def _asking_each(
        self,
        member: SessionKey,
        keys: Collection[ShareKey],
        ask: Callable[[ShareKey], None],
        asked: Callable[[], None],
    ) -> RequestSteps[None]:
        def steps() -> RequestSteps[None]:
            for number, key in enumerate(keys):
                if number and number % MOST_ASKED_IN_PASSING == 0:
                    yield None
                ask(key)
            asked()

        yield from in_line(self._lines, member, steps())
        self._over(member[0])

    def behind(self, member: SessionKey, steps: RequestSteps[A]) -> RequestSteps[A]:
        """The steps, once all is done that the member has asked before."""
        return self._in_line(member, steps) if member in self._lines else steps

    def _in_line(self, member: SessionKey, steps: RequestSteps[A]) -> RequestSteps[A]:
        try:
            return (yield from in_line(self._lines, member, steps))
        finally:
            self._over(member[0])

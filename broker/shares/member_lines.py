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
from typing import TypeVar

from broker.network.turns import Lines, in_line
from broker.shares.share_session_cache import SessionKey, ShareKey
from protocol.waiting import Waiting, turn

MOST_ASKED_IN_PASSING = 100
"""Share partitions that are asked in one turn of the loop, at some 60 µs each, of which most are a write. Fewer, where
the turn has been long enough before."""

A = TypeVar("A")


class MemberLines:
    """`over` is called with a group once something of it is done that stood in a line."""

    def __init__(self, turn_is_over: Callable[[], bool], over: Callable[[str], None]) -> None:
        """`turn_is_over`: whether the turn of the loop that is taken has been long enough."""
        self._turn_is_over = turn_is_over
        self._over = over
        self._lines: dict[str, Lines[str]] = {}  # by group, then by member
        self._left: Lines[object] = {}  # by `left_by`

    def has_any(self, group_id: str) -> bool:
        """Whether something is under way of the group."""
        return group_id in self._lines

    async def ask_each(
        self,
        member: SessionKey,
        keys: Collection[ShareKey],
        ask: Callable[[ShareKey], None],
        *,
        left_by: object = None,
    ) -> None:
        """`ask` with each of them: in this call where they take one turn, and nothing of the member is ahead of it. It
        is to go on to its end where the client hangs up.

        `left_by`: what all have in common that is left by one ended connection: they are asked one at a time.
        """
        steps = self._asking_each(keys, ask)
        if left_by is not None:
            steps = in_line(self._left, left_by, steps)
        await self._in_line(member, steps)

    async def _asking_each(self, keys: Collection[ShareKey], ask: Callable[[ShareKey], None]) -> None:
        in_this_turn = 0
        for key in [*keys]:
            if in_this_turn == MOST_ASKED_IN_PASSING or self._turn_is_over():
                await turn()
                in_this_turn = 0
            ask(key)
            in_this_turn += 1

    def behind(self, member: SessionKey, steps: Waiting[A]) -> Waiting[A]:
        """The steps, once all is done that the member has asked before."""
        return self._in_line(member, steps) if member[1] in self._lines.get(member[0], ()) else steps

    async def _in_line(self, member: SessionKey, steps: Waiting[A]) -> A:
        group_id, member_id = member
        of_group = self._lines.setdefault(group_id, {})
        try:
            return await in_line(of_group, member_id, steps)
        finally:
            if not of_group:
                self._lines.pop(group_id, None)  # it may be gone where all is given up
            self._over(group_id)

"""Sessions of a classic group's members: who isn't heard of for so long is late.

Timers, by key: ("session", group, member). Source: `GroupMetadataManager`
(rescheduleClassicGroupMemberHeartbeat, expireClassicGroupMemberHeartbeat).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from coordinator.group.classic.member import ClassicMember
from coordinator.group.modern.sessions import RETRY_MS
from coordinator.group.parts import ShardParts

LateMember = Callable[[str, str], None]
"""What is done with a member that is late: its group's id, and its own."""


class ClassicSessions:
    """The timers of members, and of those who were told their member id and haven't joined with it yet."""

    def __init__(self, parts: ShardParts, late: LateMember) -> None:
        self._runtime = parts.runtime
        self._undecided = parts.undecided
        self._late = late

    def restart(self, group_id: str, member: ClassicMember) -> None:
        """The member was heard of: its session starts anew."""
        member_id = member.member_id
        self._runtime.schedule(
            ("session", group_id, member_id),
            member.session_timeout_ms,
            partial(self._due, group_id, member_id),
        )

    def watch(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """It has to be heard of within this time, whatever its own timeout is."""
        self._runtime.schedule(
            ("session", group_id, member_id), timeout_ms, partial(self._due, group_id, member_id)
        )

    def _due(self, group_id: str, member_id: str) -> None:
        if self._undecided.is_of(group_id, member_id):  # it comes back by the consumer protocol
            self.watch(group_id, member_id, RETRY_MS)
        else:
            self._late(group_id, member_id)

    def end(self, group_id: str, member_id: str) -> None:
        self._runtime.cancel(("session", group_id, member_id))

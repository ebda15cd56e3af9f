"""The timers of a streams group's members, see `modern/sessions.py`.

By key: ("streams session", group, member), and ("streams rebalance", group, member) while it has tasks to give up.
Source: `GroupMetadataManager` (scheduleStreamsGroupSessionTimeout, scheduleStreamsGroupRebalanceTimeout).
"""

from __future__ import annotations

from coordinator.group.modern.sessions import Late, MemberSessions
from coordinator.group.parts import ShardParts
from coordinator.group.streams.member import StreamsMember
from coordinator.group.streams.states import StreamsMemberState

STREAMS_SESSION = "streams session"
STREAMS_REBALANCE = "streams rebalance"


class StreamsSessions(MemberSessions):
    """Of the members of a shard."""

    def __init__(self, parts: ShardParts, late: Late) -> None:
        super().__init__(
            parts.runtime,
            late,
            is_undecided=parts.undecided.is_of,
            session=STREAMS_SESSION,
            rebalance=STREAMS_REBALANCE,
            timeout_ms_of=lambda group_id: parts.streams_config_of(group_id).session_timeout_ms,
            find=self._member,
        )
        self._groups = parts.store.streams

    def _member(self, group_id: str, member_id: str) -> StreamsMember | None:
        group = self._groups.get(group_id)
        return None if group is None else group.members.get(member_id)

    def restart_all(self) -> None:
        """After a start: everybody has a whole session, and its whole time to give up what it has to."""
        for group_id, group in self._groups.items():
            for member_id, member in group.members.items():
                self.restart(group_id, member_id)
                if member.state is StreamsMemberState.UNREVOKED_TASKS:
                    self.limit_rebalance(group_id, member)

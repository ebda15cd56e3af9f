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


class StreamsSessions(MemberSessions[StreamsMember]):
    """Of the members of a shard."""

    def __init__(self, parts: ShardParts, late: Late) -> None:
        super().__init__(
            parts.runtime,
            late,
            parts.store.streams,
            is_undecided=parts.undecided.is_of,
            session=STREAMS_SESSION,
            rebalance=STREAMS_REBALANCE,
            timeout_ms_of=lambda group_id: parts.streams_config_of(group_id).session_timeout_ms,
            gives_up=lambda member: member.state is StreamsMemberState.UNREVOKED_TASKS,
        )

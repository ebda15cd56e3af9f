"""Sessions and time limits of a consumer group's members. Who is late is fenced, as if it had left.

Timers, by key: ("consumer session", group, member), ("rebalance", group, member) while it has something to give up,
("consumer join", …) and ("consumer sync", …) of members of the classic protocol. A member that isn't there any more
when a timer fires, or is another group's by then, is passed over. One that waits for a heartbeat of its own to be
decided isn't late before, see `undecided.py`.
Source: `GroupMetadataManager` (scheduleConsumerGroupSessionTimeout and its neighbours).
"""

from __future__ import annotations

from functools import partial

from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.member import ConsumerMember
from coordinator.group.consumer.states import MemberState
from coordinator.group.modern.sessions import Late, MemberSessions
from coordinator.group.parts import ShardParts

SESSION = "consumer session"
REBALANCE = "rebalance"
JOIN = "consumer join"
SYNC = "consumer sync"


class ConsumerSessions(MemberSessions[ConsumerMember]):
    """The timers of members."""

    def __init__(self, parts: ShardParts, late: Late) -> None:
        super().__init__(
            parts.runtime,
            late,
            parts.store.consumer,
            is_undecided=parts.undecided.is_of,
            session=SESSION,
            rebalance=REBALANCE,
            timeout_ms_of=lambda group_id: parts.timeouts_of(group_id).session_timeout_ms,
            gives_up=lambda member: member.state is MemberState.UNREVOKED_PARTITIONS,
        )
        self._consumer_groups = parts.store.consumer

    def await_join(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """A member of the classic protocol was told to join again; the time runs from the first telling."""
        group_id, member_id = group.group_id, member.member_id
        if member_id not in group.awaited_joins:
            group.awaited_joins.add(member_id)
            self._schedule(
                (JOIN, group_id, member_id),
                member.rebalance_timeout_ms,
                partial(self._late, group_id, member_id, "it didn't join again in time"),
            )

    def end_join(self, group_id: str, member_id: str) -> None:
        group = self._consumer_groups.get(group_id)
        if group is not None:
            group.awaited_joins.discard(member_id)
        self._runtime.cancel((JOIN, group_id, member_id))

    def await_sync(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        self._schedule(
            (SYNC, group_id, member_id),
            timeout_ms,
            partial(self._late, group_id, member_id, "it didn't sync in time"),
        )

    def end_sync(self, group_id: str, member_id: str) -> None:
        self._runtime.cancel((SYNC, group_id, member_id))

    def cancel_all(self, group_id: str, member_id: str) -> None:
        super().cancel_all(group_id, member_id)
        self.end_sync(group_id, member_id)
        self.end_join(group_id, member_id)

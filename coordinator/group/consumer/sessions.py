"""Sessions and time limits of a consumer group's members. Who is late is fenced, as if it had left.

Timers, by key: ("consumer session", group, member), ("rebalance", group, member) while it has something to give up,
("consumer join", …) and ("consumer sync", …) of members of the classic protocol. A member that isn't there any more
when a timer fires, or is another group's by then, is passed over. One that waits for a heartbeat of its own to be
decided isn't late before, see `undecided.py`.
Source: `GroupMetadataManager` (scheduleConsumerGroupSessionTimeout and its neighbours).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.member import ConsumerMember
from coordinator.group.consumer.states import MemberState
from coordinator.group.parts import ShardParts
from coordinator.group.undecided import RETRY_MS

SESSION = "consumer session"
REBALANCE = "rebalance"
JOIN = "consumer join"
SYNC = "consumer sync"

_Key = tuple[str, str, str]
"""Of a timer: what it limits, the group, the member."""

Late = Callable[[str, str, str], None]
"""What is done with a member that is late: its group's id, its id, and why."""


class ConsumerSessions:
    """The timers of members."""

    def __init__(self, parts: ShardParts, late: Late) -> None:
        self._runtime = parts.runtime
        self._groups = parts.store.consumer
        self._timeouts_of = parts.timeouts_of
        self._late = late
        self._undecided = parts.undecided

    def _schedule(self, key: _Key, delay_ms: int, late: Callable[[], None]) -> None:
        self._runtime.schedule(key, delay_ms, partial(self._due, key, late))

    def _due(self, key: _Key, late: Callable[[], None]) -> None:
        _, group_id, member_id = key
        if self._undecided.is_of(group_id, member_id):
            self._schedule(key, RETRY_MS, late)  # what is decided may put it off, or end it
        else:
            late()

    def restart(self, group_id: str, member_id: str, timeout_ms: int | None = None) -> None:
        """The member was heard of. By default it has the group's session timeout."""
        if timeout_ms is None:
            timeout_ms = self._timeouts_of(group_id).session_timeout_ms
        self._schedule(
            (SESSION, group_id, member_id),
            timeout_ms,
            partial(self._late, group_id, member_id, "its session expired"),
        )

    def retry(self, group_id: str, member_id: str, reason: str) -> None:
        """It couldn't be fenced: again after a while, as in Kafka (`CoordinatorTimerImpl`)."""
        self._schedule(
            (SESSION, group_id, member_id), RETRY_MS, partial(self._late, group_id, member_id, reason)
        )

    def limit_rebalance(self, group_id: str, member: ConsumerMember) -> None:
        """It has to give up its partitions in time, unless its epoch changes before."""
        member_id, epoch = member.member_id, member.epoch

        def due() -> None:
            group = self._groups.get(group_id)
            found = None if group is None else group.members.get(member_id)
            if found is not None and found.epoch == epoch:
                self._late(group_id, member_id, f"it didn't get beyond epoch {epoch} in time")

        self._schedule((REBALANCE, group_id, member_id), member.rebalance_timeout_ms, due)

    def end_rebalance(self, group_id: str, member_id: str) -> None:
        self._runtime.cancel((REBALANCE, group_id, member_id))

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
        group = self._groups.get(group_id)
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
        for kind in (SESSION, REBALANCE, SYNC):
            self._runtime.cancel((kind, group_id, member_id))
        self.end_join(group_id, member_id)

    def restart_all(self) -> None:
        """After a start: everybody has a whole session, and its whole time to give up what it has to."""
        for group_id, group in self._groups.items():
            for member_id, member in group.members.items():
                self.restart(group_id, member_id)
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    self.limit_rebalance(group_id, member)

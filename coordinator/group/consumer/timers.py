"""Sessions and time limits of a consumer group's members. Who is late is fenced: as if it had left.

Timers, by key: ("consumer session", group, member), ("rebalance", group, member) while it has something to give up,
("consumer join", …) and ("consumer sync", …) of members of the classic protocol. A member that isn't there any more
when a timer fires, or is another group's by then, is passed over.
Source: `GroupMetadataManager` (scheduleConsumerGroupSessionTimeout and its neighbours).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from coordinator.group.consumer import leaving
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.member import ConsumerMember
from coordinator.group.consumer.states import MemberState
from protocol.errors import KafkaError

if TYPE_CHECKING:
    from coordinator.group.shard import GroupShard

log = logging.getLogger("barnabas.groups")

SESSION = "consumer session"
REBALANCE = "rebalance"
JOIN = "consumer join"
SYNC = "consumer sync"

RETRY_MS = 500


def restart_session(shard: GroupShard, group_id: str, member_id: str, timeout_ms: int | None = None) -> None:
    """The member was heard of. By default it has the group's session timeout."""
    if timeout_ms is None:
        timeout_ms = shard.timeouts_of(group_id).session_timeout_ms
    _fence_after(shard, SESSION, group_id, member_id, timeout_ms, "its session expired")


def limit_rebalance(shard: GroupShard, group_id: str, member: ConsumerMember) -> None:
    """It has to give up its partitions in time, unless its epoch changes before."""
    member_id, epoch = member.member_id, member.epoch

    def due() -> None:
        group = shard.consumer_groups.get(group_id)
        found = None if group is None else group.members.get(member_id)
        if found is not None and found.epoch == epoch:
            _fence(shard, group_id, member_id, f"it didn't get beyond epoch {epoch} in time")

    shard.runtime.schedule((REBALANCE, group_id, member_id), member.rebalance_timeout_ms, due)


def end_rebalance(shard: GroupShard, group_id: str, member_id: str) -> None:
    shard.runtime.cancel((REBALANCE, group_id, member_id))


def await_join(shard: GroupShard, group: ConsumerGroup, member: ConsumerMember) -> None:
    """A member of the classic protocol was told to join again; the time runs from the first telling."""
    if member.member_id not in group.awaited_joins:
        group.awaited_joins.add(member.member_id)
        _fence_after(
            shard,
            JOIN,
            group.group_id,
            member.member_id,
            member.rebalance_timeout_ms,
            "it didn't join again in time",
        )


def end_join(shard: GroupShard, group_id: str, member_id: str) -> None:
    group = shard.consumer_groups.get(group_id)
    if group is not None:
        group.awaited_joins.discard(member_id)
    shard.runtime.cancel((JOIN, group_id, member_id))


def await_sync(shard: GroupShard, group_id: str, member_id: str, timeout_ms: int) -> None:
    _fence_after(shard, SYNC, group_id, member_id, timeout_ms, "it didn't sync in time")


def end_sync(shard: GroupShard, group_id: str, member_id: str) -> None:
    shard.runtime.cancel((SYNC, group_id, member_id))


def cancel_all(shard: GroupShard, group_id: str, member_id: str) -> None:
    for kind in (SESSION, REBALANCE, SYNC):
        shard.runtime.cancel((kind, group_id, member_id))
    end_join(shard, group_id, member_id)


def restart_all(shard: GroupShard) -> None:
    """After a start: everybody has a whole session, and its whole time to give up what it has to."""
    for group_id, group in shard.consumer_groups.items():
        for member_id, member in group.members.items():
            restart_session(shard, group_id, member_id)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                limit_rebalance(shard, group_id, member)


def _fence_after(
    shard: GroupShard, kind: str, group_id: str, member_id: str, timeout_ms: int, reason: str
) -> None:
    shard.runtime.schedule(
        (kind, group_id, member_id), timeout_ms, partial(_fence, shard, group_id, member_id, reason)
    )


def _fence(shard: GroupShard, group_id: str, member_id: str, reason: str) -> None:
    group = shard.consumer_groups.get(group_id)
    member = None if group is None else group.members.get(member_id)
    if group is None or member is None:
        return
    log.info("group %s: %s is fenced: %s", group_id, member_id, reason)
    try:
        leaving.fence(shard, group, [member])
    except KafkaError as error:
        # Kafka tries again after a while, too (CoordinatorTimerImpl).
        log.warning("group %s: %s can't be fenced now: %s", group_id, member_id, error)
        _fence_after(shard, SESSION, group_id, member_id, RETRY_MS, reason)

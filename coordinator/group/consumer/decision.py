"""Decisions about a consumer group: admission, the decision itself, and the timers that it moves.

A decision goes from one step to the next (`steps.py`). Durable state of the group only changes after the
records are written. Looking up its topics and log lines come before that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from coordinator.group.consumer.group import (
    ConsumerGroup,
    ConsumerMember,
    Owned,
    assignment_record,
    member_record,
    member_tombstones,
    target_record,
)
from coordinator.group.consumer.states import LEAVE_STATIC_EPOCH, MemberState
from coordinator.group.modern.group import Target
from coordinator.group.ports import MayDescribe
from coordinator.group.records import AnyRecord
from coordinator.group.shard_parts import Effects, Late, MemberSessions, ShardParts
from protocol.errors import Error, KafkaError

log = logging.getLogger("barnabas.groups")


@dataclass(slots=True)
class GroupDecision(Effects):
    """A decision about a group."""

    group: ConsumerGroup
    records: list[AnyRecord]
    """In the order in which Kafka writes them. Those for a member begin with the records that admit it."""


@dataclass(slots=True)
class Decision(GroupDecision):
    """A member of a group changes from `old`, as the group knows it, to `new`.

    If a classic group is converted to the consumer protocol, `group` is empty at first; see `Migration.go_up`.
    """

    old: ConsumerMember
    new: ConsumerMember
    owned: Owned
    may_describe: MayDescribe
    """The rights of the client that causes the decision. Topics that match an expression count only if it may
    describe them."""
    subscription_changed: bool = field(init=False, default=False)
    epoch: int = field(init=False)
    """The group's new epoch. The first step sets it and the following fields."""
    homogeneous: bool = field(init=False)
    target_epoch: int = field(init=False)
    target: Target = field(init=False)
    """The member's part of the target assignment."""


# --- admission: whether there is room, and whose place a static member takes ----------------------------------


@dataclass(slots=True)
class Entry:
    """The first records and effects of a decision: those that admit a member."""

    records: list[AnyRecord] = field(default_factory=list)
    effects: list[Callable[[], None]] = field(default_factory=list)


def check_room(group: ConsumerGroup, member_id: str, instance_id: str | None, limit: int) -> None:
    """Raises KafkaError (GROUP_MAX_SIZE_REACHED) if there is no room for the member. A known static member
    takes its own place (KAFKA-20601)."""
    if group.static_member(instance_id) is not None:
        return
    if len(group.members) >= limit and not (member_id and member_id in group.members):
        raise KafkaError(
            Error.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {limit} members.",
        )


def known_or_new(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    """Return the member, or a new one without partitions and subscriptions."""
    return group.members.get(member_id) or ConsumerMember(member_id)


def take_instance(
    group: ConsumerGroup, joining: ConsumerMember, entry: Entry, *, uses_classic: bool
) -> ConsumerMember:
    """Admit a static member: a new one, or one that comes back and takes its place under a new id.

    `joining` has its member id and instance id. Raises KafkaError (UNRELEASED_INSTANCE_ID) if the last owner
    of the instance id, of the same protocol, hasn't left.
    """
    member_id, instance_id = joining.member_id, joining.instance_id
    owner = group.static_member(instance_id)
    if owner is None:
        return known_or_new(group, member_id)
    if not uses_classic and not owner.is_classic and owner.epoch != LEAVE_STATIC_EPOCH:
        raise KafkaError(
            Error.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
            f"instance id is owned by {owner.member_id} member.",
        )
    member = replace(owner, member_id=member_id, epoch=0, previous_epoch=0)
    entry.records += member_tombstones(group.group_id, owner.member_id)
    entry.records.append(member_record(group.group_id, member))
    entry.records.append(target_record(group.group_id, member_id, group.target_of(owner.member_id)))
    entry.records.append(assignment_record(group.group_id, member))
    said = "group %s: %s takes the place of %s"
    entry.effects.append(partial(log.info, said, group.group_id, member_id, owner.member_id))
    return member


# --- time limits of members: a late member is fenced, as if it had left ---------------------------------------
#
# By key: ("consumer session", group, member), ("rebalance", group, member) while it has something to give up,
# ("consumer join", …) and ("consumer sync", …) of members of the classic protocol. Source:
# `GroupMetadataManager` (scheduleConsumerGroupSessionTimeout and its neighbours).

SESSION = "consumer session"
REBALANCE = "rebalance"
JOIN = "consumer join"
SYNC = "consumer sync"


class ConsumerSessions(MemberSessions[ConsumerMember]):
    """The timers of a consumer group's members."""

    def __init__(self, parts: ShardParts, late: Late) -> None:
        super().__init__(
            parts.runtime,
            late,
            parts.store.consumer,
            is_undecided=parts.undecided.is_of,
            session=SESSION,
            rebalance=REBALANCE,
            timeouts_of=parts.timeouts_of,
            gives_up=lambda member: member.state is MemberState.UNREVOKED_PARTITIONS,
        )
        self._consumer_groups = parts.store.consumer

    def await_join(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Start the join timeout of a member of the classic protocol that has to join again. The first start
        counts."""
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

"""Who comes into a consumer group: whether there is room, and whose place a static member takes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.member import ConsumerMember
from coordinator.group.consumer.records import (
    assignment_record,
    member_record,
    member_tombstones,
    target_record,
)
from coordinator.group.consumer.states import LEAVE_STATIC_EPOCH
from coordinator.group.records import AnyRecord
from protocol.errors import Error, KafkaError

log = logging.getLogger("barnabas.groups")


@dataclass(slots=True)
class Entry:
    """What lets a member in: the first records of its decision, and the first effects."""

    records: list[AnyRecord] = field(default_factory=list)
    effects: list[Callable[[], None]] = field(default_factory=list)


def check_room(group: ConsumerGroup, member_id: str, limit: int) -> None:
    """Raises KafkaError (GROUP_MAX_SIZE_REACHED) for one member too many."""
    if len(group.members) >= limit and not (member_id and member_id in group.members):
        raise KafkaError(
            Error.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {limit} members.",
        )


def known_or_new(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    """A member that isn't in the group yet has nothing, and subscribes to nothing."""
    return group.members.get(member_id) or ConsumerMember(member_id)


def take_instance(
    group: ConsumerGroup, joining: ConsumerMember, entry: Entry, *, uses_classic: bool
) -> ConsumerMember:
    """A static member joins, or comes back and takes its place under a new id. `joining` has its two ids.

    Raises KafkaError (UNRELEASED_INSTANCE_ID) where the last one, of the same protocol, hasn't left.
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

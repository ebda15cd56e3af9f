"""The target assignment: who is to have what (Kafka: `TargetAssignmentBuilder`).

It is computed by a heartbeat or a join that finds the group's epoch beyond it, at the earliest
`group.consumer.assignment.interval.ms` after the last one.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from coordinator.group.consumer.assignors import ASSIGNORS
from coordinator.group.consumer.assignors.spec import AssignorError, GroupSpec, MemberSpec
from coordinator.group.consumer.group import NO_TARGET, ConsumerGroup, ResolvedRegex
from coordinator.group.consumer.member import ConsumerMember, Target, same_target
from coordinator.group.consumer.records import target_epoch_record, target_record
from coordinator.group.records import AnyRecord
from coordinator.group.topics import Topics
from coordinator.java.maps import JavaMap
from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from coordinator.group.shard import GroupShard

log = logging.getLogger("barnabas.groups")


def update_target(
    shard: GroupShard,
    group: ConsumerGroup,
    epoch: int,
    old: ConsumerMember,
    new: ConsumerMember,
    records: list[AnyRecord],
    *,
    homogeneous: bool,
) -> tuple[int, Target]:
    """The epoch of the target assignment and the member's part of it; a new one goes to `records`.

    Raises KafkaError (UNKNOWN_SERVER_ERROR) where no assignment is possible.
    """
    if group.assignment_epoch >= epoch or not _may_compute(shard, group):
        return group.assignment_epoch, group.target_of_member(new)
    name = group.preferred_assignor(old, new) or shard.settings.consumer_assignors[0]
    members = _specs(group, new, shard.topics)

    def partition_count(topic_id: bytes) -> int:
        topic = shard.topics.by_id(topic_id)
        return -1 if topic is None else topic.partition_count

    spec = GroupSpec(members, homogeneous, group.inverted_targets, partition_count)
    try:
        assignments = ASSIGNORS[name](spec)
    except AssignorError as error:
        log.error("group %s: no target assignment for epoch %d: %s", group.group_id, epoch, error)
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR) from error
    for member_id in members:
        target = assignments.get(member_id, NO_TARGET)
        if not same_target(target, group.targets.get(member_id)):
            records.append(target_record(group.group_id, member_id, target))
    records.append(target_epoch_record(group.group_id, epoch, shard.runtime.now_ms()))
    log.info("group %s: assignment %d by %s", group.group_id, epoch, name)
    return epoch, assignments.get(new.member_id, NO_TARGET)


def _may_compute(shard: GroupShard, group: ConsumerGroup) -> bool:
    interval_ms = shard.timeouts_of(group.group_id).assignment_interval_ms
    since_ms = group.assignment_timestamp_ms
    return not since_ms or not interval_ms or shard.runtime.now_ms() >= since_ms + interval_ms


def _specs(group: ConsumerGroup, new: ConsumerMember, topics: Topics) -> JavaMap[str, MemberSpec]:
    """The members as they will be: with the joining one, without the one whose instance id it takes over."""
    specs: JavaMap[str, MemberSpec] = JavaMap()
    for member_id, member in group.members.items():
        specs[member_id] = _spec(member, group.target_of(member_id), group.resolved, topics)
    changes: JavaMap[str, ConsumerMember | None] = JavaMap()
    changes[new.member_id] = new
    previous = None if new.instance_id is None else group.static_members.get(new.instance_id)
    if previous is not None and previous != new.member_id:
        changes[previous] = None
    for member_id, changed in changes.items():
        if changed is None:
            specs.pop(member_id)
        else:
            owner = member_id if previous is None else previous
            specs[member_id] = _spec(changed, group.target_of(owner), group.resolved, topics)
    return specs


def _spec(
    member: ConsumerMember, target: Target, resolved: Mapping[str, ResolvedRegex], topics: Topics
) -> MemberSpec:
    names = subscribed_names(member, resolved)
    found = (topics.by_name(name) for name in names)
    return MemberSpec(
        member.instance_id,
        tuple(topic.topic_id for topic in found if topic is not None),
        len(names),
        target,
    )


def subscribed_names(member: ConsumerMember, resolved: Mapping[str, ResolvedRegex]) -> Collection[str]:
    """All topics that a member subscribes to, by name and by regular expression, in Java's order."""
    found = resolved.get(member.regex) if member.regex else None
    if found is None or (len(member.names) and not len(found.topics)):
        return member.names
    if not len(member.names):
        return found.topics
    # Kafka's UnionSet: the larger one first; then what only the smaller one has.
    larger, smaller = found.topics, member.names
    if len(member.names) > len(found.topics):
        larger, smaller = smaller, larger
    return [*larger, *(name for name in smaller if name not in larger)]

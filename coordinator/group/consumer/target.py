"""The second step of a decision: the target assignment, who is to have what (Kafka: `TargetAssignmentBuilder`).

It is computed by a heartbeat or a join that finds the group's epoch beyond it, at the earliest
`group.consumer.assignment.interval.ms` after the last one.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from functools import partial

from coordinator.group.consumer.decision import Decision
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.member import ConsumerMember
from coordinator.group.consumer.records import target_epoch_record, target_record
from coordinator.group.consumer.resolved_regex import ResolvedRegex
from coordinator.group.known_topics import KnownTopics
from coordinator.group.modern.assignors import ASSIGNORS
from coordinator.group.modern.assignors.spec import AssignorError, GroupSpec, MemberSpec
from coordinator.group.modern.targets import NO_TARGET, Target, same_target
from coordinator.group.parts import ShardParts
from coordinator.java.maps import JavaMap
from protocol.errors import Error, KafkaError

log = logging.getLogger("barnabas.groups")


class TargetStep:
    """Finds the member's part of the target assignment; a new one goes to the records."""

    def __init__(self, parts: ShardParts) -> None:
        self._runtime = parts.runtime
        self._topics = parts.topics
        self._assignors = parts.settings.consumer_assignors
        self._timeouts_of = parts.timeouts_of

    def take(self, decision: Decision) -> None:
        """Raises KafkaError (UNKNOWN_SERVER_ERROR) where no assignment is possible."""
        group = decision.group
        if group.assignment_epoch >= decision.epoch or not self._may_compute(group):
            decision.target = group.target_of_member(decision.new)
            return
        name = group.preferred_assignor(decision.old, decision.new) or self._assignors[0]
        if (
            name not in ASSIGNORS
        ):  # no member can ask for one, but the log may say so: of a Kafka with its own
            said = "group %s: assignor %r isn't known here, %s is taken"
            decision.effects.append(partial(log.warning, said, group.group_id, name, self._assignors[0]))
            name = self._assignors[0]
        members = _specs(group, decision.new, self._topics)
        spec = GroupSpec(members, decision.homogeneous, group.inverted_targets, self._partition_count)
        try:
            assignments = ASSIGNORS[name](spec)
        except AssignorError as error:
            said = "group %s: no target assignment for epoch %d: %s"
            decision.effects.append(partial(log.error, said, group.group_id, decision.epoch, error))
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR) from error
        for member_id in members:
            target = assignments.get(member_id, NO_TARGET)
            if not same_target(target, group.targets.get(member_id)):
                decision.records.append(target_record(group.group_id, member_id, target))
        decision.records.append(target_epoch_record(group.group_id, decision.epoch, self._runtime.now_ms()))
        said = "group %s: assignment %d by %s"
        decision.effects.append(partial(log.info, said, group.group_id, decision.epoch, name))
        decision.target_epoch = decision.epoch
        decision.target = assignments.get(decision.new.member_id, NO_TARGET)

    def _may_compute(self, group: ConsumerGroup) -> bool:
        interval_ms = self._timeouts_of(group.group_id).assignment_interval_ms
        return group.may_be_assigned(interval_ms, self._runtime.now_ms())

    def _partition_count(self, topic_id: bytes) -> int:
        topic = self._topics.by_id(topic_id)
        return -1 if topic is None else topic.partition_count


def _specs(group: ConsumerGroup, new: ConsumerMember, topics: KnownTopics) -> JavaMap[str, MemberSpec]:
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
    member: ConsumerMember, target: Target, resolved: Mapping[str, ResolvedRegex], topics: KnownTopics
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

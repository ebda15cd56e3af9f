"""The steps of a decision: subscription → target → reconciliation.

1. Record the member's subscription, and find out whether the group needs a new assignment
   (`GroupMetadataManager`, hasMemberSubscriptionChanged and what follows it in consumerGroupHeartbeat).
2. Compute the target assignment (`TargetAssignmentBuilder`). A heartbeat or a join does this if the group's
   epoch is beyond the assignment's, at least `group.consumer.assignment.interval.ms` after the last one.
3. Bring the member nearer to its target (`CurrentAssignmentBuilder`). It first gives up partitions, then gets
   new ones. Nobody gets a partition that another member still holds.

Each step uses the results of the steps before it, and adds its own records. It only changes the decision.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from functools import partial
from typing import NamedTuple

from coordinator.group.consumer.decision import ConsumerSessions, Decision
from coordinator.group.consumer.group import (
    Assigned,
    ConsumerGroup,
    ConsumerMember,
    Owned,
    ResolvedRegex,
    assignment_record,
    epoch_record,
    member_record,
    partition_metadata_tombstone,
    target_epoch_record,
    target_record,
)
from coordinator.group.consumer.regexes import RegexChange, Regexes
from coordinator.group.consumer.states import RECONCILE, MemberState, Step
from coordinator.group.modern.assignors import ASSIGNORS, AssignorError, GroupSpec, MemberSpec
from coordinator.group.modern.group import NO_TARGET, Target, same_target
from coordinator.group.ports import KnownTopics
from coordinator.group.shard_parts import ShardParts
from coordinator.java.maps import JavaMap, JavaSet
from protocol.errors import Error, KafkaError

log = logging.getLogger("barnabas.groups")


# --- 1. subscription ------------------------------------------------------------------------------------------


class SubscriptionStep:
    """Records the member's changes, and bumps the group's epoch if its topics have changed."""

    def __init__(self, parts: ShardParts, regexes: Regexes) -> None:
        self._groups = parts.store.consumer
        self._runtime = parts.runtime
        self._hashes = parts.hashes
        self._regexes = regexes
        self._statistics = parts.statistics
        self._default_assignor = parts.settings.consumer_assignors[0]

    def take(self, decision: Decision) -> None:
        """Raises KafkaError (INVALID_REGULAR_EXPRESSION)."""
        old, new, group = decision.old, decision.new, decision.group
        decision.epoch, decision.target_epoch = group.epoch, group.assignment_epoch
        decision.homogeneous = group.homogeneous
        names_changed = False
        if new != old:
            decision.records.append(member_record(decision.group.group_id, new))
            names_changed = new.names != old.names
        regex_change = self._regexes.follow(decision)
        decision.subscription_changed = names_changed or regex_change is not RegexChange.NONE
        if new.is_classic:
            bump = decision.subscription_changed
        else:
            bump = names_changed or regex_change is RegexChange.RESOLVED or self._prefers_another(decision)
        if bump or decision.group.needs_refresh(self._runtime.now_ms()):
            self._refresh(decision, bump=bump)

    def _prefers_another(self, decision: Decision) -> bool:
        """True if the group's preferred server assignor changes (KAFKA-20434).

        A deliberate difference: only a change of this member's own preference can cause that. If two
        assignors have the same number of votes, Kafka's order of the two depends on the sender of the
        heartbeat. There a heartbeat that changes nothing may count as a change, every time.
        """
        group, old, new = decision.group, decision.old, decision.new
        if old.assignor == new.assignor:
            return False
        before = group.preferred_assignor() or self._default_assignor
        return before != (group.preferred_assignor(old, new) or self._default_assignor)

    def _refresh(self, decision: Decision, *, bump: bool) -> None:
        """Bump the group's epoch if its topics have changed, or if `bump` is set."""
        group = decision.group
        topics, decision.homogeneous = group.subscriptions_with(decision.old, decision.new)
        hashed = self._hashes.look(topics)
        decision.effects.append(partial(self._hashes.keep, hashed))
        metadata_hash = hashed.value
        if bump or metadata_hash != group.metadata_hash:
            decision.epoch = group.epoch + 1
            decision.records.append(epoch_record(group.group_id, decision.epoch, metadata_hash))
            decision.effects.append(
                partial(log.info, "group %s is at epoch %d", group.group_id, decision.epoch)
            )
            decision.effects.append(partial(self._statistics.rebalanced, "consumer"))
        refreshed = partial(self._was_refreshed, group.group_id, self._runtime.now_ms(), decision.epoch)
        decision.effects.append(refreshed)
        if group.has_partition_metadata:
            decision.records.append(partition_metadata_tombstone(group.group_id))

    def _was_refreshed(self, group_id: str, now_ms: int, epoch: int) -> None:
        """Note the refresh. A group that doesn't exist yet refreshes at its next heartbeat."""
        group = self._groups.get(group_id)
        if group is not None:
            group.was_refreshed(now_ms, epoch)


# --- 2. target ------------------------------------------------------------------------------------------------


class TargetStep:
    """Finds the member's part of the target assignment. A new assignment goes to the records."""

    def __init__(self, parts: ShardParts) -> None:
        self._runtime = parts.runtime
        self._topics = parts.topics
        self._assignors = parts.settings.consumer_assignors
        self._timeouts_of = parts.timeouts_of

    def take(self, decision: Decision) -> None:
        """Raises KafkaError (UNKNOWN_SERVER_ERROR) if no assignment is possible."""
        group = decision.group
        if group.assignment_epoch >= decision.epoch or not self._may_compute(group):
            decision.target = group.target_of_member(decision.new)
            return
        name = group.preferred_assignor(decision.old, decision.new) or self._assignors[0]
        if (
            name not in ASSIGNORS
        ):  # no member can ask for it, but the log of a Kafka with its own assignors may name it
            said = "group %s: assignor %r isn't known here, using %s"
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
    # As Kafka's UnionSet: the larger one first, then the rest of the smaller one.
    larger, smaller = found.topics, member.names
    if len(member.names) > len(found.topics):
        larger, smaller = smaller, larger
    return [*larger, *(name for name in smaller if name not in larger)]


# --- 3. reconciliation ----------------------------------------------------------------------------------------

NOBODY = -1

PartitionEpochs = Mapping[bytes, Mapping[int, int]]
"""Topic id → partition → the member epoch of its holder. Partitions without a holder are left out."""


_NO_EPOCHS: Mapping[int, int] = {}


class ReconciliationStep:
    """Brings the member one step nearer to its target."""

    def __init__(self, parts: ShardParts, sessions: ConsumerSessions) -> None:
        self._topics = parts.topics
        self._sessions = sessions

    def take(self, decision: Decision) -> None:
        """Raises KafkaError (FENCED_MEMBER_EPOCH); see `reconcile`."""
        member, group = decision.new, decision.group
        if not decision.subscription_changed and member.is_reconciled_to(decision.target_epoch):
            return
        names = subscribed_names(member, group.resolved)
        found = (self._topics.by_name(name) for name in names)
        situation = Situation(
            decision.target_epoch,
            decision.target,
            subscribed={topic.topic_id for topic in found if topic is not None},
            subscription_changed=decision.subscription_changed,
            owned=decision.owned,
            partition_epochs=group.partition_epochs,
        )
        reconciled = reconcile(member, situation)
        if reconciled == member:
            return
        decision.new = reconciled
        decision.records.append(assignment_record(group.group_id, reconciled))
        if not reconciled.is_classic:
            if reconciled.state is MemberState.UNREVOKED_PARTITIONS:
                effect = partial(self._sessions.limit_rebalance, group.group_id, reconciled)
            else:
                effect = partial(self._sessions.end_rebalance, group.group_id, reconciled.member_id)
            decision.once_written.append(effect)


class Situation(NamedTuple):
    """The inputs of a member's next step, besides the member."""

    target_epoch: int
    target: Target
    subscribed: Collection[bytes]
    """The ids of the topics that the member subscribes to."""
    subscription_changed: bool
    owned: Owned
    partition_epochs: PartitionEpochs


def reconcile(member: ConsumerMember, situation: Situation) -> ConsumerMember:
    """Return the member after its next step.

    Raises KafkaError (FENCED_MEMBER_EPOCH) if its state is unknown and it still owns something.
    """
    target_epoch, owned = situation.target_epoch, situation.owned
    is_settled = _is_settled(member, target_epoch, owned)
    step = RECONCILE[member.state, is_settled, situation.subscription_changed]
    if step is Step.STAY:
        return member
    if step is Step.TRIM:
        return _trim(member, situation.subscribed, owned)
    if step is Step.REFUSE:
        raise KafkaError(
            Error.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. "
            "The member must abandon all its partitions and rejoin.",
        )
    epoch = target_epoch if member.state is MemberState.UNKNOWN else member.epoch
    return _next(member, epoch, situation)


def _is_settled(member: ConsumerMember, target_epoch: int, owned: Owned) -> bool:
    """The second part of a key of `RECONCILE`."""
    if member.state is MemberState.STABLE:
        return member.epoch == target_epoch
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        return not _owns_any_of(owned, member.pending)
    if member.state is MemberState.UNKNOWN:
        return owned is not None and not owned
    return True


def _owns_any_of(owned: Owned, assigned: Assigned) -> bool:
    """True if the member still owns one of them. If it doesn't say, assume so."""
    if owned is None:
        return True
    for topic_id, partitions in owned:
        known = assigned.get(topic_id)
        if known is not None and any(partition in known for partition in partitions):
            return True
    return False


def _trim(member: ConsumerMember, subscribed: Collection[bytes], owned: Owned) -> ConsumerMember:
    """Drop topics that the member has unsubscribed from, at once and not only with the next target (KAFKA-19431)."""
    dropped = [topic_id for topic_id in member.assigned if topic_id not in subscribed]
    if not dropped:
        return member
    assigned = JavaMap.copy_of(member.assigned)
    pending = JavaMap.copy_of(member.pending)
    if not subscribed and not len(member.pending):
        assigned, pending = JavaMap(), member.assigned
    else:
        for topic_id in dropped:
            given_up = member.assigned[topic_id]
            assigned.pop(topic_id)
            before = pending.get(topic_id)
            if before is not None:
                given_up = JavaMap.copy_of(before)
                for partition, epoch in member.assigned[topic_id].items():
                    given_up[partition] = epoch
            if before is None:
                pending.compute_if_absent(topic_id, given_up)
            else:
                pending[topic_id] = given_up
    if len(pending) and _owns_any_of(owned, pending):
        return member.at_epoch(
            member.epoch, state=MemberState.UNREVOKED_PARTITIONS, assigned=assigned, pending=pending
        )
    return member.at_epoch(member.epoch, assigned=assigned)


def _next(member: ConsumerMember, epoch: int, situation: Situation) -> ConsumerMember:
    target_epoch, target, subscribed, _, owned, partition_epochs = situation
    kept: Assigned = JavaMap()
    revoked: Assigned = JavaMap()
    added: JavaMap[bytes, JavaSet[int]] = JavaMap()
    some_unreleased = False
    topic_ids = JavaSet.of(target)
    topic_ids.update(member.assigned)
    for topic_id in topic_ids:
        wanted: Collection[int] = (target.get(topic_id) or ()) if topic_id in subscribed else ()
        current = member.assigned.get(topic_id) or JavaMap()
        keeps = JavaMap.copy_of(current)
        revokes = JavaMap.copy_of(current)
        for partition in current:
            (revokes if partition in wanted else keeps).pop(partition)
        pending = member.pending.get(topic_id) or JavaMap()
        epochs = partition_epochs.get(topic_id, _NO_EPOCHS)
        adds = JavaSet.of(wanted)
        for partition in [partition for partition in adds if partition in keeps]:
            adds.discard(partition)
        for partition in [*adds]:
            # A partition that this member itself is giving up counts as free for it (KAFKA-19449).
            if epochs.get(partition, NOBODY) != NOBODY and partition not in pending:
                adds.discard(partition)
                some_unreleased = True
        if len(keeps):
            kept[topic_id] = keeps
        if len(revokes):
            revoked[topic_id] = revokes
        if len(adds):
            added[topic_id] = adds
    if len(revoked) and _owns_any_of(owned, revoked):
        return member.at_epoch(epoch, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending=revoked)
    for topic_id, partitions in added.items():
        kept.compute_if_absent(topic_id, JavaMap())
        for partition in partitions:
            kept[topic_id][partition] = target_epoch
    state = MemberState.UNRELEASED_PARTITIONS if some_unreleased else MemberState.STABLE
    return member.at_epoch(target_epoch, state=state, assigned=kept, pending=JavaMap())


# --- all steps ------------------------------------------------------------------------------------------------


class HeartbeatSteps:
    """The three steps. Each has a method `take(decision)`, which only changes the decision."""

    def __init__(self, parts: ShardParts, regexes: Regexes, sessions: ConsumerSessions) -> None:
        self.subscription = SubscriptionStep(parts, regexes)
        self.target = TargetStep(parts)
        self.reconciliation = ReconciliationStep(parts, sessions)

    def take(self, decision: Decision) -> None:
        """Take all steps. Raises KafkaError."""
        self.subscription.take(decision)
        self.target.take(decision)
        self.reconciliation.take(decision)

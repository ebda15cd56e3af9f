"""The third step of a decision: a member on its way to its target (Kafka: `CurrentAssignmentBuilder`).

First it gives up, then it gets: nobody is given a partition that another member still holds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import NamedTuple

from coordinator.group.consumer.decision import Decision
from coordinator.group.consumer.member import Assigned, ConsumerMember, Owned
from coordinator.group.consumer.records import assignment_record
from coordinator.group.consumer.sessions import ConsumerSessions
from coordinator.group.consumer.states import RECONCILE, MemberState, Step
from coordinator.group.consumer.target import subscribed_names
from coordinator.group.modern.targets import Target
from coordinator.group.parts import ShardParts
from coordinator.java.maps import JavaMap, JavaSet
from protocol.errors import Error, KafkaError

NOBODY = -1

PartitionEpochs = Mapping[bytes, Mapping[int, int]]
"""The member epoch of who holds a partition, by topic id; without those that nobody holds."""


_NO_EPOCHS: Mapping[int, int] = {}


class ReconciliationStep:
    """Brings the member a step nearer to its target."""

    def __init__(self, parts: ShardParts, sessions: ConsumerSessions) -> None:
        self._topics = parts.topics
        self._sessions = sessions

    def take(self, decision: Decision) -> None:
        """Raises KafkaError (FENCED_MEMBER_EPOCH), see `reconcile`."""
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
    """What a member's next step depends on, besides itself."""

    target_epoch: int
    target: Target
    subscribed: Collection[bytes]
    """The ids of the topics that it subscribes to."""
    subscription_changed: bool
    owned: Owned
    partition_epochs: PartitionEpochs


def reconcile(member: ConsumerMember, situation: Situation) -> ConsumerMember:
    """The member after the next step.

    Raises KafkaError (FENCED_MEMBER_EPOCH) where it is in a state that isn't known and still owns something.
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
    """Whether the member still owns one of them; it does for all we know where it doesn't say."""
    if owned is None:
        return True
    for topic_id, partitions in owned:
        known = assigned.get(topic_id)
        if known is not None and any(partition in known for partition in partitions):
            return True
    return False


def _trim(member: ConsumerMember, subscribed: Collection[bytes], owned: Owned) -> ConsumerMember:
    """Topics that aren't subscribed to any more go at once, not only with the next target (KAFKA-19431)."""
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
            # What it is just giving up itself is free for it (KAFKA-19449).
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

"""ConsumerGroupHeartbeat: members join, stay alive, get partitions and give them up (KIP-848).

    admission → subscription → target → reconciliation → records → answer

A steady heartbeat goes from admission straight to the answer (`has_settled`).

Each step decides by the group's current state. The records of one heartbeat are written together and then
applied. If there is much to decide, everything but the writing is done beside the loop: see `shard_parts.py`.
Source: `GroupMetadataManager.consumerGroupHeartbeat`, in its order.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from coordinator.group.classic.group import ClassicGroup
from coordinator.group.consumer.decision import (
    ConsumerSessions,
    Decision,
    Entry,
    check_room,
    known_or_new,
    take_instance,
)
from coordinator.group.consumer.group import Assigned, ConsumerGroup, ConsumerMember, Owned
from coordinator.group.consumer.migration import Leaving, Migration
from coordinator.group.consumer.states import (
    ACCEPTED,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    MemberEpochRelation,
)
from coordinator.group.consumer.steps import HeartbeatSteps
from coordinator.group.member_memory import brought_by_heartbeat
from coordinator.group.ports import Client, Deferred, KnownTopics, partitions_of
from coordinator.group.shard_parts import DeferredHeartbeat, ShardParts
from coordinator.java.maps import JavaSet
from protocol.errors import Error, KafkaError
from protocol.messages.groups_consumer import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from protocol.wire.primitives import uuid_to_text

log = logging.getLogger("barnabas.groups")


class Heartbeats:
    """Handles the heartbeats of consumer groups' members."""

    def __init__(
        self,
        parts: ShardParts,
        *,
        migration: Migration,
        leaving: Leaving,
        steps: HeartbeatSteps,
        sessions: ConsumerSessions,
    ) -> None:
        self._parts = parts
        self._groups = parts.store.consumer
        self._runtime = parts.runtime
        self._journal = parts.journal
        self._max_size = parts.settings.consumer_max_size
        self._timeouts_of = parts.timeouts_of
        self._migration = migration
        self._leaving = leaving
        self._steps = steps
        self._sessions = sessions

    def heartbeat(
        self, client: Client, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse | Deferred[ConsumerGroupHeartbeatResponse]:
        """Return the answer, or a deferred heartbeat if there is much to decide.

        Raises KafkaError. Then the group hasn't changed.
        """
        # 1. Members leave by a special epoch.
        if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return self._leaving.leave(request)

        # 2. Get the group, or a new one. A classic group may have to be converted to this protocol.
        group = self._groups.get(request.group_id) or ConsumerGroup(request.group_id)
        owned: Owned = None
        if request.topic_partitions is not None:
            owned = [(topic.topic_id, topic.partitions) for topic in request.topic_partitions]
        member_id = request.member_id or uuid_to_text(self._runtime.new_uuid())
        member = group.members.get(member_id) or ConsumerMember(member_id)
        decision = Decision(group, [], member, member, owned, client.may_describe)
        classic = None
        if request.group_id not in self._groups:
            joins = request.member_epoch == JOIN_EPOCH
            classic = self._migration.classic_for_heartbeat(decision, joins=joins)

        # 3. Admission: get the member, a new one, or one that takes over a place. Also find out whether there is little
        # to decide.
        if classic is None:
            self._admit(decision, request)
            says_nothing = request.subscribed_topic_names is None and request.subscribed_topic_regex is None
            if not (says_nothing and _says_no_more(request, client, decision.old)):
                self._check_memory(decision, client, request)
            settled = says_nothing and group.has_settled(decision.old, self._runtime.now_ms())
            in_passing = settled or is_little(decision, *_subscription(request), self._parts.topics)
            decide = partial(self._decide, decision, client, request, settled=settled)
        else:
            self._check_memory(decision, client, request)
            in_passing = is_little_to_take_over(classic, *_subscription(request), self._parts.topics)
            decide = partial(self._go_up_and_decide, classic, decision, client, request)
        if not in_passing:
            return LongHeartbeat(self._parts, self._sessions, decision, decide)

        # 4. Take the steps of the decision, and make the answer. Effects of a step count even if a later step refuses.
        try:
            answer = decide()
        finally:
            decision.take_effect()

        # 5. Restart the member's session. Write and apply the records as one batch.
        self._sessions.restart(decision.group.group_id, decision.old.member_id)
        self._journal.write(decision.records)
        decision.was_written()
        return answer

    def _go_up_and_decide(
        self,
        classic: ClassicGroup,
        decision: Decision,
        client: Client,
        request: ConsumerGroupHeartbeatRequest,
    ) -> ConsumerGroupHeartbeatResponse:
        """Decide as `_decide` does, after making the group from a classic one."""
        self._migration.go_up(classic, decision)
        self._admit(decision, request)
        answer = self._decide(decision, client, request, settled=False)
        told = partial(log.info, "group %s is converted to the consumer protocol", request.group_id)
        decision.effects.append(told)
        return answer

    def _decide(
        self, decision: Decision, client: Client, request: ConsumerGroupHeartbeatRequest, *, settled: bool
    ) -> ConsumerGroupHeartbeatResponse:
        """Decide, and return the answer. It is valid once the decision is taken. Raises KafkaError.

        `settled`: the group and the member have just been found settled. Only changes the decision.
        """
        old, group = decision.old, decision.group
        decision.new = new = _as_requested(old, client, request)
        if new is not old or not (settled or group.has_settled(old, self._runtime.now_ms())):
            self._steps.take(decision)
        now, was = decision.new.assigned, old.assigned
        shows = (now is not was and now != was) or _wants_assignment(request)
        return ConsumerGroupHeartbeatResponse(
            member_id=old.member_id,
            member_epoch=decision.new.epoch,
            heartbeat_interval_ms=self._timeouts_of(group.group_id).heartbeat_interval_ms,
            assignment=_shown(decision.new.assigned) if shows else None,
        )

    def _admit(self, decision: Decision, request: ConsumerGroupHeartbeatRequest) -> None:
        """Get the member, a new one, or one that takes over a place. Raises KafkaError."""
        group, member_id, instance_id = decision.group, decision.old.member_id, request.instance_id
        if len(group.members) >= self._max_size:
            check_room(group, request.member_id, instance_id, self._max_size)
        if request.member_epoch != JOIN_EPOCH:
            member = group.member_as(member_id, instance_id)
            _check_epoch(member, request.member_epoch, decision.owned)
        elif instance_id is None:
            member = known_or_new(group, member_id)
        else:
            joining = ConsumerMember(member_id, instance_id=instance_id)
            entry = Entry(decision.records, decision.effects)
            member = take_instance(group, joining, entry, uses_classic=False)
        decision.old = decision.new = member

    def _check_memory(
        self, decision: Decision, client: Client, request: ConsumerGroupHeartbeatRequest
    ) -> None:
        """Raises KafkaError (GROUP_MAX_SIZE_REACHED) if members hold too much memory already."""
        brought_bytes = brought_by_heartbeat(
            request, client, decision.group, decision.old, self._parts.topics
        )
        if brought_bytes > 0:
            self._parts.member_memory.check(brought_bytes, self._runtime.now_ms())


def _subscription(request: ConsumerGroupHeartbeatRequest) -> tuple[Sequence[str], str]:
    return request.subscribed_topic_names or (), request.subscribed_topic_regex or ""


def _check_epoch(member: ConsumerMember, epoch: int, owned: Owned) -> None:
    relation = member.relation_of(epoch, owned)
    if not ACCEPTED[relation]:
        kind = "greater" if relation is MemberEpochRelation.NEWER else "smaller"
        raise KafkaError(
            Error.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {kind} member epoch ({epoch}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        )


def _as_requested(
    member: ConsumerMember, client: Client, request: ConsumerGroupHeartbeatRequest
) -> ConsumerMember:
    """The member with the request's changes, or the same object if there are none. Null leaves a part as it was.

    It uses the consumer protocol from now on.
    """
    instance_id, rack_id = request.instance_id, request.rack_id
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    assignor, timeout_ms = request.server_assignor, request.rebalance_timeout_ms
    if (
        names is None
        and regex is None
        and instance_id in (None, member.instance_id)
        and rack_id in (None, member.rack_id)
        and assignor in (None, member.assignor)
        and timeout_ms in (-1, member.rebalance_timeout_ms)
        and member.classic is None
        and client.client_id == member.client_id
        and client.host == member.client_host
    ):
        return member
    return replace(
        member,
        instance_id=member.instance_id if instance_id is None else instance_id,
        rack_id=member.rack_id if rack_id is None else rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=member.assignor if assignor is None else assignor,
        names=member.names if names is None else JavaSet.of(names),
        regex=member.regex if regex is None else regex,
        client_id=client.client_id,
        client_host=client.host,
        classic=None,
    )


def _says_no_more(request: ConsumerGroupHeartbeatRequest, client: Client, member: ConsumerMember) -> bool:
    """True if nothing else of the request has to be remembered, for a member with the same subscription."""
    return (
        request.member_epoch != JOIN_EPOCH
        and request.rack_id is None
        and request.server_assignor is None
        and client.client_id == member.client_id
    )


def _wants_assignment(request: ConsumerGroupHeartbeatRequest) -> bool:
    """True if the answer includes the assignment even if it hasn't changed: to a join, and to a full request."""
    return request.member_epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


def _shown(assigned: Assigned) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=partitions.keys())
            for topic_id, partitions in assigned.items()
        ]
    )


# --- long decisions: a member with thousands of topics or partitions, or a large group ------------------------

MOST_IN_PASSING = 10_000
"""The most work to decide at once: some 10 ms, in units of about a microsecond."""

_PER_TOPIC, _PER_PARTITION, _PER_MEMBER, _PER_SUBSCRIPTION = 80, 8, 40, 1
_PER_CHARACTER = 10
"""Per character of a regular expression that nobody subscribes to yet: it is compiled, to check it."""
_PER_TAKEN_OVER, _PER_BYTE = 150, 2
"""Per member of a classic group, and per byte of its subscription and assignment. A partition is 4 bytes."""


def is_little(decision: Decision, names: Sequence[str], regex: str, topics: KnownTopics) -> bool:
    """True if the decision can be made at once. Estimating that costs far less than deciding."""
    group = decision.group
    work = len(regex) * _PER_CHARACTER if regex and not group.regexes[regex] else 0
    return _is_little(work, len(group.members) + 1, group.topics, names, topics)


def is_little_to_take_over(
    classic: ClassicGroup, names: Sequence[str], regex: str, topics: KnownTopics
) -> bool:
    """The same for a heartbeat that converts a classic group to the consumer protocol."""
    work = len(regex) * _PER_CHARACTER + len(classic.members) * _PER_TAKEN_OVER
    if work > MOST_IN_PASSING:
        return False
    for member in classic.members.values():
        work += len(member.assignment) * _PER_BYTE
        work += sum(len(metadata) for _, metadata in member.protocols) * _PER_BYTE
    return _is_little(work, len(classic.members) + 1, classic.subscribed_topics or (), names, topics)


def _is_little(
    work: int, members: int, subscribed: Collection[str], names: Sequence[str], topics: KnownTopics
) -> bool:
    count = len(subscribed) + len(names)
    work += count * (_PER_TOPIC + members * _PER_SUBSCRIPTION) + members * _PER_MEMBER
    if work > MOST_IN_PASSING:
        return False
    work += partitions_of(chain(subscribed, names), topics) * _PER_PARTITION
    return work <= MOST_IN_PASSING


class LongHeartbeat(DeferredHeartbeat[ConsumerGroupHeartbeatResponse]):
    """A deferred heartbeat."""

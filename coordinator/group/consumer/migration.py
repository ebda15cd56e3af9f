"""Members that leave a consumer group, and groups with members that change between the protocols (KIP-848).

`group.consumer.migration.policy` says which conversions are allowed. Empty groups are always converted. When
the last member of the new protocol leaves, the group may become a classic one again.

For members of the classic protocol, the coordinator reads their subscriptions and writes their assignments.
Both begin with a version. One that is newer than the versions known here is read as the newest known.

Source: `GroupMetadataManager` (convertToConsumerGroup, convertToClassicGroup, consumerGroupLeave,
FenceMembers), `ConsumerGroup.fromClassicGroup`, `ClassicGroup.fromConsumerGroup`, `ConsumerProtocol`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from struct import Struct
from typing import NamedTuple

from coordinator.group.classic.group import (
    ClassicGroup,
    ClassicMember,
    Identity,
    MemberTimeouts,
    group_record,
)
from coordinator.group.classic.rebalancing import Rebalancing
from coordinator.group.classic.states import STABLE
from coordinator.group.consumer.decision import ConsumerSessions, Decision
from coordinator.group.consumer.group import (
    CONSUMER_PROTOCOL_TYPE,
    Assigned,
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
    Owned,
    assignment_record,
    epoch_record,
    group_tombstones,
    member_record,
    member_tombstones,
    regex_record,
    target_epoch_record,
    target_record,
)
from coordinator.group.consumer.states import LEAVE_STATIC_EPOCH
from coordinator.group.modern.group import Target
from coordinator.group.ports import KnownTopics
from coordinator.group.records import AnyRecord
from coordinator.group.shard_parts import ShardParts
from coordinator.java.maps import JavaMap, JavaSet
from protocol.errors import CodecError, Error, KafkaError
from protocol.messages.groups import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    JoinGroupResponse,
    TopicPartition,
)
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from protocol.wire.codec import decode, encode

log = logging.getLogger("barnabas.groups")


# --- subscriptions and assignments of the classic protocol ----------------------------------------------------

NEWEST_VERSION = 3
_INT16 = Struct(">h")


def version_of(data: bytes) -> int:
    """Raises CodecError."""
    if len(data) < _INT16.size:
        raise CodecError("no version")
    version: int = _INT16.unpack_from(data)[0]
    if version < 0:
        raise CodecError(f"version {version}")
    return min(version, NEWEST_VERSION)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Raises CodecError."""
    return decode(ConsumerProtocolSubscription, version_of(data), data, _INT16.size)


def read_assignment(data: bytes, topics: KnownTopics) -> tuple[Target, bytes]:
    """Return the partitions of known topics, by topic id, and the user data. Raises CodecError."""
    target: Target = JavaMap()
    if not data:
        return target, b""
    found = decode(ConsumerProtocolAssignment, version_of(data), data, _INT16.size)
    for assigned in found.assigned_partitions:
        topic = topics.by_name(assigned.topic)
        if topic is not None:
            target[topic.topic_id] = JavaSet.of(assigned.partitions)
    return target, bytes(found.user_data or b"")


def write_assignment(target: Target, topics: KnownTopics, version: int) -> bytes:
    """Encode an assignment in the version of the member's own subscription."""
    assigned = [
        TopicPartition(topic=topic.name, partitions=[*partitions])
        for topic_id, partitions in target.items()
        if (topic := topics.by_id(topic_id)) is not None
    ]
    return _INT16.pack(version) + encode(ConsumerProtocolAssignment(assigned_partitions=assigned), version)


def owned_of(subscription: ConsumerProtocolSubscription, topics: KnownTopics) -> Owned:
    return [
        (topic.topic_id, owned.partitions)
        for owned in subscription.owned_partitions
        if (topic := topics.by_name(owned.topic)) is not None
    ]


def without_epochs(assigned: Assigned) -> Target:
    target: Target = JavaMap()
    for topic_id, partitions in assigned.items():
        target[topic_id] = JavaSet.of(partitions)
    return target


# --- conversion between the protocols -------------------------------------------------------------------------


class Ways(NamedTuple):
    """The conversions allowed for groups with members: to the consumer protocol, and back."""

    up: bool
    down: bool


POLICIES: dict[str, Ways] = {
    "bidirectional": Ways(up=True, down=True),
    "upgrade": Ways(up=True, down=False),
    "downgrade": Ways(up=False, down=True),
    "disabled": Ways(up=False, down=False),
}

_DOWNGRADED = "it was a consumer group before"


class Migration:
    """Converts groups from one protocol to the other."""

    def __init__(self, parts: ShardParts, rebalancing: Rebalancing, sessions: ConsumerSessions) -> None:
        self._store = parts.store
        self._journal = parts.journal
        self._runtime = parts.runtime
        self._settings = parts.settings
        self._topics = parts.topics
        self._hashes = parts.hashes
        self._rebalancing = rebalancing
        self._sessions = sessions

    # --- up -------------------------------------------------------------------------------------------------

    def classic_for_heartbeat(self, decision: Decision, *, joins: bool) -> ClassicGroup | None:
        """For a heartbeat to a group that isn't a consumer group, return the classic group to convert with `go_up`.

        Returns None if there is none, or an empty one, which the decision's group replaces.

        Raises KafkaError (GROUP_ID_NOT_FOUND) if the group doesn't exist, or can't become a consumer group.
        """
        group_id = decision.group.group_id
        classic = self._store.classic.get(group_id)
        if self._store.is_of_another_protocol(group_id) or (classic is not None and not joins):
            raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        if classic is None:
            if not joins:
                raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
            return None
        if classic.is_empty and not len(classic.members):
            decision.records += classic.tombstones()
            decision.effects += [
                partial(log.info, "group %s is empty and becomes a consumer group", group_id),
                partial(self._rebalancing.forget, group_id),
            ]
            return None
        self._check_upgrade(classic)
        return classic

    def _check_upgrade(self, classic: ClassicGroup) -> None:
        reason = ""
        if not POLICIES[self._settings.migration_policy].up:
            reason = "online upgrade is disabled"
        elif not classic.uses_consumer_protocol:
            reason = "the group does not use the consumer embedded protocol"
        elif len(classic.members) > self._settings.consumer_max_size:
            reason = "the group size exceeds the consumer group maximum size"
        if reason:
            raise _no_upgrade(classic, reason)

    def go_up(self, classic: ClassicGroup, decision: Decision) -> None:
        """Fill the decision's group, empty before, with the members of the classic one.

        They keep their assignments, and are stable at the generation. Those that wait for an answer join again.

        Only changes the decision and its group. Raises KafkaError (GROUP_ID_NOT_FOUND). Those that wait are
        answered even then, as in Kafka.
        """
        group, records, effects = decision.group, decision.records, decision.effects
        group_id = group.group_id
        effects.append(partial(self._have_all_join_again, classic))
        group.epoch = group.assignment_epoch = classic.generation
        try:
            for member in classic.members.values():
                self._take_over(classic, member, group)
        except CodecError as error:
            effects.append(partial(log.warning, "group %s can't be upgraded: %s", group_id, error))
            raise _no_upgrade(classic, "the embedded consumer protocol is malformed") from None
        except StopIteration:
            # A group in its first rebalance has no protocol, or a member in a later one doesn't support the
            # group's protocol.
            # Kafka: a NoSuchElementException, an IllegalArgumentException.
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR) from None
        group.metadata_hash = self._hashes.look(group.topics).value
        records += classic.tombstones()
        members = group.members.values()
        records += [member_record(group_id, member) for member in members]
        records.append(epoch_record(group_id, group.epoch, group.metadata_hash))
        records += [
            target_record(group_id, member.member_id, group.target_of(member.member_id)) for member in members
        ]
        records.append(target_epoch_record(group_id, group.assignment_epoch, 0))
        records += [assignment_record(group_id, member) for member in members]
        timeouts_ms = {member.member_id: member.session_timeout_ms for member in classic.members.values()}
        effects.append(partial(self._restart_sessions, group_id, timeouts_ms))

    def _have_all_join_again(self, classic: ClassicGroup) -> None:
        for waiting in classic.members.values():
            classic.answer_join(
                waiting,
                JoinGroupResponse(
                    member_id=waiting.member_id, protocol_name=None, error_code=Error.REBALANCE_IN_PROGRESS
                ),
            )
        self._rebalancing.answer_syncs(classic, Error.REBALANCE_IN_PROGRESS)

    def _restart_sessions(self, group_id: str, timeouts_ms: Mapping[str, int]) -> None:
        for member_id, timeout_ms in timeouts_ms.items():
            self._sessions.restart(group_id, member_id, timeout_ms)

    def _take_over(self, classic: ClassicGroup, member: ClassicMember, group: ConsumerGroup) -> None:
        target, user_data = read_assignment(member.assignment, self._topics)
        if user_data:
            raise KafkaError(
                Error.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade classic group {classic.group_id} to consumer group because an unsupported custom "
                "assignor is in use. Please refer to the documentation or switch to a default assignor before "
                "re-attempting the upgrade.",
            )
        subscription = read_subscription(member.metadata(classic.protocol or ""))
        assigned: JavaMap[bytes, JavaMap[int, int]] = JavaMap()
        for topic_id, partitions in target.items():
            assigned[topic_id] = JavaMap()
            for partition in partitions:
                assigned[topic_id][partition] = classic.generation
        group.set_target(member.member_id, target)
        group.put(
            ConsumerMember(
                member.member_id,
                epoch=classic.generation,
                previous_epoch=classic.generation,
                instance_id=member.instance_id,
                rack_id=subscription.rack_id or None,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                client_id=member.client_id,
                client_host=member.client_host,
                names=JavaSet.of(subscription.topics),
                assigned=assigned,
                classic=ClassicMetadata(member.session_timeout_ms, tuple(member.protocols)),
            )
        )

    # --- down -----------------------------------------------------------------------------------------------

    def may_downgrade(self, group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> bool:
        """True if only members of the classic protocol remain without `leaving`, and the group may be converted."""
        left = len(group.members) - len(leaving)
        return (
            group.all_classic_without(*leaving)
            and left > 0
            and POLICIES[self._settings.migration_policy].down
            and left <= self._settings.max_size
        )

    def may_downgrade_by(self, group: ConsumerGroup, replaced: ConsumerMember) -> bool:
        """The same, for a static member of the classic protocol that replaces the last member of the consumer
        protocol."""
        return (
            not replaced.is_classic
            and group.all_classic_without(replaced)
            and POLICIES[self._settings.migration_policy].down
            and len(group.members) <= self._settings.max_size
        )

    def downgrade(self, group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> None:
        """Convert the group to a classic one with the remaining members and their targets. It rebalances.

        Raises KafkaError if that can't be recorded, or if a member's subscription can't be read.
        """
        gone = {member.member_id for member in leaving}
        left = [member for member in group.members.values() if member.member_id not in gone]
        classic = self._as_classic(group, left, {})
        self._go_down(group, classic, group.tombstones())
        self._rebalancing.prepare_rebalance(classic, _DOWNGRADED)

    def downgrade_by(self, decision: Decision, replaced: ConsumerMember, *, rebalances: bool) -> None:
        """The same for a join that replaces the member `replaced`, with the decision's records. Raises as
        `downgrade` does."""
        group, joining = decision.group, decision.new
        ids = [joining.member_id if each == replaced.member_id else each for each in group.members]
        left = [member for member in group.members.values() if member.member_id != replaced.member_id]
        classic = self._as_classic(group, [*left, joining], {joining.member_id: replaced.member_id})
        self._go_down(
            group, classic, [*decision.records, *group_tombstones(group.group_id, ids, group.resolved)]
        )
        self._sessions.cancel_all(group.group_id, joining.member_id)
        if rebalances:
            self._rebalancing.prepare_rebalance(classic, _DOWNGRADED)

    def _go_down(self, group: ConsumerGroup, classic: ClassicGroup, records: list[AnyRecord]) -> None:
        assignments = {member.member_id: member.assignment for member in classic.members.values()}
        self._journal.write_replacement(classic, [*records, group_record(classic, assignments)])
        for member_id in group.members:
            self._sessions.cancel_all(group.group_id, member_id)
        self._rebalancing.forget(group.group_id)  # of the time before it was a consumer group
        for member in classic.members.values():
            self._rebalancing.sessions.restart(classic.group_id, member)
        log.info("group %s is converted to the classic protocol", group.group_id)

    def _as_classic(
        self, group: ConsumerGroup, members: Sequence[ConsumerMember], places: Mapping[str, str]
    ) -> ClassicGroup:
        """`places`: the member whose target a member gets, if it isn't its own."""
        classic = ClassicGroup(group.group_id, self._runtime.now_ms())
        classic.state = STABLE
        classic.protocol_type = CONSUMER_PROTOCOL_TYPE
        classic.generation = group.epoch
        for member in members:
            assert member.classic is not None
            classic.add(
                ClassicMember(
                    Identity(member.member_id, member.instance_id, member.client_id, member.client_host),
                    MemberTimeouts(member.classic.session_timeout_ms, member.rebalance_timeout_ms),
                    CONSUMER_PROTOCOL_TYPE,
                    [*member.classic.protocols],
                )
            )
        protocol = classic.protocol = classic.vote()
        classic.compute_subscribed_topics()
        try:
            for made in classic.members.values():
                target = group.target_of(places.get(made.member_id, made.member_id))
                version = version_of(made.metadata(protocol))
                made.assignment = write_assignment(target, self._topics, version)
        except CodecError as error:
            raise KafkaError(
                Error.GROUP_ID_NOT_FOUND, f"Cannot downgrade the classic group {group.group_id}: {error}."
            ) from None
        return classic


def _no_upgrade(classic: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        Error.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}.",
    )


# --- members that leave for good or for a while, or are fenced ------------------------------------------------


MOST_LEAVING_WORK = 10_000
"""Some 10 ms, in units of about a microsecond. Each leaving member costs a walk over the group's topics."""

_PER_MEMBER, _PER_TOPIC = 50, 5


def most_leaving(group: ConsumerGroup) -> int:
    """The number of members that may leave in one turn."""
    return max(1, MOST_LEAVING_WORK // (_PER_MEMBER + _PER_TOPIC * len(group.topics)))


class Leaving:
    """Removes members from consumer groups."""

    def __init__(self, parts: ShardParts, migration: Migration, sessions: ConsumerSessions) -> None:
        self._store = parts.store
        self._journal = parts.journal
        self._hashes = parts.hashes
        self._migration = migration
        self._sessions = sessions

    def leave(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        """Handle a heartbeat of epoch −1 or −2.

        Raises KafkaError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        group = self._store.consumer_group(request.group_id)
        member = group.member_as(request.member_id, request.instance_id)
        answer = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch, assignment=None
        )
        if request.instance_id is not None and request.member_epoch == LEAVE_STATIC_EPOCH:
            log.info("group %s: %s leaves for a while", group.group_id, member.member_id)
            self._journal.write([assignment_record(group.group_id, _away(member))])
        else:
            log.info("group %s: %s leaves", group.group_id, member.member_id)
            self.fence(group, [member])
        return answer

    def fence_late(self, group_id: str, member_id: str, reason: str) -> None:
        """Fence a member whose time is over. Raises KafkaError if that can't be recorded."""
        group = self._store.consumer.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return
        log.info("group %s: %s is fenced: %s", group_id, member_id, reason)
        self.fence(group, [member])

    def fence(self, group: ConsumerGroup, members: Sequence[ConsumerMember]) -> None:
        """Remove members. The next heartbeat of any member computes a new assignment.

        If only members of the classic protocol remain, the group becomes a classic one. Raises KafkaError if
        that can't be recorded.
        """
        if not members:
            return
        if self._migration.may_downgrade(group, members):
            self._migration.downgrade(group, leaving=members)
            return
        group_id = group.group_id
        records: list[AnyRecord] = []
        for member in members:
            records += member_tombstones(group_id, member.member_id)
        counts = Counter(member.regex for member in members if member.regex)
        unused = [regex for regex, count in counts.items() if group.regexes[regex] == count]
        records += [regex_record(group_id, regex, None) for regex in unused]
        metadata_hash = self._hashes.of(group.topics_without(members, unused))
        records.append(epoch_record(group_id, group.epoch + 1, metadata_hash))
        if len(members) == len(group.members):  # no member is left to assign anything to (KAFKA-20442)
            records.append(target_epoch_record(group_id, group.epoch + 1, 0))
        self._journal.write(records)
        for member in members:  # if a member couldn't be removed, its session goes on
            self._sessions.cancel_all(group_id, member.member_id)


def _away(member: ConsumerMember) -> ConsumerMember:
    """A static member that will come back. It keeps its partitions, and its next owner may commit for them."""
    assigned: JavaMap[bytes, JavaMap[int, int]] = JavaMap()
    for topic_id, partitions in member.assigned.items():
        epochs: JavaMap[int, int] = JavaMap()
        for partition in partitions:
            epochs[partition] = 0
        assigned[topic_id] = epochs
    return replace(member, epoch=LEAVE_STATIC_EPOCH, assigned=assigned, pending=JavaMap())

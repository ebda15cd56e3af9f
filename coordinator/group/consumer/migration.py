"""Groups that go over from one protocol to the other while their members are in them (KIP-848).

`group.consumer.migration.policy` says which ways are open; empty groups go over whatever it says.
Source: `GroupMetadataManager` (convertToConsumerGroup, convertToClassicGroup), `ConsumerGroup.fromClassicGroup`,
`ClassicGroup.fromConsumerGroup`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from coordinator.group.classic import rebalance
from coordinator.group.classic.group import ClassicGroup
from coordinator.group.classic.member import ClassicMember
from coordinator.group.classic.states import STABLE
from coordinator.group.consumer import embedded, timers
from coordinator.group.consumer.group import CONSUMER_PROTOCOL_TYPE, ConsumerGroup
from coordinator.group.consumer.member import ClassicMetadata, ConsumerMember
from coordinator.group.consumer.metadata_hash import group_hash
from coordinator.group.consumer.records import (
    assignment_record,
    epoch_record,
    group_tombstones,
    member_record,
    target_epoch_record,
    target_record,
)
from coordinator.group.records import AnyRecord, GroupRecord
from coordinator.java.maps import JavaMap, JavaSet
from protocol.errors import CodecError, Error, KafkaError
from protocol.messages.groups_classic import JoinGroupResponse

if TYPE_CHECKING:
    from coordinator.group.shard import GroupShard

log = logging.getLogger("barnabas.groups")

POLICIES: dict[str, tuple[bool, bool]] = {
    # up, down
    "bidirectional": (True, True),
    "upgrade": (True, False),
    "downgrade": (False, True),
    "disabled": (False, False),
}


# --- up -----------------------------------------------------------------------------------------------------


def group_for_heartbeat(
    shard: GroupShard, group_id: str, records: list[AnyRecord], *, joins: bool
) -> ConsumerGroup:
    """The group that a heartbeat is for; one that is only about to be made is in nobody's hands yet.

    Raises KafkaError (GROUP_ID_NOT_FOUND) where there is none, or one that can't become one.
    """
    group = shard.consumer_groups.get(group_id)
    if group is not None:
        return group
    classic = shard.groups.get(group_id)
    if group_id in shard.other_groups or (classic is not None and not joins):
        raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    if classic is None:
        if not joins:
            raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        return ConsumerGroup(group_id)
    if not len(classic.members) and classic.state.value == "Empty":
        log.info("group %s, empty, is a consumer group from here on", group_id)
        records.append(GroupRecord(group_id, None))
        for key in (rebalance.join_key(group_id), rebalance.sync_key(group_id)):
            shard.runtime.cancel(key)
        return ConsumerGroup(group_id)
    _check_upgrade(shard, classic)
    return _upgrade(shard, classic, records)


def _check_upgrade(shard: GroupShard, classic: ClassicGroup) -> None:
    reason = ""
    if not POLICIES[shard.settings.migration_policy][0]:
        reason = "online upgrade is disabled"
    elif not classic.uses_consumer_protocol:
        reason = "the group does not use the consumer embedded protocol"
    elif len(classic.members) > shard.settings.consumer_max_size:
        reason = "the group size exceeds the consumer group maximum size"
    if reason:
        raise _no_upgrade(classic, reason)


def _no_upgrade(classic: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        Error.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}.",
    )


def _upgrade(shard: GroupShard, classic: ClassicGroup, records: list[AnyRecord]) -> ConsumerGroup:
    """Everybody keeps what it has, and is stable at the generation. Who waits for an answer joins again."""
    for waiting in classic.members.values():
        classic.answer_join(
            waiting,
            JoinGroupResponse(
                member_id=waiting.member_id, protocol_name=None, error_code=Error.REBALANCE_IN_PROGRESS
            ),
        )
    rebalance.answer_syncs(shard, classic, Error.REBALANCE_IN_PROGRESS)
    group_id = classic.group_id
    group = ConsumerGroup(group_id)
    group.epoch = group.assignment_epoch = classic.generation
    try:
        for member in classic.members.values():
            _take_over(shard, classic, member, group)
    except CodecError as error:
        log.warning("group %s can't be upgraded: %s", group_id, error)
        raise _no_upgrade(classic, "the embedded consumer protocol is malformed") from None
    group.metadata_hash = group_hash(group.topics, shard.topics, shard.topic_hashes)
    records.append(GroupRecord(group_id, None))
    members = group.members.values()
    records += [member_record(group_id, member) for member in members]
    records.append(epoch_record(group_id, group.epoch, group.metadata_hash))
    records += [
        target_record(group_id, member.member_id, group.target_of(member.member_id)) for member in members
    ]
    records.append(target_epoch_record(group_id, group.assignment_epoch, 0))
    records += [assignment_record(group_id, member) for member in members]
    for taken in members:
        assert taken.classic is not None
        timers.restart_session(shard, group_id, taken.member_id, taken.classic.session_timeout_ms)
    log.info("group %s goes over to the consumer protocol", group_id)
    return group


def _take_over(shard: GroupShard, classic: ClassicGroup, member: ClassicMember, group: ConsumerGroup) -> None:
    target, user_data = embedded.read_assignment(member.assignment, shard.topics)
    if user_data:
        raise KafkaError(
            Error.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {classic.group_id} to consumer group because an unsupported custom "
            "assignor is in use. Please refer to the documentation or switch to a default assignor before "
            "re-attempting the upgrade.",
        )
    subscription = embedded.read_subscription(member.metadata(classic.protocol or ""))
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


# --- down ---------------------------------------------------------------------------------------------------


def may_downgrade(shard: GroupShard, group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> bool:
    """Whether nobody but members of the classic protocol is left once these have gone, and they may go over."""
    left = len(group.members) - len(leaving)
    return (
        group.all_classic_without(*leaving)
        and left > 0
        and POLICIES[shard.settings.migration_policy][1]
        and left <= shard.settings.max_size
    )


def may_downgrade_by(shard: GroupShard, group: ConsumerGroup, replaced: ConsumerMember) -> bool:
    """The same, where a static member of the classic protocol takes the place of the last one of the other."""
    return (
        not replaced.is_classic
        and group.all_classic_without(replaced)
        and POLICIES[shard.settings.migration_policy][1]
        and len(group.members) <= shard.settings.max_size
    )


def downgrade(
    shard: GroupShard,
    group: ConsumerGroup,
    *,
    leaving: Sequence[ConsumerMember] = (),
    joining: ConsumerMember | None = None,
    records: list[AnyRecord] | None = None,
    rebalances: bool = True,
) -> ClassicGroup:
    """Make it a classic group of its members' targets, after `records`; `joining` has replaced its predecessor there.

    Raises KafkaError where that can't be recorded, or a member's subscription can't be read.
    """
    records = [] if records is None else records
    replaced = None if joining is None else group.static_member(joining.instance_id)
    ids = [
        joining.member_id
        if joining is not None and replaced is not None and each == replaced.member_id
        else each
        for each in group.members
    ]
    records += group_tombstones(group, ids)
    gone = {member.member_id for member in leaving}
    if replaced is not None:
        gone.add(replaced.member_id)
    try:
        classic = _as_classic(shard, group, gone, joining, replaced)
    except CodecError as error:
        raise KafkaError(
            Error.GROUP_ID_NOT_FOUND, f"Cannot downgrade the classic group {group.group_id}: {error}."
        ) from None
    records.append(
        GroupRecord(
            group.group_id,
            classic.to_record({each.member_id: each.assignment for each in classic.members.values()}),
        )
    )
    shard.commit(records)
    # The record holds only the chosen protocol of each member; they are known here with all that they support.
    shard.groups[group.group_id] = classic
    for member_id in (*group.members, *ids):
        timers.cancel_all(shard, group.group_id, member_id)
    for key in (rebalance.join_key(group.group_id), rebalance.sync_key(group.group_id)):
        shard.runtime.cancel(key)  # of the time before it was a consumer group
    for member in classic.members.values():
        rebalance.restart_session(shard, classic, member)
    log.info("group %s goes over to the classic protocol", group.group_id)
    if rebalances:
        rebalance.prepare_rebalance(shard, classic, "it was a consumer group before")
    return classic


def _as_classic(
    shard: GroupShard,
    group: ConsumerGroup,
    gone: set[str],
    joining: ConsumerMember | None,
    replaced: ConsumerMember | None,
) -> ClassicGroup:
    classic = ClassicGroup(group.group_id, shard.runtime.now_ms())
    classic.state = STABLE
    classic.protocol_type = CONSUMER_PROTOCOL_TYPE
    classic.generation = group.epoch
    left = [member for member in group.members.values() if member.member_id not in gone]
    for member in [*left, joining] if joining is not None else left:
        assert member.classic is not None
        classic.add(
            ClassicMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                CONSUMER_PROTOCOL_TYPE,
                [*member.classic.protocols],
            )
        )
    protocol = classic.protocol = classic.vote()
    classic.compute_subscribed_topics()
    for made in classic.members.values():
        owner = made.member_id
        if joining is not None and replaced is not None and owner == joining.member_id:
            owner = replaced.member_id
        version = embedded.version_of(made.metadata(protocol))
        made.assignment = embedded.write_assignment(group.target_of(owner), shard.topics, version)
    return classic

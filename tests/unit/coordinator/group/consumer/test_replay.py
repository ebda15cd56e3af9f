"""Records of consumer groups in a log: complete logs, and what compaction leaves of them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from coordinator.group.consumer.group import ConsumerMember, assignment_record
from coordinator.group.records import ConsumerGroupRecord, encode_record
from coordinator.group.shard import GroupShard
from coordinator.java.maps import JavaMap
from protocol.errors import Error
from protocol.messages.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
)
from tests.unit.coordinator.group.consumer.consumers import Consumers, FakeTopics


def said(shard: GroupShard) -> Any:
    """Return everything durable of the groups."""
    return {
        group_id: (
            group.epoch,
            group.assignment_epoch,
            group.assignment_timestamp_ms,
            group.metadata_hash,
            dict(group.members.items()),
            {member: {t: {*p} for t, p in target.items()} for member, target in group.targets.items()},
            group.partition_epochs,
            group.inverted_targets,
            group.static_members,
            group.topics,
            dict(group.regexes),
            group.resolved,
            dict(group.server_assignors.items()),
            group.homogeneous,
        )
        for group_id, group in shard.groups.consumer.items()
    }


@pytest.mark.parametrize("seed", range(8))
def test_a_restart_finds_a_group_as_it_was(seed: int) -> None:
    chance = random.Random(seed)
    groups = Consumers(FakeTopics(t=7, u=3))
    epochs: dict[str, int] = {}
    for _ in range(60):
        member = chance.choice(("a", "b", "c", "d"))
        instance = "i" if member == "d" else None
        if member not in epochs:
            names = chance.choice((["t"], ["t", "u"], ["u"]))
            answer = groups.enter(member, *names, instance=instance, regex=chance.choice((None, "u.*")))
        elif chance.random() < 0.2:
            groups.beat(member, -2 if instance and chance.random() < 0.5 else -1, instance=instance)
            del epochs[member]
            continue
        else:
            owned = {name: groups.holds(member, name) for name in ("t", "u")}
            answer = groups.beat(member, epochs[member], owned=owned, instance=instance)
        if answer.error_code == 0:
            epochs[member] = answer.member_epoch
        groups.runtime.pass_ms(chance.choice((0, 0, 5, 1000)))

    assert said(groups.restarted().shard) == said(groups.shard)


def test_after_a_restart_everybody_has_a_whole_session() -> None:
    groups = Consumers()
    groups.enter("one")
    groups.runtime.pass_ms(40_000)

    again = groups.restarted()
    again.runtime.pass_ms(44_999)
    assert again.state == "Stable"
    again.runtime.pass_ms(1)

    assert again.state == "Empty"


def test_after_a_restart_a_member_has_its_whole_time_to_give_up() -> None:
    groups = Consumers()
    groups.enter("one", rebalance_ms=2_000)
    groups.enter("two")
    groups.beat("one", 2)

    again = groups.restarted()
    again.runtime.pass_ms(2_000)

    assert [*again.group.members] == ["two"]


def test_a_deleted_group_is_gone_after_a_restart() -> None:
    groups = Consumers()
    groups.enter("one")
    groups.beat("one", -1)
    groups.shard.delete_groups(["g"])

    assert said(groups.restarted().shard) == {}


@pytest.mark.parametrize(
    "key",
    [
        ConsumerGroupMetadataKey(group_id="g"),
        ConsumerGroupPartitionMetadataKey(group_id="g"),
        ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
        ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
        ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
    ],
    ids=lambda key: type(key).__name__,
)
def test_tombstones_of_missing_records_are_skipped(key: Any) -> None:
    groups = Consumers()
    record, value = encode_record(ConsumerGroupRecord(key, None))

    groups.shard.replay(record, value, 0, -1)
    assert said(groups.shard) == {}
    groups.enter("one")
    if not isinstance(key, ConsumerGroupMetadataKey):
        groups.shard.replay(record, value, 5, -1)
        assert [*groups.group.members] == ["one"]


@pytest.mark.parametrize("seed", range(10))
def test_a_compacted_log_comes_to_the_same(seed: int) -> None:
    """Only the last record of each key is left (KAFKA-19862)."""
    chance = random.Random(seed)
    groups = Consumers(FakeTopics(t=5))
    epochs: dict[str, int] = {}
    for _ in range(40):
        member = chance.choice("abc")
        if member not in epochs:
            epochs[member] = groups.enter(member).member_epoch
        elif chance.random() < 0.15:
            groups.beat(member, -1)
            del epochs[member]
        else:
            epochs[member] = groups.beat(
                member, epochs[member], owned={"t": groups.holds(member)}
            ).member_epoch
    last = {key: index for index, ((key, _), _) in enumerate(groups.runtime.log)}
    groups.runtime.log = [
        entry for index, entry in enumerate(groups.runtime.log) if last[entry[0][0]] == index
    ]

    again = groups.restarted().group

    expected = groups.group
    assert dict(again.members.items()) == dict(expected.members.items())
    assert again.partition_epochs == expected.partition_epochs
    assert again.inverted_targets == expected.inverted_targets
    assert (again.epoch, again.assignment_epoch) == (expected.epoch, expected.assignment_epoch)


def test_metadata_of_an_older_kafka_is_deleted_with_the_next_bump() -> None:
    groups = Consumers()
    groups.enter("one")
    key = ConsumerGroupPartitionMetadataKey(group_id="g")
    groups.shard.replay(
        *encode_record(ConsumerGroupRecord(key, ConsumerGroupPartitionMetadataValue())), 9, -1
    )
    before = len(groups.runtime.log)

    groups.enter("two")

    assert ConsumerGroupRecord(key, None) in groups.runtime.written()[before:]
    assert not groups.group.has_partition_metadata


def test_a_member_that_gives_up_late_in_a_compacted_log_takes_nothing_from_the_new_owner() -> None:
    """KAFKA-19862."""
    groups = Consumers(FakeTopics(t=1))
    groups.enter("one")
    topic_id = groups.topic_id("t")
    group = groups.group
    held = group.members["one"].assigned
    group.put(ConsumerMember("two", epoch=5, assigned=held))
    assert group.partition_epoch(topic_id, 0) == 5

    group.put(ConsumerMember("one", epoch=3))

    assert group.partition_epoch(topic_id, 0) == 5


def test_an_instance_id_that_its_member_changed_before_leaving_is_free() -> None:
    groups = Consumers()
    groups.enter("one", instance="i1")
    groups.enter("one", instance="i2")
    groups.beat("one", -1, instance="i2")

    for each in (groups, groups.restarted()):
        for epoch in (1, -1, -2):
            refused = each.refused("two", epoch, "t", owned={}, rebalance_ms=60_000, instance="i1")
            assert refused is Error.UNKNOWN_MEMBER_ID
        assert each.refused("two", 0, "t", owned={}, rebalance_ms=60_000, instance="i1") is Error.NONE
        assert each.enter("two", instance="i2").error_code == Error.NONE


def test_of_two_records_about_a_partitions_owner_the_newer_epoch_counts() -> None:
    """Compaction may leave a former owner's old record behind the new owner's record (KAFKA-19862)."""
    groups = Consumers()

    def held(member: str, epoch: int) -> None:
        owner = ConsumerMember(member, epoch=epoch, assigned=JavaMap())
        owner.assigned[groups.topic_id("t")] = JavaMap()
        owner.assigned[groups.topic_id("t")][0] = epoch
        record, value = encode_record(assignment_record("g", owner))
        groups.shard.replay(record, value, len(groups.runtime.log), -1)

    held("new", 7)
    held("old", 5)
    assert groups.group.partition_epoch(groups.topic_id("t"), 0) == 7

    record, value = encode_record(
        ConsumerGroupRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="old"), None)
    )
    groups.shard.replay(record, value, len(groups.runtime.log), -1)
    assert groups.group.partition_epoch(groups.topic_id("t"), 0) == 7

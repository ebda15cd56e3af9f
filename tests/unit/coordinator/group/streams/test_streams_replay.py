"""Logs of streams groups: complete, compacted and with holes."""

from __future__ import annotations

import random

import pytest

from coordinator.group.records import HIGHEST_EPOCH_READ, StreamsGroupRecord, encode_record
from coordinator.group.streams.group import StreamsGroup
from coordinator.group.streams.states import StreamsMemberState
from coordinator.ports import CoordinatorRecord
from protocol.errors import CodecError, Error, KafkaError
from protocol.messages.group_records import (
    CurrentTaskIds,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
    Subtopology,
)
from tests.unit.coordinator.group.consumer.consumers import FakeTopics
from tests.unit.coordinator.group.streams.members import StreamsMembers, subtopology, topology
from tests.unit.coordinator.runtime import FakeRuntime


def a_life() -> StreamsMembers:
    groups = StreamsMembers(FakeTopics(t=4, c=4), of=topology(subtopology("0", "t", changelogs=["c"])))
    groups.enter("one", "p", tags={"b": "1", "a": "2"}, port=7)
    groups.enter("two", "q")
    groups.settle()
    groups.enter("three", "r")
    groups.beat("two", -1)
    groups.report("one")
    return groups


def loaded(records: list[CoordinatorRecord]) -> StreamsMembers:
    runtime = FakeRuntime()
    again = StreamsMembers(FakeTopics(t=4, c=4), runtime=runtime)
    for offset, (key, value) in enumerate(records):
        again.shard.replay(key, value, offset, -1)
    again.shard.start()
    return again


def durable(group: StreamsGroup) -> list[object]:
    assert group.topology is not None
    return [
        group.epoch,
        group.assignment_epoch,
        group.assignment_timestamp_ms,
        group.metadata_hash,
        group.validated_epoch,
        group.assignment_configs,
        group.topology.value,
        {member_id: group.members[member_id] for member_id in group.members},
        group.targets,
        group.holders.active,
        group.holders.standby,
        group.state,
    ]


def test_a_log_restores_the_written_group() -> None:
    groups = a_life()
    records = [record for record, _ in groups.runtime.log]
    assert durable(loaded(records).group) == durable(groups.group)


def test_a_compacted_log_says_the_same() -> None:
    groups = a_life()
    last: dict[bytes, bytes | None] = {}
    for (key, value), _ in groups.runtime.log:
        last.pop(key, None)
        last[key] = value
    assert durable(loaded([*last.items()]).group) == durable(groups.group)
    kept = [(key, value) for key, value in last.items() if value is not None]
    assert durable(loaded(kept).group) == durable(groups.group)


@pytest.mark.parametrize("seed", range(20))
def test_a_log_with_holes_is_read(seed: int) -> None:
    """A log may be compacted while it is read. A group's record or half of a step may be missing."""
    chance = random.Random(seed)
    groups = a_life()
    for member in [*groups.group.members]:
        groups.beat(member, -1)
    groups.shard.delete_groups(["g"])
    records = [record for record, _ in groups.runtime.log if chance.random() < 0.7]
    loaded(records)
    end = [(key, None) for key, _ in records]
    assert loaded([*records, *end]).shard.groups.streams == {}


def test_a_task_without_an_epoch_has_that_of_its_member() -> None:
    key = StreamsGroupCurrentMemberAssignmentKey(group_id="g", member_id="m")
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=7, state=99, active_tasks=[CurrentTaskIds(subtopology_id="0", partitions=[1])]
    )
    groups = loaded([encode_record(StreamsGroupRecord(key, value))])
    member = groups.group.members["m"]
    assert member.assignment_epoch_of("0", 1) == 7
    assert member.state is StreamsMemberState.UNKNOWN
    assert (
        groups.refused("m", 7, active={"0": [1]}) is Error.UNKNOWN_SERVER_ERROR
    )  # the group's topology is unknown


def test_an_epoch_that_leaves_no_room_is_not_read() -> None:
    key = StreamsGroupMetadataKey(group_id="g")
    value = StreamsGroupMetadataValue(epoch=HIGHEST_EPOCH_READ + 1)
    with pytest.raises(CodecError):
        loaded([encode_record(StreamsGroupRecord(key, value))])


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (StreamsGroupTopologyValue(epoch=-1), "a topology of epoch -1"),
        (
            StreamsGroupTopologyValue(subtopologies=[Subtopology(subtopology_id="0")] * 2),
            "a topology that has subtopology 0 twice",
        ),
    ],
)
def test_a_nonsense_topology_is_refused_with_a_reason_only_in_the_log(
    value: StreamsGroupTopologyValue, why: str
) -> None:
    record = encode_record(StreamsGroupRecord(StreamsGroupTopologyKey(group_id="g"), value))
    with pytest.raises(KafkaError) as refused:
        loaded([record])
    assert (refused.value.error, refused.value.message) == (Error.UNKNOWN_SERVER_ERROR, None)
    assert str(refused.value.__cause__) == why

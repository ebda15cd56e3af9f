"""The memory of streams groups' members counts toward the bound that all members share."""

from __future__ import annotations

import pytest

from coordinator.group import member_memory
from coordinator.group.member_memory import MemberMemory
from protocol.errors import Error
from tests.unit.coordinator.group.consumer.consumers import FakeTopics
from tests.unit.coordinator.group.streams.members import StreamsMembers, subtopology, topology


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_memory, "MOST_MEMBER_BYTES", 40_000)


@pytest.mark.usefixtures("little")
def test_groups_without_end_are_refused_until_members_leave() -> None:
    groups = StreamsMembers(FakeTopics(t=1))
    errors = [
        groups.refused("m", 0, active={}, of=groups.of, rebalance_ms=1, group=f"g{n}") for n in range(20)
    ]
    assert errors[0] is Error.NONE
    assert errors[-1] is Error.GROUP_MAX_SIZE_REACHED
    full = errors.index(Error.GROUP_MAX_SIZE_REACHED)
    for number in range(full):
        groups.beat("m", -1, group=f"g{number}")
        groups.shard.delete_groups([f"g{number}"])
    groups.runtime.pass_ms(member_memory.BETWEEN_COUNTS_MS)
    assert groups.enter("one").error_code == Error.NONE


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("part", ["topics", "tags", "tasks"])
def test_whatever_a_member_brings_counts(part: str) -> None:
    names = [f"c{index}" for index in range(50)]
    of = topology(subtopology("0", "t", changelogs=names if part == "topics" else ()))
    groups = StreamsMembers(FakeTopics(t=100 if part == "tasks" else 1), of=of)
    tags = {f"tag{index}": "x" * 1_000 for index in range(50)} if part == "tags" else {}
    assert groups.enter("one", tags=tags).error_code == Error.GROUP_MAX_SIZE_REACHED
    assert groups.shard.groups.streams == {}


@pytest.mark.usefixtures("little")
def test_an_unchanged_part_makes_no_room_for_a_larger_changed_one() -> None:
    groups = StreamsMembers(FakeTopics(t=1))
    assert groups.enter("one", tags={"k": "x" * 20_000}).error_code == Error.NONE
    assert groups.refused("one", 2, process="x" * 20_000) is Error.GROUP_MAX_SIZE_REACHED
    assert groups.refused("one", 2, process="x" * 20_000, tags={}) is Error.NONE


def test_existing_members_are_counted_by_going_over_them() -> None:
    memory = MemberMemory()
    groups = StreamsMembers(memory=memory)
    groups.enter("one")
    memory.was_loaded()
    memory.check(1, groups.runtime.now_ms())
    before = memory._counted_bytes
    groups.enter("two", tags={"k": "x" * 10_000})
    memory.was_loaded()
    memory.check(1, groups.runtime.now_ms())
    assert memory._counted_bytes > before + 10_000

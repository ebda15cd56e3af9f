"""The memory of a node's classic group members has a bound, whichever groups they are in."""

from __future__ import annotations

import pytest

from coordinator.group import member_memory
from coordinator.group.member_memory import BETWEEN_COUNTS_MS, MEMBER_BYTES, MOST_MEMBER_BYTES
from protocol.errors import Error
from tests.unit.coordinator.runtime import Answer, Groups

KIB = 1024
LARGE = [("range", bytes(300 * KIB))]


@pytest.fixture
def _a_mebibyte(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_MEMBER_BYTES == 256 * 1024 * KIB
    monkeypatch.setattr(member_memory, "MOST_MEMBER_BYTES", 1024 * KIB)
    monkeypatch.setattr(member_memory, "_LITTLE_BYTES", 64 * KIB)


def joined(groups: Groups, *numbers: int) -> list[Answer]:
    """Have each member join a group of its own, and return the answers."""
    answers = [groups.join(version=3, group=f"g{number}", protocols=LARGE) for number in numbers]
    groups.runtime.pass_ms(1)
    return answers


def held(groups: Groups) -> int:
    return sum(
        len(metadata)
        for group in groups.shard.groups.classic.values()
        for member in group.members.values()
        for _, metadata in member.protocols
    )


@pytest.mark.limit("coordinator.group.member_memory.MOST_MEMBER_BYTES")
@pytest.mark.usefixtures("_a_mebibyte")
def test_joins_past_it_are_refused_whichever_group_they_are_for() -> None:
    groups = Groups()
    answers = joined(groups, *range(10))
    assert [answer.error for answer in answers] == [*[Error.NONE] * 3, *[Error.GROUP_MAX_SIZE_REACHED] * 7]
    assert held(groups) == 900 * KIB


@pytest.mark.usefixtures("_a_mebibyte")
def test_an_existing_member_goes_on_above_the_bound_but_brings_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = Groups()
    first, *_ = joined(groups, 0, 1, 2, 3)
    assert first.join is not None
    monkeypatch.setattr(member_memory, "MOST_MEMBER_BYTES", KIB)  # as if a log with more had been read
    again = {"group": "g0", "version": 3}
    assert groups.join(first.join.member_id, protocols=LARGE, **again).error is Error.NONE
    more = [("range", bytes(500 * KIB))]
    assert groups.join(first.join.member_id, protocols=more, **again).error is Error.GROUP_MAX_SIZE_REACHED
    assert [*groups.shard.groups.classic["g0"].members] == [first.join.member_id]


@pytest.mark.usefixtures("_a_mebibyte")
def test_a_member_that_has_gone_makes_room() -> None:
    groups = Groups()
    first, *_ = joined(groups, 0, 1, 2, 3)
    assert first.join is not None
    groups.shard.groups.classic["g0"].remove(first.join.member_id)
    groups.runtime.pass_ms(BETWEEN_COUNTS_MS)
    assert [answer.error for answer in joined(groups, 4, 5)] == [Error.NONE, Error.GROUP_MAX_SIZE_REACHED]


@pytest.mark.usefixtures("_a_mebibyte")
def test_joins_that_come_to_nothing_leave_room_for_others() -> None:
    groups = Groups()
    groups.stable()
    for _ in range(20):
        refused = groups.join(version=3, protocols=[("unknown", bytes(300 * KIB))])
        assert refused.error is Error.INCONSISTENT_GROUP_PROTOCOL
    assert [answer.error for answer in joined(groups, 1)] == [Error.NONE]


@pytest.mark.usefixtures("_a_mebibyte")
def test_ids_that_were_given_out_count() -> None:
    groups = Groups()
    asked = 2 * 1024 * KIB // MEMBER_BYTES
    given = [groups.join(client="c" * 500).error for _ in range(asked)]
    count = given.count(Error.MEMBER_ID_REQUIRED)
    assert 0 < count <= 1024 * KIB // (MEMBER_BYTES + 500)
    assert {*given[count:]} == {Error.GROUP_MAX_SIZE_REACHED}


@pytest.mark.usefixtures("_a_mebibyte")
def test_groups_without_a_successful_join_count_and_those_past_the_bound_are_not_made() -> None:
    groups = Groups()
    refused = [
        groups.join(version=3, group=f"{number:030000}", protocols=[], protocol_type="consumer").error
        for number in range(50)
    ]
    made = len(groups.shard.groups.classic)
    assert 20 < made <= 1024 * KIB // 30_000
    assert refused == [Error.INCONSISTENT_GROUP_PROTOCOL] * made + [Error.GROUP_MAX_SIZE_REACHED] * (
        50 - made
    )
    assert len(groups.shard.groups.classic) == made


def assigned(groups: Groups, assignment: bytes, member_id: str = "") -> tuple[str, Error]:
    """Have the group's only member join, and assign this to itself."""
    joined = groups.join(member_id, version=3)
    groups.runtime.pass_ms(0)
    assert joined.join is not None
    member_id = joined.join.member_id
    return member_id, groups.sync(member_id, joined.join.generation_id, {member_id: assignment}).error


@pytest.mark.usefixtures("_a_mebibyte")
def test_a_leaders_assignment_counts() -> None:
    groups = Groups()
    member_id, error = assigned(groups, bytes(500 * KIB))
    assert error is Error.NONE
    assert [answer.error for answer in joined(groups, 1, 2)] == [Error.NONE, Error.GROUP_MAX_SIZE_REACHED]
    assert assigned(groups, bytes(500 * KIB), member_id)[1] is Error.NONE
    assert assigned(groups, bytes(900 * KIB), member_id)[1] is Error.GROUP_MAX_SIZE_REACHED
    assert groups.state == "PreparingRebalance"
    groups.runtime.pass_ms(BETWEEN_COUNTS_MS)
    assert assigned(groups, bytes(MEMBER_BYTES), member_id)[1] is Error.NONE


@pytest.mark.usefixtures("_a_mebibyte")
def test_a_small_assignment_needs_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups()
    member_id, _ = assigned(groups, b"")
    monkeypatch.setattr(member_memory, "MOST_MEMBER_BYTES", KIB)
    assert assigned(groups, bytes(MEMBER_BYTES), member_id)[1] is Error.NONE


@pytest.mark.usefixtures("_a_mebibyte")
def test_groups_found_at_a_start_count() -> None:
    groups = Groups()
    assigned(groups, bytes(900 * KIB))
    again = groups.restarted()
    assert [answer.error for answer in joined(again, 1)] == [Error.GROUP_MAX_SIZE_REACHED]

"""Static members of streams groups: every request beside an instance that is unknown, that lives, and that is away.
Beside Kafka: tests/compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coordinator.group.consumer.states import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from coordinator.settings import StreamsConfig
from protocol.errors import Error
from protocol.messages.groups_streams import TaskOffset
from tests.unit.coordinator.group.streams.members import StreamsMembers, subtopology, told, topology

MEMBER, TARGET_EPOCH, TARGET, CURRENT, GROUP = 19, 20, 21, 22, 17
OK, UNRELEASED, FENCED = Error.NONE, Error.UNRELEASED_INSTANCE_ID, Error.FENCED_INSTANCE_ID
UNKNOWN, OLD = Error.UNKNOWN_MEMBER_ID, Error.FENCED_MEMBER_EPOCH


def unknown() -> StreamsMembers:
    """Return a group without an instance "i". The member "two" has no instance, here and below."""
    groups = StreamsMembers()
    groups.enter("two", "q")
    return groups


def alive() -> StreamsMembers:
    """Return a group whose member "one" is the instance "i"."""
    groups = unknown()
    groups.enter("one", "p", instance="i")
    groups.settle()
    return groups


def away() -> StreamsMembers:
    groups = alive()
    assert groups.refused("one", LEAVE_STATIC_EPOCH, instance="i") is OK
    return groups


CELLS = {
    # the instance, the member that asks for it, and its epoch; the group's epoch is 3
    (unknown, "one", JOIN_EPOCH): OK,
    (unknown, "one", 3): UNKNOWN,
    (unknown, "one", LEAVE_EPOCH): UNKNOWN,
    (unknown, "one", LEAVE_STATIC_EPOCH): UNKNOWN,
    (unknown, "two", JOIN_EPOCH): OK,
    (unknown, "two", 3): UNKNOWN,
    (unknown, "two", LEAVE_EPOCH): UNKNOWN,
    (unknown, "two", LEAVE_STATIC_EPOCH): UNKNOWN,
    (alive, "one", JOIN_EPOCH): UNRELEASED,
    (alive, "one", 3): OK,
    (alive, "one", 9): OLD,
    (alive, "one", LEAVE_EPOCH): OK,
    (alive, "one", LEAVE_STATIC_EPOCH): OK,
    (alive, "two", JOIN_EPOCH): UNRELEASED,
    (alive, "two", 3): FENCED,
    (alive, "two", LEAVE_EPOCH): FENCED,
    (alive, "two", LEAVE_STATIC_EPOCH): FENCED,
    (alive, "new", JOIN_EPOCH): UNRELEASED,
    (alive, "new", 3): FENCED,
    (away, "one", JOIN_EPOCH): OK,
    (away, "one", 3): OLD,
    (away, "one", LEAVE_EPOCH): OK,
    (away, "one", LEAVE_STATIC_EPOCH): OK,
    (away, "two", JOIN_EPOCH): OK,
    (away, "two", 3): FENCED,
    (away, "two", LEAVE_EPOCH): FENCED,
    (away, "two", LEAVE_STATIC_EPOCH): FENCED,
    (away, "new", JOIN_EPOCH): OK,
    (away, "new", 3): FENCED,
}


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell[0].__name__}-{cell[1]}-{cell[2]}")
def test_an_instance_stays_the_same_member(cell: tuple[Callable[[], StreamsMembers], str, int]) -> None:
    make, member, epoch = cell
    groups = make()
    before = len(groups.runtime.log)
    if epoch == JOIN_EPOCH:
        error = Error(groups.enter(member, "p", instance="i").error_code)
    else:
        error = groups.refused(member, epoch, instance="i")
    assert error is CELLS[cell]
    if error is not OK:
        assert len(groups.runtime.log) == before
    elif epoch == JOIN_EPOCH:
        assert groups.group.static_members == {"i": member}
    elif epoch == LEAVE_EPOCH:
        assert groups.group.static_members == {}


def test_a_static_members_request_without_its_instance_counts() -> None:
    groups = alive()
    assert groups.refused("one", 3) is OK
    assert groups.group.members["one"].instance_id == "i"
    assert groups.refused("one", LEAVE_EPOCH) is OK
    assert groups.group.static_members == {}


def test_a_member_away_for_a_while_keeps_its_tasks_and_the_group_its_epoch() -> None:
    groups = alive()
    has, epoch, before = groups.holds("one"), groups.group.epoch, len(groups.runtime.log)
    previous_epoch = groups.group.members["one"].previous_epoch
    answer = groups.beat("one", LEAVE_STATIC_EPOCH, instance="i")
    assert (answer.member_epoch, answer.status) == (LEAVE_STATIC_EPOCH, [])
    assert groups.keys(before) == [CURRENT]
    one = groups.group.members["one"]
    assert {epoch for epochs in one.assigned.active.values() for epoch in epochs.values()} == {0}
    assert (groups.holds("one"), one.previous_epoch, groups.group.epoch) == (has, previous_epoch, epoch)
    assert groups.state == "Reconciling"


def test_a_member_that_goes_while_giving_up_tasks_gives_them_up() -> None:
    groups = StreamsMembers()
    groups.enter("one", "p", instance="i")
    groups.enter("two", "q")
    groups.report("one")
    assert not groups.group.members["one"].pending.is_empty
    groups.beat("one", LEAVE_STATIC_EPOCH, instance="i")
    assert groups.group.members["one"].pending.is_empty
    assert told(groups.report("two").active_tasks) == {"0": [3, 4, 5]}


@pytest.mark.parametrize("member", ["one", "uno"])
def test_a_member_that_comes_back_unchanged_has_its_tasks_at_the_groups_epoch(member: str) -> None:
    groups = away()
    has, before = groups.holds("one"), len(groups.runtime.log)
    answer = groups.enter(member, "p", instance="i")
    assert (answer.member_epoch, told(answer.active_tasks)) == (3, has)
    taken_over = [-CURRENT, -TARGET, -MEMBER, MEMBER, TARGET, CURRENT]
    assert groups.keys(before) == [*taken_over, CURRENT]
    assert groups.group.members.get("one") is None or member == "one"
    assert groups.target(member) == has
    assert groups.state == "Stable"
    assert groups.restarted().group.static_members == {"i": member}


@pytest.mark.parametrize(
    ("said", "is_new"),
    [
        ({"process": "r"}, True),
        ({"rack": "r"}, True),
        ({"tags": {"k": "v"}}, True),
        ({"rebalance_ms": 5}, False),
        ({"client": "another"}, False),
        ({"port": 1}, False),
    ],
    ids=str,
)
def test_a_change_that_affects_assignments_reassigns_the_group(said: dict[str, Any], is_new: bool) -> None:
    groups = away()
    epoch = groups.group.epoch
    groups.enter("uno", **{"process": "p", **said}, instance="i")
    assert groups.group.epoch == epoch + is_new
    dynamic = alive()
    dynamic.enter("two", **{"process": "q", **said})
    assert dynamic.group.epoch == epoch + 1


def test_a_member_that_stays_away_is_removed() -> None:
    groups = away()
    groups.runtime.pass_ms(44_000)
    groups.report("two")
    groups.runtime.pass_ms(2_000)
    assert [*groups.group.members] == ["two"]
    assert groups.group.static_members == {}


def test_the_time_limit_of_a_replaced_member_ends() -> None:
    groups = away()
    groups.enter("uno", "p", instance="i")
    groups.runtime.pass_ms(44_000)
    groups.report("two")
    groups.report("uno")
    groups.runtime.pass_ms(2_000)
    assert {*groups.group.members} == {"two", "uno"}


def test_a_member_that_could_not_be_replaced_is_removed_in_time_all_the_same() -> None:
    groups = away()
    groups.runtime.failing = Error.NOT_COORDINATOR
    offsets = [TaskOffset(subtopology_id="0", partition=0, offset=1)]
    assert groups.enter("uno", "p", instance="i", offsets=offsets).error_code == Error.NOT_COORDINATOR
    groups.runtime.failing = None
    assert groups.group.static_members == {"i": "one"}
    assert groups.group.task_offsets == {}
    groups.runtime.pass_ms(44_000)
    groups.report("two")
    groups.runtime.pass_ms(2_000)
    assert [*groups.group.members] == ["two"]


def test_a_member_that_becomes_another_instance_gives_up_the_first() -> None:
    groups = alive()
    assert groups.enter("one", "p", instance="j").error_code == OK
    assert groups.group.static_members == {"j": "one"}
    assert groups.enter("new", "p", instance="i").error_code == OK
    assert groups.group.static_members == {"j": "one", "i": "new"}


def test_a_full_group_accepts_known_members() -> None:
    groups = StreamsMembers(streams_max_size=2)
    groups.enter("one", "p", instance="i")
    groups.enter("two", "q")
    assert groups.enter("three", "r").error_code == Error.GROUP_MAX_SIZE_REACHED
    assert groups.enter("three", "r", instance="j").error_code == Error.GROUP_MAX_SIZE_REACHED
    assert groups.enter("two", "q").error_code == OK
    groups.beat("one", LEAVE_STATIC_EPOCH, instance="i")
    assert groups.enter("three", "r").error_code == Error.GROUP_MAX_SIZE_REACHED
    assert groups.enter("three", "r", instance="i").error_code == OK
    assert {*groups.group.members} == {"two", "three"}


def test_an_epoch_of_before_doesnt_count_once_it_has_left() -> None:
    groups = away()
    assert groups.refused("one", 3) is OLD


def test_a_replacement_learns_of_others_endpoints_and_not_of_the_replaced_ones() -> None:
    groups = StreamsMembers()
    groups.enter("one", "p", instance="i", port=1)
    groups.beat("one", LEAVE_STATIC_EPOCH, instance="i")
    answer = groups.enter("uno", "p", instance="i", port=2, endpoint_epoch=-1)
    assert [each.user_endpoint.port for each in answer.partitions_by_user_endpoint or ()] == [2]


def test_a_large_group_takes_a_static_member_back_as_well() -> None:
    """It is decided beside the loop, with a copy of the group."""
    groups = StreamsMembers(of=topology(*(subtopology(f"{number}", "t") for number in range(200))))
    for member, process in (("one", "p"), ("two", "q")):
        groups.enter(member, process, instance=member)
    groups.settle()
    has = groups.holds("one")
    groups.beat("one", LEAVE_STATIC_EPOCH, instance="one")
    answer = groups.enter("uno", "p", instance="one")
    assert told(answer.active_tasks) == {each: has[each] for each in told(answer.active_tasks) or {}}
    assert groups.holds("uno") == has
    assert groups.group.static_members == {"one": "uno", "two": "two"}


def test_a_member_refused_an_instance_takes_nothing_from_its_owner() -> None:
    """This differs from Kafka on purpose: see `TaskTargetStep`."""
    groups = unknown()
    groups.enter("one", "p", instance="i")
    assert Error(groups.enter("new", "r", instance="i").error_code) is UNRELEASED
    assert groups.refused("new", 3, instance="i") is FENCED
    groups.settle()
    assert groups.holds("one") == {"0": [3, 4, 5]}


def test_a_replacement_before_the_next_assignment_has_the_old_part_and_the_other_nothing() -> None:
    groups = away()
    groups.config = StreamsConfig(initial_rebalance_delay_ms=0, assignment_interval_ms=10_000)
    has = groups.holds("one")
    answer = groups.enter("uno", "r", instance="i")
    assert told(answer.active_tasks) == has
    assert told(groups.enter("one", "p").active_tasks) == {}

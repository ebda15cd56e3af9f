"""The tables of group states and of member epochs, cell by cell."""

from __future__ import annotations

import pytest

from coordinator.group.consumer.group import ConsumerMember, Owned
from coordinator.group.consumer.states import ACCEPTED, GROUP_STATES, GroupState, MemberEpochRelation
from coordinator.java.maps import JavaMap
from protocol.errors import Error
from tests.unit.coordinator.group.consumer.consumers import Consumers

T = b"t" * 16


def empty() -> Consumers:
    groups = Consumers()
    groups.enter("one")
    groups.beat("one", -1)
    return groups


def empty_as_kafka_left_it() -> Consumers:
    """Return a group as Kafka up to 4.3 left it: when the last member left, it wrote nothing about the target."""
    groups = empty()
    groups.group.assignment_epoch = groups.group.epoch - 1
    return groups


def assigning() -> Consumers:
    groups = reconciling()
    groups.beat("two", -1)
    return groups


def assigning_reconciled() -> Consumers:
    groups = Consumers()
    groups.enter("one")
    groups.enter("two", "nowhere")
    groups.beat("one", 2)
    groups.beat("two", -1)
    return groups


def reconciling() -> Consumers:
    groups = Consumers()
    groups.enter("one")
    groups.enter("two")
    return groups


def stable() -> Consumers:
    groups = Consumers()
    groups.enter("one")
    return groups


CASES = [
    (empty, (False, False, True)),
    (empty_as_kafka_left_it, (False, True, True)),
    (assigning, (True, True, False)),
    (assigning_reconciled, (True, True, True)),
    (reconciling, (True, False, False)),
    (stable, (True, False, True)),
]


@pytest.mark.table("coordinator.group.consumer.states.GROUP_STATES")
@pytest.mark.parametrize(("make", "cell"), CASES)
def test_a_group_is_in_the_state_of_its_cell(make: object, cell: tuple[bool, bool, bool]) -> None:
    groups = make()  # type: ignore[operator]
    group = groups.group
    reconciled = all(member.is_reconciled_to(group.assignment_epoch) for member in group.members.values())

    assert (bool(group.members), group.epoch > group.assignment_epoch, reconciled) == cell
    assert group.state is GROUP_STATES[cell]


def test_every_cell_of_a_group_has_its_case() -> None:
    assert {cell for _, cell in CASES} == {*GROUP_STATES}
    assert {*GROUP_STATES.values()} == {*GroupState} - {GroupState.DEAD}


def member() -> ConsumerMember:
    assigned: JavaMap[bytes, JavaMap[int, int]] = JavaMap()
    assigned[T] = JavaMap()
    assigned[T][0] = 5
    return ConsumerMember("m", epoch=7, previous_epoch=5, assigned=assigned)


@pytest.mark.parametrize(
    ("epoch", "owned", "expected"),
    [
        (0, None, MemberEpochRelation.JOINS),
        (7, None, MemberEpochRelation.CURRENT),
        (5, [(T, [0])], MemberEpochRelation.PREVIOUS),
        (5, [], MemberEpochRelation.PREVIOUS),
        (5, None, MemberEpochRelation.OLDER),
        (5, [(T, [0, 1])], MemberEpochRelation.OLDER),
        (5, [(b"u" * 16, [0])], MemberEpochRelation.OLDER),
        (6, [], MemberEpochRelation.OLDER),
        (4, [], MemberEpochRelation.OLDER),
        (8, [], MemberEpochRelation.NEWER),
    ],
)
def test_an_epochs_relation_to_the_members(epoch: int, owned: Owned, expected: MemberEpochRelation) -> None:
    assert member().relation_of(epoch, owned) is expected


@pytest.mark.table("coordinator.group.consumer.states.ACCEPTED")
@pytest.mark.parametrize(
    ("epoch", "owned", "relation"),
    [
        (0, {}, MemberEpochRelation.JOINS),
        (3, None, MemberEpochRelation.CURRENT),
        (2, {"t": [0, 1, 2]}, MemberEpochRelation.PREVIOUS),
        (2, {"t": [0, 1, 2, 3]}, MemberEpochRelation.OLDER),
        (2, None, MemberEpochRelation.OLDER),
        (1, {"t": [0]}, MemberEpochRelation.OLDER),
        (4, {"t": [0]}, MemberEpochRelation.NEWER),
    ],
)
def test_epochs_are_taken_or_fenced_as_the_table_says(
    epoch: int, owned: dict[str, list[int]] | None, relation: MemberEpochRelation
) -> None:
    groups = reconciling()
    groups.beat("one", 2, owned={"t": [0, 1, 2]})
    assert groups.group.members["one"].epoch == 3
    names = ("t",) if epoch == 0 else ()

    error = groups.refused("one", epoch, *names, owned=owned, rebalance_ms=1000 if epoch == 0 else -1)

    assert error is (Error.NONE if ACCEPTED[relation] else Error.FENCED_MEMBER_EPOCH)

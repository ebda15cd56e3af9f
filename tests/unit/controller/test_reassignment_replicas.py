"""The cases of Kafka's PartitionReassignmentReplicasTest and PartitionReassignmentRevertTest."""

from __future__ import annotations

import pytest

from broker.controller.image import PartitionImage
from broker.controller.partition_changes import Completed, Reassignment, is_under_way, reverted, towards
from protocol.messages.metadata_records import PartitionRecord


def partition(replicas: list[int], isr: list[int], adding: list[int], removing: list[int]) -> PartitionImage:
    record = PartitionRecord(replicas=replicas, isr=isr, adding_replicas=adding, removing_replicas=removing)
    return PartitionImage(record)


@pytest.mark.parametrize(
    ("now", "wanted", "on_the_way"),
    [
        ([3, 2, 1], [3, 2, 1], Reassignment([3, 2, 1], [], [])),
        ([3, 2, 1], [3, 6, 2, 1, 5], Reassignment([3, 6, 2, 1, 5], [5, 6], [])),
        ([3, 2, 1, 0], [3, 1], Reassignment([3, 1, 0, 2], [], [0, 2])),
        ([3, 2, 1, 0], [7, 3, 1, 9], Reassignment([7, 3, 1, 9, 0, 2], [7, 9], [0, 2])),
        ([3, 2, 1, 0], [0, 1, 3, 2], Reassignment([0, 1, 3, 2], [], [])),
    ],
)
def test_added_replicas_are_among_the_wanted_and_removed_ones_follow_them(
    now: list[int], wanted: list[int], on_the_way: Reassignment
) -> None:
    assert towards(wanted, now) == on_the_way


@pytest.mark.parametrize(
    ("now", "wanted", "isr", "completed"),
    [
        ([0, 1, 2], [3, 4, 5], [0, 1, 2, 3, 4], None),
        ([0, 1, 2], [3, 4, 5], [0, 1, 2, 3, 4, 5], Completed([3, 4, 5], [3, 4, 5])),
        ([0, 1, 2], [0, 1, 3], [0, 1, 2, 3], Completed([0, 1, 3], [0, 1, 3])),
        ([0, 1, 2], [0, 1, 3], [3], Completed([0, 1, 3], [3])),
        ([0, 1, 2], [0, 1, 3], [2], None),  # no replica in sync would be left
        (
            [0, 1, 2],
            [0, 1, 2, 3],
            [0, 3],
            Completed([0, 1, 2, 3], [0, 3]),
        ),  # the reassignment waits only for the new replica
        ([0, 1, 2], [0, 1, 2, 3], [], None),
        ([0, 1, 2], [2, 1, 0], [0, 1, 2], None),  # no replica comes or goes
        # there will be fewer replicas than before: all of them have to be in sync
        ([0, 1, 2, 3, 4], [2, 3, 4, 5], [0, 1, 5], None),
        ([0, 1, 2, 3, 4], [2, 3, 4, 5], [0, 1, 2, 4, 5], None),
        ([0, 1, 2, 3, 4], [2, 3, 4, 5], [5, 4, 3, 2, 1], Completed([2, 3, 4, 5], [5, 4, 3, 2])),
        ([0, 1, 2], [1, 2], [2, 0], None),
        ([0, 1, 2], [1, 2], [2, 1], Completed([1, 2], [2, 1])),
    ],
)
def test_a_reassignment_is_done_once_all_added_replicas_are_in_sync(
    now: list[int], wanted: list[int], isr: list[int], completed: Completed | None
) -> None:
    assert towards(wanted, now).completed(isr) == completed


def test_a_reassignment_that_removes_every_replica_is_never_done() -> None:
    assert Reassignment([0, 1], [], [0, 1]).completed([0, 1]) is None


@pytest.mark.parametrize(
    ("adding", "removing", "is_one"), [([3], [2], True), ([], [2], True), ([3], [], True), ([], [], False)]
)
def test_a_reassignment_is_under_way_while_replicas_are_added_or_removed(
    adding: list[int], removing: list[int], is_one: bool
) -> None:
    assert is_under_way(partition([0, 1, 3, 2], [0, 1, 3, 2], adding, removing)) is is_one


@pytest.mark.parametrize(
    ("before", "replicas", "isr", "unclean"),
    [
        (partition([3, 2, 1], [3, 2], [], []), [3, 2, 1], [3, 2], False),
        (partition([3, 2, 1], [3, 2], [], [2, 1]), [3, 2, 1], [3, 2], False),
        (partition([4, 5, 3, 2, 1], [4, 5, 2], [4, 5], []), [3, 2, 1], [2], False),
        (partition([4, 5, 3, 2, 1], [4, 5, 2], [4, 5], [2]), [3, 2, 1], [2], False),
        (partition([4, 5, 3, 2, 1], [4, 5], [4, 5], [2]), [3, 2, 1], [3], True),
    ],
)
def test_taking_it_back_leaves_the_old_replicas_and_one_counted_as_in_sync(
    before: PartitionImage, replicas: list[int], isr: list[int], unclean: bool
) -> None:
    assert reverted(before) == (replicas, isr, unclean)

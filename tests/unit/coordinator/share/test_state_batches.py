"""State batches put over each other."""

from __future__ import annotations

import random
from heapq import heappop
from itertools import pairwise
from typing import Any

import pytest

from coordinator.persister import NO_START_OFFSET, StateBatch
from coordinator.share import state_batches
from coordinator.share.state_batches import begin_and_end_in_order, combined

Plain = tuple[int, int, int, int]
"""First and last offset, delivery state, delivery count."""


def combine(so_far: list[Plain], new: list[Plain], start: int = NO_START_OFFSET) -> list[Plain]:
    found = combined([StateBatch(*each) for each in so_far], [StateBatch(*each) for each in new], start)
    return [tuple(each) for each in found]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("so_far", "new", "start", "expected"),
    [
        ([], [], -1, []),
        ([(0, 9, 0, 1)], [], -1, [(0, 9, 0, 1)]),
        ([], [(0, 9, 0, 1)], 5, [(5, 9, 0, 1)]),
        ([(0, 4, 0, 1)], [(5, 9, 2, 1)], 5, [(5, 9, 2, 1)]),
        # equal ones: apart, touching, overlapping, the same
        ([(0, 4, 0, 1)], [(6, 9, 0, 1)], -1, [(0, 4, 0, 1), (6, 9, 0, 1)]),
        ([(0, 4, 0, 1)], [(5, 9, 0, 1)], -1, [(0, 9, 0, 1)]),
        ([(0, 6, 0, 1)], [(5, 9, 0, 1)], -1, [(0, 9, 0, 1)]),
        ([(0, 9, 0, 1)], [(0, 9, 0, 1)], -1, [(0, 9, 0, 1)]),
        ([(0, 9, 0, 1)], [(3, 4, 0, 1)], -1, [(0, 9, 0, 1)]),
        # different ones that touch stay apart
        ([(0, 4, 0, 1)], [(5, 9, 0, 2)], -1, [(0, 4, 0, 1), (5, 9, 0, 2)]),
        # different ones over each other, the later one higher
        ([(0, 9, 0, 1)], [(0, 9, 2, 1)], -1, [(0, 9, 2, 1)]),
        ([(0, 9, 0, 1)], [(0, 4, 2, 1)], -1, [(0, 4, 2, 1), (5, 9, 0, 1)]),
        ([(0, 4, 0, 1)], [(0, 9, 2, 1)], -1, [(0, 9, 2, 1)]),
        ([(0, 9, 0, 1)], [(3, 4, 0, 2)], -1, [(0, 2, 0, 1), (3, 4, 0, 2), (5, 9, 0, 1)]),
        ([(0, 9, 0, 1)], [(5, 9, 0, 2)], -1, [(0, 4, 0, 1), (5, 9, 0, 2)]),
        ([(0, 6, 0, 1)], [(5, 9, 0, 2)], -1, [(0, 4, 0, 1), (5, 9, 0, 2)]),
        # and lower
        ([(0, 4, 2, 1)], [(0, 9, 0, 1)], -1, [(0, 4, 2, 1), (5, 9, 0, 1)]),
        ([(0, 9, 0, 2)], [(3, 4, 4, 1)], -1, [(0, 9, 0, 2)]),
        ([(0, 6, 2, 1)], [(5, 9, 0, 1)], -1, [(0, 6, 2, 1), (7, 9, 0, 1)]),
        # tried on Kafka
        (
            [(20, 29, 0, 1)],
            [(24, 25, 2, 1), (20, 29, 0, 0), (21, 23, 4, 1)],
            22,
            [(22, 23, 4, 1), (24, 25, 2, 1), (26, 29, 0, 1)],
        ),
    ],
)
def test_batches_are_put_over_each_other(
    so_far: list[Plain], new: list[Plain], start: int, expected: list[Plain]
) -> None:
    assert combine(so_far, new, start) == expected
    assert combine(new, so_far, start) == expected


def test_of_each_offset_the_highest_count_holds_and_then_the_highest_state() -> None:
    chance = random.Random(7)
    for _ in range(300):
        batches = [
            (first, first + chance.randrange(8), chance.choice((0, 2, 4)), chance.randrange(3))
            for first in (chance.randrange(30) for _ in range(chance.randrange(2, 12)))
        ]
        start = chance.choice((-1, 0, 10, 20))
        found = combine(batches[:3], batches[3:], start)
        expected = {}
        for first, last, state, count in batches:
            for offset in range(max(first, start), last + 1):
                expected[offset] = max(expected.get(offset, (-1, -1)), (count, state))
        assert expected == {
            offset: (count, state) for first, last, state, count in found for offset in range(first, last + 1)
        }
        assert found == sorted(found)
        assert all(first[1] < second[0] for first, second in pairwise(found))


def test_batches_that_end_before_they_begin_are_found() -> None:
    assert begin_and_end_in_order([StateBatch(3, 3, 0, 0), StateBatch(0, 9, 0, 0)])
    assert not begin_and_end_in_order([StateBatch(0, 9, 0, 1), StateBatch(5, 2, 0, 2)])


@pytest.mark.parametrize("over_each_other", [True, False])
def test_one_pass_tells_the_same_of_each_offset(
    monkeypatch: pytest.MonkeyPatch, over_each_other: bool
) -> None:
    chance = random.Random(8)
    for _ in range(300):
        span = 20 if over_each_other else 3
        batches = [
            (first, first + chance.randrange(span), chance.choice((0, 2, 4)), chance.randrange(3))
            for first in (chance.randrange(40) for _ in range(chance.randrange(2, 12)))
        ]
        expected = of_each_offset(combine(batches, []))
        with monkeypatch.context() as patched:
            patched.setattr(state_batches, "_STEPS_PER_PIECE", chance.choice((0, 1)))
            found = combine(batches, [])
        assert of_each_offset(found) == expected
        assert found == sorted(found)


def of_each_offset(batches: list[Plain]) -> dict[int, tuple[int, int]]:
    told = [
        (offset, (state, count)) for first, last, state, count in batches for offset in range(first, last + 1)
    ]
    assert len(dict(told)) == len(told)
    return dict(told)


@pytest.mark.parametrize("far", [False, True])
def test_batches_that_lie_over_each_other_in_the_worst_way_take_no_longer(
    monkeypatch: pytest.MonkeyPatch, far: bool
) -> None:
    """Each step of the merge takes one piece from the heap."""
    steps = [0]

    def counted(pieces: list[Any]) -> Any:
        steps[0] += 1
        return heappop(pieces)

    monkeypatch.setattr(state_batches, "heappop", counted)
    count = 2_000
    worst = [(0, number + 1, 0, 32_000 - number) for number in range(count)]
    if far:
        worst = [(number, 4 * count - number, 0, number) for number in range(count)]
    found = combine(worst, [])
    assert steps[0] < 10 * count
    assert len(found) == (2 * count - 1 if far else count)

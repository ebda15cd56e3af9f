"""State batches are merged where they touch. A share partition may have tens of thousands of them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from coordinator.persister import StateBatch
from coordinator.share import share_partitions as state_batches
from coordinator.share.share_partitions import combined

AVAILABLE, ACKNOWLEDGED = 0, 2
MANY = 10_000


@pytest.fixture
def merged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of batches of each merge."""
    counts: list[int] = []
    merge: Callable[[list[StateBatch]], list[StateBatch]] = state_batches._merged

    def counted(batches: list[StateBatch]) -> list[StateBatch]:
        counts.append(len(batches))
        return merge(batches)

    monkeypatch.setattr(state_batches, "_merged", counted)
    return counts


@pytest.mark.parametrize(("first", "touched"), [(2 * MANY, 0), (MANY, 1), (MANY + 1, 2)])
def test_only_the_batches_that_a_write_touches_are_merged_again(
    merged: list[int], first: int, touched: int
) -> None:
    so_far = [StateBatch(2 * number, 2 * number, AVAILABLE, 1) for number in range(MANY)]
    new = StateBatch(first, first, ACKNOWLEDGED, 1)
    together = combined(so_far, [new], 0)
    assert merged == [touched + 1]
    assert together == tuple(sorted([*(batch for batch in so_far if batch.first_offset != first), new]))


def some(chance: Random, most: int) -> list[StateBatch]:
    firsts = [chance.randrange(40) for _ in range(chance.randint(0, most))]
    return [
        StateBatch(
            first, first + chance.choice([0, 0, 1, 3, 9]), chance.choice([0, 2, 4]), chance.randint(1, 3)
        )
        for first in firsts
    ]


@pytest.mark.parametrize("seed", range(500))
def test_the_result_is_as_if_all_batches_were_merged(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chance = Random(seed)
    so_far, new, start = combined((), some(chance, 12), -1), some(chance, 4), chance.choice([-1, 5, 20])
    together = combined(so_far, new, start)
    monkeypatch.setattr(state_batches, "_is_merged", lambda batches: False)
    if so_far or new:
        all_of_them = [*state_batches._cut(so_far, start), *state_batches._cut(new, start)]
        assert together == tuple(state_batches._merged(all_of_them) if all_of_them else ())

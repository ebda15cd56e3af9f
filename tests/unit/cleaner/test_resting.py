"""How long a partition rests after its pass has failed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.cleaner.choice import LONGEST_RETRY_S, RETRY_S, Resting


class Lately:
    """A clock that the test moves, and the `Resting` that reads it."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.resting = Resting(cast(Any, SimpleNamespace(monotonic_s=lambda: self.now_s)))


class Somebody:
    is_gone = False


def somebody() -> Any:
    return Somebody()


@pytest.mark.limit("broker.cleaner.choice.LONGEST_RETRY_S")
def test_a_pass_that_is_lost_again_and_again_is_made_ever_more_rarely() -> None:
    it, partition = Lately(), somebody()
    rests = [it.resting.rest(partition, is_lost=True) for _ in range(2_000)]
    assert rests[:7] == [RETRY_S, 30.0, 60.0, 120.0, 240.0, 480.0, LONGEST_RETRY_S]
    assert set(rests[7:]) == {LONGEST_RETRY_S}
    it.now_s += LONGEST_RETRY_S - 1
    assert partition in it.resting
    it.now_s += 1
    assert partition not in it.resting


def test_each_loss_halves_the_keys_down_to_a_sixteenth_until_one_comes_through() -> None:
    it, partition = Lately(), somebody()
    found = []
    for _ in range(6):
        found.append(it.resting.keys_for(partition, 1_600))
        it.resting.rest(partition, is_lost=True)
        it.resting.forget_others()
    assert found == [1_600, 800, 400, 200, 100, 100]
    it.resting.came_through(partition)
    assert it.resting.keys_for(partition, 1_600) == 1_600
    assert it.resting.rest(partition, is_lost=True) == RETRY_S


def test_a_partition_that_the_disk_refuses_rests_as_long_each_time() -> None:
    it, partition = Lately(), somebody()
    assert {it.resting.rest(partition) for _ in range(9)} == {RETRY_S}
    assert it.resting.keys_for(partition, 1_600) == 1_600


def test_nothing_is_kept_of_a_partition_that_is_gone() -> None:
    it, partition = Lately(), somebody()
    it.resting.rest(partition, is_lost=True)
    partition.is_gone = True
    it.now_s += LONGEST_RETRY_S
    it.resting.forget_others()
    assert it.resting._until_s == it.resting._losses == {}


def test_a_pass_may_take_a_key_however_often_it_was_lost() -> None:
    it, partition = Lately(), somebody()
    for _ in range(9):
        it.resting.rest(partition, is_lost=True)
    assert it.resting.keys_for(partition, 5) == 1

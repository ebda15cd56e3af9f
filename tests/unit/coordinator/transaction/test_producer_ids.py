"""Everybody who waits for a producer id is told once there is one, however many wait."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.transaction.producer_ids import BLOCK_SIZE, ProducerIds
from protocol.errors import BrokenInvariantError, Error, KafkaError
from protocol.waiting import Later


class Blocks:
    """A producer id allocator that records blocks when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Callable[[int | KafkaError], None]] = []
        self._first = 0

    def allocate(self, size: int) -> Later[int | KafkaError]:
        first: Later[int | KafkaError] = Later()
        self.asked.append(first.reply)
        return first

    def record(self) -> None:
        first, self._first = self._first, self._first + BLOCK_SIZE
        self.asked.pop(0)(first)


def take(ids: ProducerIds, given: list[int | Error]) -> None:
    try:
        given.append(ids.next())
    except KafkaError as error:
        given.append(error.error)


def test_requests_after_a_blocks_last_id_wait_for_the_next_block() -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks.allocate)
    given: list[int | Error] = []
    for _ in range(BLOCK_SIZE + 1):
        ids.left().when_answered(lambda: take(ids, given))
    assert len(blocks.asked) == 1
    blocks.record()
    assert given == [*range(BLOCK_SIZE)]
    blocks.record()
    assert given == [*range(BLOCK_SIZE + 1)]
    assert blocks.asked == []


def test_all_waiters_are_answered_if_no_block_can_be_recorded() -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks.allocate)
    given: list[int | Error] = []
    for _ in range(3):
        ids.left().when_answered(lambda: take(ids, given))
    blocks.asked.pop(0)(KafkaError(Error.KAFKA_STORAGE_ERROR))
    assert given == [Error.COORDINATOR_LOAD_IN_PROGRESS] * 3


@pytest.mark.parametrize("error", [ValueError, BrokenInvariantError])
def test_a_failing_waiter_harms_none_of_the_others(error: type[Exception]) -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks.allocate)
    given: list[int | Error] = []

    def fails() -> None:
        raise error("it can't be told")

    ids.left().when_answered(fails)
    ids.left().when_answered(lambda: take(ids, given))
    if error is BrokenInvariantError:  # the caller stops the broker because of this error
        with pytest.raises(BrokenInvariantError):
            blocks.record()
    else:
        blocks.record()
    assert given == [0]

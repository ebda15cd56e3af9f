"""Records on their way to a dead letter queue: which records these are, what is written about them, and what a restart
finds."""

from __future__ import annotations

import pytest

from coordinator.persister import StateBatch
from coordinator.share_partition.ports import EXHAUSTED, REJECTED, DeadLetter
from protocol.errors import Error
from tests.unit.coordinator.share_partition.partition import (
    ACCEPT,
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    GAP,
    LOCK_MS,
    REJECT,
    RELEASE,
    Shared,
)

ARCHIVING = 3


def dying(*batches: tuple[int, int], limit: int = 2, **settings: object) -> Shared:
    return Shared(batches, dead_letter_topic="dlq.t", delivery_count_limit=limit, **settings)


def test_a_rejected_record_is_archiving_until_it_is_buried() -> None:
    shared = dying((0, 4))
    shared.fetch()
    assert shared.ack((0, 4, [REJECT, REJECT, ACCEPT, GAP, RELEASE])) == 0
    assert shared.dead == [DeadLetter(0, 1, 1, REJECTED)]
    assert shared.span == (0, 4, 2)  # a gap neither ends the range nor counts
    assert [shared.states()[offset][0] for offset in range(5)] == [
        ARCHIVING,
        ARCHIVING,
        ACKNOWLEDGED,
        ARCHIVED,
        AVAILABLE,
    ]
    assert shared.fetch() == [(4, 4, 2)]
    shared.bury()
    assert shared.span == (4, 4, 0)
    start, complete, batches = shared.persister.writes[-1]
    assert (start, complete, batches) == (0, 4, [StateBatch(0, 1, ARCHIVED, 1)])


def test_without_a_queue_it_is_archived_at_once() -> None:
    shared = Shared([(0, 4)])
    shared.fetch()
    shared.ack((0, 4, REJECT))
    assert shared.dead == []
    assert shared.persister.writes == [(0, 5, [StateBatch(0, 4, ARCHIVED, 1)])]


@pytest.mark.parametrize("how", ["released", "left", "lock ended"])
@pytest.mark.parametrize("apart", [False, True])
def test_the_last_delivery_given_back_is_buried(how: str, apart: bool) -> None:
    shared = dying((0, 1), limit=1)
    shared.fetch()
    if apart:
        shared.ack((1, 1, ACCEPT))
    last = 0 if apart else 1
    if how == "released":
        shared.ack((0, last, RELEASE))
    elif how == "left":
        shared.leave()
    else:
        shared.runtime.pass_ms(LOCK_MS)
    assert shared.dead == [DeadLetter(0, last, 1, EXHAUSTED)]
    assert shared.persister.writes[-1][2] == [StateBatch(0, last, ARCHIVING, 1)]
    shared.bury()
    assert shared.span == (2, 2, 0)
    assert shared.partition.burying == 0


def test_the_first_delivery_given_back_comes_again() -> None:
    shared = dying((0, 1))
    shared.fetch()
    shared.leave()
    assert shared.dead == []
    assert shared.fetch() == [(0, 1, 2)]


def test_records_being_archived_cannot_be_acknowledged() -> None:
    shared = dying((0, 4))
    shared.fetch()
    shared.ack((0, 0, REJECT))
    assert shared.ack((0, 0, ACCEPT)) == Error.INVALID_RECORD_STATE
    assert shared.dead == [DeadLetter(0, 0, 1, REJECTED)]


def test_nothing_is_buried_before_its_write_or_without_it() -> None:
    shared = dying((0, 4))
    shared.fetch()
    shared.persister.holds = True
    assert shared.ack((0, 4, REJECT)) is None
    assert shared.dead == []
    shared.persister.error = Error.COORDINATOR_NOT_AVAILABLE
    shared.persister.go_on()
    assert (shared.answers, shared.dead) == ([Error.COORDINATOR_NOT_AVAILABLE], [])


def test_a_lock_that_ends_while_a_write_fails_buries_the_last_delivery() -> None:
    shared = dying((0, 4), limit=1)
    shared.fetch()
    shared.persister.holds = True
    shared.ack((0, 4, ACCEPT))
    shared.runtime.pass_ms(LOCK_MS)
    shared.persister.error = Error.COORDINATOR_NOT_AVAILABLE
    shared.persister.go_on()
    shared.persister.error, shared.persister.holds = None, False
    assert shared.dead == [DeadLetter(0, 4, 1, EXHAUSTED)]
    shared.bury()
    assert shared.span == (5, 5, 0)


@pytest.mark.parametrize("error", [Error.FENCED_LEADER_EPOCH, Error.FENCED_STATE_EPOCH])
def test_a_leader_that_is_fenced_buries_nothing_when_a_lock_ends(error: Error) -> None:
    """Another leader may still deliver the record."""
    shared = dying((0, 0), limit=1)
    shared.fetch()
    shared.persister.error = error
    shared.runtime.pass_ms(LOCK_MS)
    assert shared.dead == []


@pytest.mark.parametrize("is_buried", [False, True])
def test_after_a_kill_records_being_archived_are_buried_again(is_buried: bool) -> None:
    shared = dying((0, 4))
    shared.fetch()
    shared.ack((0, 4, [REJECT, REJECT, ACCEPT, RELEASE, RELEASE]))
    if is_buried:  # the records are buried, but that isn't written
        shared.persister.holds = True
        shared.bury()
        shared.persister.held.clear()
        shared.persister.holds = False
    again = shared.restarted()
    assert again.dead == [DeadLetter(0, 1, 1, REJECTED)]
    assert shared.span[0] == again.span[0] == 0
    again.bury()
    assert again.span[0] == 3
    assert again.restarted().dead == []


def test_after_a_kill_the_delivery_count_tells_the_reason() -> None:
    shared = dying((0, 1), limit=1)
    shared.fetch()
    shared.ack((0, 1, REJECT))
    assert shared.dead == [DeadLetter(0, 1, 1, REJECTED)]
    assert shared.restarted().dead == [DeadLetter(0, 1, 1, EXHAUSTED)]  # Kafka does so, too


def test_a_dropped_share_partition_writes_no_more_records() -> None:
    shared = dying((0, 4))
    shared.fetch()
    shared.ack((0, 4, REJECT))
    shared.partition.fence()
    shared.bury()
    assert len(shared.persister.writes) == 1


def test_the_log_may_begin_after_records_being_archived() -> None:
    shared = dying((0, 4), (5, 9))
    shared.fetch(batch_size=5)
    shared.ack((0, 6, REJECT))
    shared.partition.begin_at(6)
    shared.bury()
    assert shared.span == (7, 9, 0)

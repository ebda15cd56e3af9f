"""Acknowledgements, locks and ends of sessions: what is written, and what happens while the write is pending."""

from __future__ import annotations

import pytest

from coordinator.persister import StateBatch
from coordinator.share_partition import share_partition
from coordinator.share_partition.acknowledging import Acknowledgement
from coordinator.share_partition.share_partition import PERSISTER_ERRORS
from protocol.errors import Error
from tests.unit.coordinator.share_partition.partition import (
    ACCEPT,
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    GAP,
    LOCK_MS,
    REJECT,
    RELEASE,
    RENEW,
    Shared,
    in_batches,
)

INVALID_STATE = Error.INVALID_RECORD_STATE
INVALID_REQUEST = Error.INVALID_REQUEST


def test_a_write_has_the_start_before_it_and_the_count_with_it() -> None:
    shared = Shared(in_batches(2, 5))
    shared.fetch(batch_size=5)
    assert shared.ack((0, 4, ACCEPT)) == 0
    assert shared.ack((7, 8, REJECT)) == 0
    assert shared.ack((5, 6, ACCEPT)) == 0
    assert shared.persister.writes == [
        (0, 5, [StateBatch(0, 4, ACKNOWLEDGED, 1)]),
        (5, 2, [StateBatch(7, 8, ARCHIVED, 1)]),
        (5, 4, [StateBatch(5, 6, ACKNOWLEDGED, 1)]),
    ]
    assert shared.span == (9, 9, 0)


def test_types_of_each_offset() -> None:
    shared = Shared([(0, 4)])
    shared.fetch()
    assert shared.ack((0, 4, [ACCEPT, RELEASE, REJECT, GAP, RENEW])) == 0
    assert [shared.states()[offset][0] for offset in range(5)] == [
        ACKNOWLEDGED,
        AVAILABLE,
        ARCHIVED,
        ARCHIVED,
        ACQUIRED,
    ]
    assert shared.span == (1, 4, 2)


def test_all_records_below_the_start_are_acknowledged() -> None:
    shared = Shared([(0, 4), (5, 9)])
    shared.fetch(read=1)
    assert shared.ack((0, 4, ACCEPT)) == 0
    shared.fetch()
    assert shared.ack((0, 4, ACCEPT)) == 0
    assert shared.ack((0, 4, RELEASE)) == 0
    assert len(shared.persister.writes) == 1


def test_records_that_are_not_in_flight() -> None:
    shared = Shared([(10, 14), (15, 19)], reset=10)
    assert shared.ack((10, 14, ACCEPT)) == INVALID_STATE
    shared.fetch(read=1)
    assert shared.ack((0, 9, ACCEPT)) == 0
    assert shared.ack((15, 19, ACCEPT)) == INVALID_REQUEST
    assert shared.ack((10, 15, ACCEPT)) == INVALID_REQUEST
    assert shared.ack((8, 14, ACCEPT)) == 0
    assert shared.ack((15, 15, ACCEPT)) == INVALID_STATE


def test_another_member_owns_it() -> None:
    shared = Shared([(0, 4)])
    shared.fetch()
    assert shared.ack((0, 4, ACCEPT), member="n") == INVALID_STATE
    assert shared.ack((1, 1, ACCEPT), member="n") == INVALID_STATE
    assert shared.ack((1, 1, RELEASE)) == 0
    assert shared.fetch("n") == [(1, 1, 2)]
    assert shared.ack((1, 1, ACCEPT)) == INVALID_STATE
    assert shared.ack((0, 4, ACCEPT)) == INVALID_STATE


def test_the_first_error_takes_all_back_but_renewed_locks() -> None:
    shared = Shared(in_batches(3, 5))
    shared.fetch(batch_size=5)
    assert shared.ack((10, 12, ACCEPT)) == 0
    shared.runtime.pass_ms(LOCK_MS - 1)
    assert shared.ack((0, 4, RENEW), (5, 9, ACCEPT), (12, 12, ACCEPT)) == INVALID_STATE
    assert shared.states()[5] == (ACQUIRED, 1, "m")
    assert shared.span == (0, 14, 3)
    shared.runtime.pass_ms(1)
    assert shared.states()[5] == (AVAILABLE, 1, "")
    assert shared.states()[0] == (ACQUIRED, 1, "m")


def test_renewal_begins_a_whole_lock_and_writes_nothing() -> None:
    shared = Shared([(0, 4)])
    shared.fetch()
    shared.runtime.pass_ms(LOCK_MS - 1)
    assert shared.ack((0, 4, RENEW)) == 0
    shared.runtime.pass_ms(LOCK_MS - 1)
    assert shared.states()[0] == (ACQUIRED, 1, "m")
    assert shared.persister.writes == []
    shared.runtime.pass_ms(1)
    assert shared.states()[0] == (AVAILABLE, 1, "")


def test_a_group_may_have_no_renewal() -> None:
    shared = Shared([(0, 4)], renew_acknowledge_enable=False)
    shared.fetch()
    assert shared.ack((0, 4, RENEW)) == INVALID_STATE
    assert shared.ack((1, 1, RENEW)) == INVALID_STATE


# --- while a write is pending -------------------------------------------------------------------------------


def test_records_being_written_can_be_neither_acknowledged_nor_acquired() -> None:
    shared = Shared([(0, 4), (5, 9)])
    shared.fetch(batch_size=5)
    shared.persister.holds = True
    assert shared.ack((0, 1, RELEASE)) is None
    assert shared.ack((5, 9, ACCEPT)) is None
    assert shared.ack((0, 0, ACCEPT)) == INVALID_STATE
    assert shared.ack((5, 9, ACCEPT)) == INVALID_STATE
    assert shared.fetch("n") == []
    shared.persister.go_on()
    assert shared.fetch("n") == [(0, 1, 2)]


def test_the_start_moves_once_it_is_written() -> None:
    shared = Shared([(0, 4), (5, 9)])
    shared.fetch(batch_size=5)
    shared.persister.holds = True
    assert shared.ack((0, 4, ACCEPT)) is None
    assert shared.span == (0, 9, 5)
    shared.persister.go_on()
    assert shared.answers == [0]
    assert shared.span == (5, 9, 0)


@pytest.mark.parametrize(("coordinator", "told"), [*PERSISTER_ERRORS.items(), (Error.INVALID_REQUEST, -1)])
def test_a_failed_write_takes_it_back(coordinator: Error, told: int) -> None:
    shared = Shared([(0, 4)])
    shared.fetch()
    shared.persister.error = coordinator
    assert shared.ack((0, 3, ACCEPT)) == told
    assert {shared.states()[offset] for offset in range(5)} == {(ACQUIRED, 1, "m")}
    assert shared.span == (0, 4, 0)


@pytest.mark.parametrize(("limit", "becomes"), [(5, AVAILABLE), (2, ARCHIVED)])
def test_a_lock_that_ends_while_its_write_fails_gives_the_record_back(limit: int, becomes: int) -> None:
    shared = Shared([(0, 4)], delivery_count_limit=limit)
    for _ in range(2):
        shared.leave()
        shared.fetch()
    shared.persister.holds = True
    assert shared.ack((0, 4, ACCEPT)) is None
    shared.runtime.pass_ms(LOCK_MS)
    assert shared.states()[0] == (ACKNOWLEDGED, 2, "")
    shared.persister.error = Error.NOT_COORDINATOR
    shared.persister.go_on()
    assert shared.answers == [Error.COORDINATOR_NOT_AVAILABLE]
    assert {shared.states()[offset] for offset in range(5)} == {(becomes, 2, "")}
    assert shared.span[2] == (5 if becomes == ARCHIVED else 0)


def test_a_lock_that_ends_while_its_write_succeeds_changes_nothing() -> None:
    shared = Shared([(0, 4), (5, 9)])
    shared.fetch(batch_size=5)
    shared.persister.holds = True
    assert shared.ack((5, 9, ACCEPT)) is None
    shared.runtime.pass_ms(LOCK_MS)
    shared.persister.go_on()
    assert shared.states()[5] == (ACKNOWLEDGED, 1, "")
    assert shared.partition.lock_count == 0


@pytest.mark.parametrize("begin", [2, 5])
def test_a_pending_release_below_a_later_log_start_stays_archived(begin: int) -> None:
    shared = Shared([(0, 4), (5, 9)])
    shared.fetch(batch_size=5)
    shared.persister.holds = True
    assert shared.ack((0, 4, RELEASE)) is None
    shared.partition.begin_at(begin)
    shared.persister.error = Error.NOT_COORDINATOR
    shared.persister.go_on()
    assert {shared.states()[offset][0] for offset in range(begin)} == {ARCHIVED}


def test_records_given_back_below_the_log_start_are_archived_though_the_write_fails() -> None:
    """Kafka makes it available, and then reads an offset that the log doesn't have, again and again."""
    shared = Shared([(0, 4), (5, 9)])
    shared.fetch(batch_size=5)
    shared.persister.holds = True
    shared.partition.begin_at(5)
    assert shared.leave() is None
    shared.runtime.pass_ms(LOCK_MS)
    shared.persister.error = Error.NOT_COORDINATOR
    shared.persister.go_on()
    assert shared.states()[0] == (ARCHIVED, 1, "")
    assert shared.next == 5


def test_a_failed_write_gives_a_batch_back_from_the_log_start_on() -> None:
    """Otherwise the records before the log start, which are gone, would be fetched for ever."""
    shared = Shared([(0, 4), (5, 9)])
    shared.fetch(batch_size=5)
    shared.persister.holds = True
    assert shared.ack((0, 4, ACCEPT)) is None
    shared.partition.begin_at(2)
    shared.runtime.pass_ms(LOCK_MS)
    shared.persister.error = Error.NOT_COORDINATOR
    shared.persister.go_on()
    assert [shared.states()[offset][0] for offset in range(5)] == [ARCHIVED] * 2 + [AVAILABLE] * 3
    assert shared.next == 2
    assert shared.span == (2, 9, 0)


# --- locks and sessions -------------------------------------------------------------------------------------


def test_a_lock_ends_for_a_whole_batch_with_one_write() -> None:
    shared = Shared([(0, 4)])
    shared.fetch()
    shared.runtime.pass_ms(LOCK_MS - 1)
    assert shared.states()[0] == (ACQUIRED, 1, "m")
    shared.runtime.pass_ms(1)
    assert shared.states()[0] == (AVAILABLE, 1, "")
    assert shared.persister.writes == [(0, 0, [StateBatch(0, 4, AVAILABLE, 1)])]
    assert shared.changes
    assert shared.fetch("n") == [(0, 4, 2)]


def test_a_lock_ends_with_one_write_for_each_separate_offset() -> None:
    shared = Shared([(0, 3)])
    shared.fetch()
    shared.runtime.pass_ms(LOCK_MS - 1)
    assert shared.ack((1, 1, ACCEPT)) == 0
    shared.runtime.pass_ms(1)
    assert [batches for _, _, batches in shared.persister.writes[1:]] == [
        [StateBatch(offset, offset, AVAILABLE, 1)] for offset in (0, 2, 3)
    ]


@pytest.mark.limit("coordinator.share_partition.share_partition.MOST_EXPIRED_AT_ONCE")
def test_many_offsets_of_one_lock_are_given_back_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_partition, "MOST_EXPIRED_AT_ONCE", 3)
    shared = Shared([(0, 7)])
    shared.fetch()
    assert shared.ack((1, 1, ACCEPT)) == 0
    shared.changes = 0
    shared.runtime.elapsed_ms += LOCK_MS
    for written in (3, 6, 7, 7):
        shared.runtime.timers.fire_due()
        assert len(shared.persister.writes) == 1 + written
        assert shared.changes == (written == 7)
    assert shared.fetch("n") == [(0, 0, 2), (2, 7, 2)]


def test_at_the_limit_of_deliveries_an_ended_lock_archives() -> None:
    shared = Shared([(0, 0), (1, 1)], delivery_count_limit=2)
    for _ in range(2):
        shared.fetch(read=1)
        shared.runtime.pass_ms(LOCK_MS)
    assert shared.span == (1, 1, 0)
    assert shared.fetch("n") == [(1, 1, 1)]


def test_the_lock_of_a_member_does_not_end_that_of_the_next_one() -> None:
    shared = Shared([(0, 4)])
    shared.fetch("a")
    shared.runtime.pass_ms(LOCK_MS // 2)
    assert shared.ack((0, 2, RELEASE), member="a") == 0
    assert shared.fetch("b") == [(0, 2, 2)]
    shared.runtime.pass_ms(LOCK_MS // 2)
    assert shared.states()[0] == (ACQUIRED, 2, "b")
    assert shared.states()[3] == (AVAILABLE, 1, "")


def test_an_ended_session_gives_all_back_with_one_write() -> None:
    shared = Shared(in_batches(3, 5))
    shared.fetch("a", most=5)
    shared.fetch("b", most=5)
    shared.fetch("a", most=5)
    assert shared.ack((1, 1, ACCEPT), member="a") == 0
    assert shared.leave("a") == 0
    released = shared.persister.writes[-1][2]
    assert released == [
        StateBatch(0, 0, AVAILABLE, 1),
        StateBatch(2, 4, AVAILABLE, 1),
        StateBatch(10, 14, AVAILABLE, 1),
    ]
    assert shared.states()[5] == (ACQUIRED, 1, "b")
    assert shared.leave("nobody") == 0


def test_no_timer_is_left_where_nothing_is_acquired() -> None:
    shared = Shared(in_batches(3, 5))
    shared.fetch("a", most=5)
    shared.fetch("b")
    assert shared.ack((1, 1, ACCEPT), member="a") == 0
    assert shared.ack((5, 5, RENEW), member="b") == 0
    shared.leave("a")
    shared.leave("b")
    assert (shared.partition.lock_count, len(shared.runtime.timers)) == (0, 0)


def test_a_fenced_share_partition_ends_no_lock_and_hands_out_nothing() -> None:
    shared = Shared(in_batches(2, 5))
    shared.fetch(most=5)
    shared.partition.fence()
    shared.runtime.pass_ms(LOCK_MS)
    assert (shared.persister.writes, shared.fetch(), len(shared.runtime.timers)) == ([], [], 0)


def test_a_state_that_was_altered_fences_the_next_write() -> None:
    shared = Shared(in_batches(2, 5))
    shared.fetch(batch_size=5)
    shared.persister.state_epoch = 2
    assert shared.ack((0, 4, ACCEPT)) == Error.NOT_LEADER_OR_FOLLOWER
    again = shared.restarted()
    assert again.fetch() == [(0, 9, 1)]


def test_a_state_that_comes_after_the_fence_is_not_begun_with() -> None:
    shared = Shared()
    shared.persister.holds = True
    again = shared.restarted()
    again.partition.fence()
    shared.persister.go_on()
    assert again.initialized == [Error.LEADER_NOT_AVAILABLE]
    assert not again.partition.is_active


def test_an_error_during_acknowledgements_leaves_nothing_pending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = Shared(in_batches(2, 5))
    shared.fetch(batch_size=5)
    with monkeypatch.context() as patch:
        patch.setattr(Acknowledgement, "_acknowledge_each", _out_of_memory)
        with pytest.raises(MemoryError):
            shared.ack((0, 4, ACCEPT), (5, 7, ACCEPT))
    assert {state[0] for state in shared.states().values()} == {ACQUIRED}
    assert shared.ack((0, 9, ACCEPT)) == 0
    assert shared.span == (10, 10, 0)


def _out_of_memory(*asked: object) -> None:
    raise MemoryError

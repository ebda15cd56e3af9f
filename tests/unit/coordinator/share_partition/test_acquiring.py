"""Which of the records that were read a member acquires. The numbers come from trials with Apache Kafka."""

from __future__ import annotations

import pytest

from coordinator.share_partition import share_partition
from coordinator.share_partition.ports import AbortedFrom, FetchedBatch
from coordinator.share_partition.share_partition import SharePartition
from protocol.errors import Error
from tests.support.share_persister import MemoryPersister
from tests.unit.coordinator.share_partition.partition import (
    ACCEPT,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    LOCK_MS,
    REJECT,
    RELEASE,
    Shared,
    in_batches,
)


def test_whole_record_batches_are_acquired_up_to_the_one_with_the_limit() -> None:
    shared = Shared(in_batches(4, 10))
    assert shared.fetch(most=15) == [(0, 19, 1)]
    assert shared.fetch(most=1) == [(20, 29, 1)]
    assert shared.next == 30


def test_new_records_are_cut_at_borders_of_record_batches() -> None:
    shared = Shared(in_batches(5, 20))
    assert shared.fetch(batch_size=30) == [(0, 39, 1), (40, 79, 1), (80, 99, 1)]


def test_mode_record_limit_keeps_to_the_limit_and_leaves_the_rest_available() -> None:
    shared = Shared(in_batches(2, 10))
    assert shared.fetch("a", most=4, limits=True) == [(0, 3, 1)]
    assert shared.states()[4] == (AVAILABLE, 0, "")
    assert (shared.next, shared.span) == (4, (0, 9, 0))
    assert shared.fetch("b", most=3, limits=True) == [(4, 6, 1)]
    assert shared.fetch("c") == [(7, 9, 1), (10, 19, 1)]


def test_the_limit_of_records_in_flight_is_soft_and_then_holds() -> None:
    shared = Shared(in_batches(6, 30), partition_max_record_locks=100)
    assert shared.fetch() == [(0, 119, 1)]
    assert shared.fetch() == []
    assert shared.ack((50, 50, RELEASE)) == 0
    assert shared.fetch() == [(50, 50, 2)]
    assert shared.fetch() == []


def test_records_acknowledged_after_an_open_one_count_as_in_flight() -> None:
    shared = Shared(in_batches(4, 50), partition_max_record_locks=100)
    assert shared.fetch() == [(0, 99, 1)]
    assert shared.ack((1, 99, ACCEPT)) == 0
    assert shared.fetch() == []
    assert shared.ack((0, 0, ACCEPT)) == 0
    assert shared.fetch(most=50) == [(100, 149, 1)]


def test_delivery_is_throttled_from_half_of_the_limit_on() -> None:
    """Of 16 records with limit 5, deliveries have 16, 16, 16 and 8 records, and then one at a time at count 5."""
    shared = Shared([(0, 15)])
    found = []
    for _ in range(6):
        found.append(shared.fetch())
        shared.leave()
    assert found == [[(0, 15, 1)], [(0, 15, 2)], [(0, 15, 3)], [(0, 7, 4)], [(0, 0, 5)], [(1, 1, 5)]]


def test_throttled_records_come_alone() -> None:
    shared = Shared(in_batches(2, 8))
    for _ in range(3):
        shared.fetch(read=1)
        shared.leave()
    assert shared.fetch() == [(0, 3, 4)]
    assert shared.fetch() == [(4, 7, 4)]
    assert shared.fetch() == [(8, 15, 1)]


def test_a_record_delivered_for_the_last_time_waits_for_its_own_fetch() -> None:
    shared = Shared([(0, 3)], delivery_count_limit=3)
    shared.fetch()
    assert shared.ack((1, 1, RELEASE)) == 0
    shared.fetch()
    assert shared.ack((0, 3, RELEASE)) == 0
    assert shared.states()[1] == (AVAILABLE, 2, "")
    assert shared.fetch() == [(0, 0, 2)]
    assert shared.fetch() == [(1, 1, 3)]
    assert shared.fetch() == [(2, 3, 2)]


@pytest.mark.limit("coordinator.share_partition.acquiring.LEAST_THROTTLED_COUNT")
def test_with_a_limit_of_two_no_record_is_delivered_separately() -> None:
    shared = Shared([(0, 3)], delivery_count_limit=2)
    shared.fetch()
    shared.leave()
    assert shared.fetch() == [(0, 3, 2)]
    shared.leave()
    assert shared.span == (4, 4, 0)


def test_released_records_come_before_new_ones_with_their_own_counts() -> None:
    shared = Shared(in_batches(3, 10))
    shared.fetch(most=20)
    assert shared.ack((3, 4, RELEASE), (15, 15, RELEASE)) == 0
    assert shared.next == 3
    assert shared.fetch("n") == [(3, 4, 2), (15, 15, 2), (20, 29, 1)]


def test_records_that_vanished_from_the_log_are_archived() -> None:
    shared = Shared(in_batches(3, 10))
    shared.fetch(most=20, batch_size=10)
    shared.leave()
    del shared.log[0]
    assert shared.fetch("n") == [(10, 19, 2), (20, 29, 1)]
    assert {shared.states()[offset][0] for offset in range(10)} == {ARCHIVED}
    assert shared.span == (0, 29, 10)


def test_a_hole_in_the_log_lies_inside_the_acquired_range() -> None:
    shared = Shared([(0, 4), (5_000, 5_004)])
    assert shared.fetch(most=100) == [(0, 99, 1)]
    assert shared.fetch(most=6000) == [(5_000, 5_004, 1)]


def test_record_batches_after_the_first_that_is_too_far_change_nothing() -> None:
    """So a fetch needn't know everything that was read."""
    for most in (1, 7, 12, 40):
        whole, some = Shared(in_batches(10, 5)), Shared(in_batches(10, 5))
        for shared in (whole, some):
            shared.fetch(most=10)
            shared.ack((2, 3, RELEASE))
        bound = some.partition.most_reached(0, most)
        far = next((place for place, each in enumerate(some.log) if each.base_offset > bound), 10)
        some.log = some.log[: far + 1]
        assert whole.fetch("n", most) == some.fetch("n", most)


def test_after_records_were_deleted_a_batch_in_flight_begins_where_it_did() -> None:
    shared = Shared(in_batches(3, 10))
    shared.fetch(most=30, batch_size=100)
    shared.leave()
    shared.partition.begin_at(15)
    assert (shared.span, shared.next) == ((15, 29, 0), 15)
    del shared.log[0]
    assert shared.fetch() == [(15, 29, 2)]


def test_acquired_records_below_the_log_start_are_archived_with_their_lock() -> None:
    shared = Shared(in_batches(2, 10))
    shared.fetch(most=20, batch_size=100)
    shared.partition.begin_at(5)
    assert shared.states()[0] == (ACQUIRED, 1, "m")
    assert shared.ack((0, 4, ACCEPT)) == 0  # this acknowledgement is ignored
    shared.runtime.pass_ms(LOCK_MS)
    assert shared.states()[4] == (ARCHIVED, 1, "")
    assert shared.states()[5] == (AVAILABLE, 1, "")
    assert shared.span == (5, 19, 0)


def test_nothing_before_the_start_is_acquired_of_a_record_batch_that_begins_there() -> None:
    """Records before the start may still be in flight: acquired, or with a pending write."""
    shared = Shared([(0, 2), (5, 9)])
    assert shared.fetch(read=1) == [(0, 2, 1)]
    shared.partition.begin_at(7)
    assert [batch.first_offset for batch in shared.partition.records] == [0]
    assert shared.fetch("n") == [(7, 9, 1)]
    assert shared.ack((7, 9, ACCEPT), member="n") == 0
    shared.runtime.pass_ms(LOCK_MS)  # the lock on records before the start ends
    assert shared.span == (10, 10, 0)


def test_a_log_start_after_all_records_in_flight_resets_the_share_partition() -> None:
    shared = Shared(in_batches(2, 10))
    shared.fetch(most=10)
    shared.partition.begin_at(15)
    assert (shared.span, shared.next) == ((15, 15, 0), 15)
    shared.runtime.pass_ms(LOCK_MS)
    assert (shared.span, len(shared.partition.records)) == ((15, 15, 0), 0)
    shared.log = [FetchedBatch(15, 19)]
    assert shared.fetch() == [(15, 19, 1)]


def test_terminal_records_below_the_log_start_no_longer_count() -> None:
    shared = Shared(in_batches(3, 10))
    shared.fetch(batch_size=10)
    assert shared.ack((5, 9, ACCEPT), (10, 19, REJECT), (25, 25, ACCEPT)) == 0
    assert shared.span == (0, 29, 16)
    shared.partition.begin_at(12)
    assert shared.span == (12, 29, 9)


def test_records_of_aborted_transactions_are_cut_out() -> None:
    """The log has data 0-1, committed 2-4 with marker 5, aborted 6-8 with marker 9, and data 10-11."""
    shared = Shared()
    shared.log = [
        FetchedBatch(0, 1),
        FetchedBatch(2, 4, 1, is_transactional=True),
        FetchedBatch(5, 5, 1, is_transactional=True),
        FetchedBatch(6, 8, 1, is_transactional=True),
        FetchedBatch(9, 9, 1, is_transactional=True, is_abort_marker=True),
        FetchedBatch(10, 11),
    ]
    assert shared.fetch(aborted=[AbortedFrom(1, 6)]) == [(0, 5, 1), (9, 11, 1)]
    assert shared.states()[7] == (ARCHIVED, 1, "")
    assert shared.span == (0, 11, 3)
    assert shared.persister.writes == []
    shared.runtime.pass_ms(LOCK_MS)
    assert shared.states()[7] == (ARCHIVED, 1, "")


def test_two_aborted_transactions_in_one_range() -> None:
    shared = Shared()
    shared.log = [
        FetchedBatch(0, 3, 1, is_transactional=True),
        FetchedBatch(4, 5, 2, is_transactional=True),
        FetchedBatch(6, 6, 1, is_transactional=True, is_abort_marker=True),
        FetchedBatch(7, 8, 1, is_transactional=True),
        FetchedBatch(9, 9, 2, is_transactional=True, is_abort_marker=True),
    ]
    assert shared.fetch(aborted=[AbortedFrom(2, 4), AbortedFrom(1, 0)]) == [(6, 9, 1)]


def test_a_limit_of_aborted_records_in_flight_holds_nobody_up() -> None:
    """Nothing is written about aborted records, so no write moves the start."""
    shared = Shared(partition_max_record_locks=100)
    shared.log = [
        *(FetchedBatch(first, last, 1, is_transactional=True) for first, last in in_batches(20, 10)),
        FetchedBatch(200, 200, 1, is_transactional=True, is_abort_marker=True),
        FetchedBatch(201, 204),
    ]
    found = []
    for _ in range(5):
        found += shared.fetch(most=50, read=10, aborted=[AbortedFrom(1, 0)])
    assert found == [(200, 204, 1)]
    assert shared.ack((200, 204, ACCEPT)) == 0
    assert shared.span == (205, 205, 0)


def test_one_fetch_at_a_time_reads() -> None:
    shared = Shared([(0, 9)])
    partition: SharePartition = shared.partition
    first, second = object(), object()
    assert partition.begin_fetch(first)
    assert not partition.begin_fetch(second)
    partition.end_fetch(second)
    assert not partition.begin_fetch(second)
    partition.end_fetch(first)
    assert partition.begin_fetch(second)


# --- durable state ------------------------------------------------------------------------------------------


def test_a_share_partition_that_was_never_written_to_begins_where_the_settings_say() -> None:
    shared = Shared([(0, 9), (10, 19)], reset=10)
    assert (shared.span, shared.initialized) == ((10, 10, 0), [None])
    assert shared.fetch() == [(10, 19, 1)]


def test_the_beginning_is_unknown() -> None:
    shared = Shared([(0, 9)], reset=Error.OFFSET_NOT_AVAILABLE)
    assert shared.initialized == [Error.OFFSET_NOT_AVAILABLE]
    assert shared.fetch() == []


@pytest.mark.parametrize("state", [5, -1, 77])
def test_nonsense_in_the_durable_state(state: int) -> None:
    persister = MemoryPersister(0)
    persister.offsets = {3: (1, state)}
    shared = Shared([(0, 4)], persister=persister)
    assert shared.initialized == [Error.UNKNOWN_SERVER_ERROR]


@pytest.mark.limit("coordinator.share_partition.share_partition.MOST_GIVEN_BACK")
def test_durable_state_that_no_memory_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_partition, "MOST_GIVEN_BACK", 3)
    for last, error in ((2, None), (3, Error.UNKNOWN_SERVER_ERROR)):
        persister = MemoryPersister(0)
        persister.offsets = dict.fromkeys(range(last + 1), (1, AVAILABLE))
        shared = Shared([(0, 4)], persister=persister)
        assert shared.initialized == [error]


def test_after_a_kill_acquired_but_unwritten_records_are_new() -> None:
    """Of 20 acquired records, 5-6 are accepted, 8 is released and 14 is rejected."""
    shared = Shared(in_batches(4, 5))
    shared.fetch(batch_size=5)
    assert shared.ack((5, 6, ACCEPT), (8, 8, RELEASE), (14, 14, REJECT)) == 0
    again = shared.restarted()
    assert (again.span, again.next) == ((0, 14, 3), 0)
    assert again.fetch() == [(0, 4, 1), (7, 7, 1), (8, 8, 2), (9, 13, 1), (15, 19, 1)]
    assert again.states()[5] == (2, 1, "")


def test_holes_are_acquired_by_several_fetches() -> None:
    shared = Shared(in_batches(4, 5))
    shared.fetch(batch_size=5)
    assert shared.ack((5, 9, ACCEPT), (15, 19, ACCEPT)) == 0
    again = shared.restarted()
    assert again.fetch("a", most=1) == [(0, 4, 1)]
    assert again.next == 10
    assert again.fetch("b") == [(10, 14, 1)]
    assert again.next == 20
    assert again.ack((0, 4, ACCEPT), member="a") == 0
    assert again.span == (10, 19, 5)
    assert again.ack((10, 14, ACCEPT), member="b") == 0
    assert again.span == (
        15,
        19,
        5,
    )  # Kafka's start stays before the last batch until something new is acquired
    again.log += [FetchedBatch(20, 24)]
    assert again.fetch("b") == [(20, 24, 1)]
    assert again.ack((20, 20, ACCEPT), member="b") == 0
    assert again.span == (21, 24, 0)


@pytest.mark.parametrize(("log_start", "following"), [(7, 7), (10, 15), (12, 15), (17, 17)])
def test_holes_below_the_log_start_are_not_read_for(log_start: int, following: int) -> None:
    shared = Shared(in_batches(5, 5))
    shared.fetch(batch_size=5)
    assert shared.ack((10, 14, ACCEPT), (0, 4, ACCEPT), (20, 24, RELEASE)) == 0
    again = shared.restarted()
    assert (again.span, again.next) == ((5, 24, 5), 5)
    again.partition.begin_at(log_start)
    assert (again.span[0], again.next) == (log_start, following)
    acquired = again.fetch()
    assert acquired[-2:] == [(max(15, log_start), 19, 1), (20, 24, 2)]
    assert again.ack(*((first, last, ACCEPT) for first, last, _ in acquired)) == 0
    again.runtime.pass_ms(LOCK_MS)  # the lock on records from before the start ends
    assert again.span == (25, 25, 0)


def test_the_start_stops_at_a_hole() -> None:
    shared = Shared(in_batches(4, 5))
    shared.fetch(batch_size=5)
    assert shared.ack((0, 4, RELEASE), (10, 14, ACCEPT)) == 0
    again = shared.restarted()
    assert again.span == (0, 14, 5)
    assert again.fetch(read=1) == [(0, 4, 2)]
    assert again.ack((0, 4, ACCEPT)) == 0
    assert again.span == (5, 14, 5)
    assert again.next == 5

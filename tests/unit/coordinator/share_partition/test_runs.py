"""Offsets of a batch that are tracked one by one. Consecutive offsets with equal states are kept as runs, since a batch
may have millions."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from coordinator.persister import StateBatch
from coordinator.share_partition.in_flight_records import InFlightBatch, InFlightState
from coordinator.share_partition.share_partition import MOST_EXPIRED_AT_ONCE
from coordinator.share_partition.states import RecordState
from protocol.errors import Error
from protocol.messages.share_fetch import AcknowledgementBatch
from protocol.waiting import begun
from tests.support.share_persister import MemoryPersister
from tests.unit.coordinator.share_partition.partition import (
    ACCEPT,
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    LOCK_MS,
    REJECT,
    RELEASE,
    RENEW,
    Shared,
    in_batches,
)

LAST = 10**12
"""The last offset of one batch. Code that looked at each offset would never finish."""


class Forgetful(MemoryPersister):
    """A persister that claims to have written, and doesn't look at each offset."""

    def _keep(self, start_offset: int, batches: Sequence[StateBatch]) -> None:
        pass


def runs(shared: Shared) -> list[tuple[int, int, int]]:
    """Return the first offset, last offset and state of each run of the first batch."""
    batch = next(iter(shared.partition.records))
    return [(first, last, state.state) for first, last, state in batch.runs(0, LAST)]


def huge(last: int = LAST) -> Shared:
    shared = Shared([(0, last)], persister=Forgetful())
    assert shared.fetch("m") == [(0, last, 1)]
    return shared


def test_one_offset_of_a_huge_batch_is_acknowledged_and_the_rest_is_given_back_with_the_session() -> None:
    shared = huge()
    assert shared.ack((5, 5, ACCEPT)) == 0
    assert runs(shared) == [(0, 4, ACQUIRED), (5, 5, ACKNOWLEDGED), (6, LAST, ACQUIRED)]
    assert shared.leave() == 0
    assert shared.persister.writes[-1][2] == [
        StateBatch(0, 4, AVAILABLE, 1),
        StateBatch(6, LAST, AVAILABLE, 1),
    ]
    assert shared.span == (0, LAST, 1)
    assert shared.fetch("n") == [(0, 4, 2), (6, LAST, 2)]
    assert shared.ack((0, 4, ACCEPT), member="n") == 0
    assert shared.span == (6, LAST, 0)
    assert shared.ack((0, LAST, ACCEPT), member="n") == 0
    assert shared.span == (LAST + 1, LAST + 1, 0)


def test_a_lock_of_a_huge_batch_ends_some_offsets_at_a_time() -> None:
    shared = huge()
    assert shared.ack((5, 5, REJECT)) == 0
    shared.runtime.elapsed_ms += LOCK_MS
    for turn in (1, 2):
        shared.runtime.timers.fire_due()
        given_back = turn * MOST_EXPIRED_AT_ONCE
        # there is one write for each offset, as in Kafka
        assert len(shared.persister.writes) == 1 + given_back
        assert runs(shared)[:2] == [(0, 4, AVAILABLE), (5, 5, ARCHIVED)]
        assert runs(shared)[-1] == (given_back + 1, LAST, ACQUIRED)
        assert len(runs(shared)) == 3 + turn
    assert shared.partition.lock_count == 1


def test_types_in_a_row_that_are_the_same_are_one_change() -> None:
    shared = huge()
    types = [ACCEPT] * 3 + [RELEASE] * 2 + [REJECT] + [ACCEPT] * 4
    assert shared.ack((10, 19, types)) == 0
    assert shared.persister.writes[-1][2] == [
        StateBatch(10, 12, ACKNOWLEDGED, 1),
        StateBatch(13, 14, AVAILABLE, 1),
        StateBatch(15, 15, ARCHIVED, 1),
        StateBatch(16, 19, ACKNOWLEDGED, 1),
    ]


def test_a_run_gives_as_many_records_as_asked() -> None:
    shared = huge()
    assert shared.ack((5, 5, ACCEPT)) == 0
    assert shared.leave() == 0
    assert shared.fetch("n", 10, limits=True) == [(0, 4, 2), (6, 10, 2)]
    assert shared.ack((6, 6, RENEW), member="n") == 0
    assert [run[:2] for run in runs(shared)] == [(0, 4), (5, 5), (6, 6), (7, 10), (11, LAST)]
    assert shared.next == 11


@pytest.mark.parametrize("is_written", [True, False])
def test_a_log_that_begins_inside_pending_records_archives_its_part_for_good(is_written: bool) -> None:
    shared = huge()
    assert shared.ack((0, 0, ACCEPT)) == 0
    shared.persister.holds = True
    assert shared.ack((10, 29, RELEASE)) is None
    shared.partition.begin_at(15)
    shared.partition.begin_at(20)
    assert (10, 14, ARCHIVED) in runs(shared)
    assert (15, 19, ARCHIVED) in runs(shared)
    shared.persister.error = None if is_written else Error.NOT_COORDINATOR
    shared.persister.go_on()
    states = {run[:2]: run[2] for run in runs(shared)}
    assert states[15, 19] == ARCHIVED
    assert states[20, 29] == (AVAILABLE if is_written else ACQUIRED)
    assert shared.span == (20, LAST, 0)
    assert shared.partition.lock_count == 1


@pytest.mark.parametrize("begins", [15, 25, 40])
def test_a_rollback_counts_on_either_side_of_the_log_start(begins: int) -> None:
    shared = huge(99)
    shared.persister.holds = True
    assert shared.ack((10, 29, ACCEPT)) is None
    assert shared.span == (0, 99, 20)
    shared.partition.begin_at(begins)
    shared.runtime.pass_ms(LOCK_MS)
    shared.persister.error = Error.NOT_COORDINATOR
    shared.persister.go_on()
    start, _, done = shared.span
    assert start == begins
    assert done == 0
    assert shared.next == begins


def test_many_acknowledgements_move_no_later_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moving would take a minute for every second one of 500,000 offsets, if as many runs lie behind them."""
    shared = huge()
    moved: list[int] = []
    monkeypatch.setattr(InFlightBatch, "_part", lambda batch, place, offset: moved.append(offset))
    assert shared.ack(*((offset, offset, ACCEPT) for offset in range(100, 200, 2))) == 0
    assert shared.ack(*((offset, offset, REJECT) for offset in range(0, 100, 2))) == 0
    assert shared.ack((1, 97, [RELEASE, RENEW] * 48 + [RELEASE])) != 0  # every second offset is refused
    assert shared.ack((99, 99, ACCEPT), (99, 99, ACCEPT)) != 0  # this offset is already acknowledged
    assert not moved
    assert len(runs(shared)) == 200


def test_acknowledgements_that_begin_in_a_hole_after_separate_offsets() -> None:
    shared = Shared([(0, 4), (10, 14)])
    assert shared.fetch(read=1) == [(0, 4, 1)]
    assert shared.fetch() == [(10, 14, 1)]
    assert shared.ack((1, 1, ACCEPT)) == 0
    assert shared.ack((7, 12, ACCEPT)) == 0
    assert runs(shared) == [(0, 0, ACQUIRED), (1, 1, ACKNOWLEDGED), (2, 4, ACQUIRED)]
    assert shared.span == (0, 14, 4)


def test_acknowledgements_of_many_batches_are_looked_at_once_or_twice_each() -> None:
    looked_at = 0

    class Counting(list[AcknowledgementBatch]):
        def __iter__(self) -> Iterator[AcknowledgementBatch]:
            return (self[place] for place in range(len(self)))

        def __getitem__(self, place: Any) -> Any:
            nonlocal looked_at
            looked_at += 1
            return super().__getitem__(place)

    shared = Shared(in_batches(100, 2))
    assert len(shared.fetch(batch_size=1)) == 100
    of_each = (
        AcknowledgementBatch(first_offset=first, last_offset=first, acknowledge_types=[ACCEPT])
        for first in range(0, 200, 2)
    )
    begun(shared.partition.acknowledge("m", Counting(of_each)))
    assert shared.span == (1, 199, 99)
    assert looked_at <= 300


@pytest.mark.parametrize("seed", range(50))
def test_the_available_records_are_those_of_the_runs(seed: int) -> None:
    luck = random.Random(seed)
    last = luck.randint(0, 40)
    batch = InFlightBatch(0, last, InFlightState(RecordState.ACQUIRED, 1, "m"))
    batch.split()
    batch.cut_at(sorted(luck.choices(range(last + 2), k=luck.randint(1, 20))))
    for _, _, state in batch.runs(0, last):
        if luck.random() < 0.6:
            state.begin(luck.choice([RecordState.AVAILABLE, RecordState.ACKNOWLEDGED]), 5)
            if luck.random() < 0.8:
                state.complete(is_written=True)
            state.delivery_count = luck.randint(1, 3)
    for _ in range(20):
        begin, end = sorted(luck.choices(range(last + 1), k=2))
        expected = [run for run in batch.runs(begin, end) if run[2].is_available]
        assert [*batch.available(begin, end)] == expected
        for least in range(5):
            assert batch.has_delivered(least, begin, end) == any(
                state.delivery_count >= least for _, _, state in expected
            )


def test_the_available_records_may_be_cut_before_the_next_are_requested() -> None:
    batch = InFlightBatch(0, 9, InFlightState(RecordState.AVAILABLE, 1))
    batch.split()
    batch.cut(5, 5)
    found = batch.available(0, 9)
    assert next(found)[:2] == (0, 4)
    batch.cut(0, 0)
    batch.cut(3, 3)
    assert [run[:2] for run in found] == [(5, 5), (6, 9)]


def test_a_fetch_looks_at_many_runs_without_giving_out_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 200,000 runs, this took a third of a second for one record."""
    shared = huge(999)
    assert shared.ack(*((offset, offset, RELEASE) for offset in range(1, 1_000, 2))) == 0
    monkeypatch.setattr(InFlightBatch, "runs", None)
    assert shared.fetch("n", 1, limits=True) == [(1, 1, 2)]
    assert shared.next == 3


def test_the_end_of_a_lock_looks_at_no_more_than_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 10,000 locks on one record each of the same batch, each lock would look at all 10,000."""
    shared = huge(9)
    assert shared.ack(*((offset, offset, RELEASE) for offset in range(0, 10, 2))) == 0
    assert shared.fetch("n", 2, limits=True) == [(0, 0, 2), (2, 2, 2)]
    assert shared.fetch("n", 1, limits=True) == [(4, 4, 2)]
    looked_at: list[tuple[int, int]] = []
    all_runs = InFlightBatch.runs

    def of_range(batch: InFlightBatch, first: int, last: int) -> Iterator[tuple[int, int, InFlightState]]:
        looked_at.append((first, last))
        return all_runs(batch, first, last)

    monkeypatch.setattr(InFlightBatch, "runs", of_range)
    shared.runtime.pass_ms(LOCK_MS)
    monkeypatch.undo()
    assert looked_at == [(0, 9), (0, 2), (4, 4)]
    assert {state for _, _, state in runs(shared)} == {AVAILABLE}


@pytest.mark.parametrize("seed", range(50))
def test_many_cuts_at_once_are_as_one_after_the_other(seed: int) -> None:
    luck = random.Random(seed)
    last = luck.randint(0, 40)
    at_once, in_turn = (InFlightBatch(0, last, InFlightState(ACQUIRED, 1, "m")) for _ in range(2))
    at_once.split()
    in_turn.split()
    for _ in range(luck.randint(1, 5)):
        edges = sorted(luck.choices(range(last + 2), k=luck.randint(1, 20)))
        at_once.cut_at(edges)
        for edge in edges:
            if edge <= last:
                in_turn.cut(edge, next(run_last for _, run_last, _ in in_turn.runs(edge, last)))
        assert [run[:2] for run in at_once.runs(0, last)] == [run[:2] for run in in_turn.runs(0, last)]
        states = [state for _, _, state in at_once.runs(0, last)]
        assert len({*map(id, states)}) == len(states)

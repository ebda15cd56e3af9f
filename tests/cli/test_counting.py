"""Counting by the headers of batches gives the number of records that a consumer gets one by one."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from cli.client import counting
from cli.client.cluster import KafkaCluster
from cli.client.counting import ALL, Counted, Effort, count_records
from protocol.messages.fetch import PartitionData
from protocol.records.batch import ABORT, COMMIT, build_batch, build_end_txn_marker, read_header

PLAIN = -1
BATCHES_AT_ONCE = 3


@dataclass
class Log:
    """A partition's batches, and each of its records as (offset, producer id, the number of its transaction)."""

    batches: list[bytes] = field(default_factory=list)
    records: list[tuple[int, int, int]] = field(default_factory=list)
    markers: dict[int, tuple[int, bool]] = field(default_factory=dict)
    first: dict[int, int] = field(default_factory=dict)
    end: int = 0

    def append(self, producer_id: int, transaction: int, count: int) -> None:
        batch = build_batch(
            [(0, None, b"v", ())] * count,
            base_offset=self.end,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=producer_id != PLAIN,
        )
        self.batches.append(bytes(batch))
        self.records += [(self.end + each, producer_id, transaction) for each in range(count)]
        if producer_id != PLAIN:
            self.first.setdefault(transaction, self.end)
        self.end += count

    def mark(self, producer_id: int, transaction: int, commit: bool) -> None:
        marker = build_end_txn_marker(
            COMMIT if commit else ABORT,
            coordinator_epoch=0,
            producer_id=producer_id,
            producer_epoch=0,
            timestamp=0,
            base_offset=self.end,
        )
        self.batches.append(bytes(marker))
        self.markers[transaction] = (self.end, commit)
        self.end += 1

    def stable_at(self, end: int) -> int:
        """The last stable offset at the time when the log ended at this offset."""
        still = [
            first
            for transaction, first in self.first.items()
            if first < end and self.markers.get(transaction, (end, True))[0] >= end
        ]
        return min([end, *still])

    def fetched(self, offset: int) -> PartitionData:
        kept = [batch for batch in self.batches if read_header(batch).last_offset >= offset]
        return PartitionData(records=b"".join(kept[:BATCHES_AT_ONCE]), high_watermark=self.end)


def drawn(chance: random.Random) -> Log:
    """Producers that write, commit and abort in turns, with gaps between batches as compaction leaves them."""
    log = Log()
    open_now: dict[int, int] = {}
    number = 0
    for _ in range(chance.randrange(1, 40)):
        producer_id = chance.choice([PLAIN, 1, 2, 3])
        if chance.random() < 0.2:
            log.end += chance.randrange(5)
        if producer_id in open_now and chance.random() < 0.4:
            log.mark(producer_id, open_now.pop(producer_id), chance.random() < 0.5)
            continue
        if producer_id != PLAIN and producer_id not in open_now:
            number += 1
            open_now[producer_id] = number
        log.append(producer_id, open_now.get(producer_id, 0), chance.randrange(1, 5))
    return log


def by_hand(log: Log, offset: int, stable: int, end: int) -> Counted:
    """Count record by record, knowing the outcome of each transaction."""
    counted = Counted()
    for at, producer_id, transaction in log.records:
        if not offset <= at < end:
            continue
        counted.records += 1
        is_committed = log.markers.get(transaction, (0, True))[1]
        if producer_id != PLAIN and transaction not in log.markers:
            counted.undecided[producer_id] = counted.undecided.get(producer_id, 0) + 1
        elif producer_id != PLAIN and not is_committed:
            counted.aborted += 1
        else:
            counted.given += at < stable
            counted.waiting += at >= stable
            counted.last_given = at
    counted.markers = sum(1 for at, _ in log.markers.values() if offset <= at < end)
    return counted


def test_a_count_by_headers_is_one_of_records_whatever_became_of_their_transactions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nowhere: KafkaCluster = object.__new__(KafkaCluster)
    for seed in range(300):
        chance = random.Random(seed)
        log = drawn(chance)
        monkeypatch.setattr(
            counting, "fetch", lambda _cluster, _partition, at, _size, log=log: log.fetched(at)
        )
        offset = chance.randrange(log.end + 1)
        stable = log.stable_at(log.end)
        found = count_records(nowhere, ("t", 0), offset, stable, log.end, ALL)
        expected = by_hand(log, offset, stable, log.end)
        assert found == expected, seed


def test_a_marker_that_came_after_the_end_was_asked_for_still_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log()
    log.append(1, 1, 3)
    log.append(2, 2, 2)
    log.append(PLAIN, 0, 4)
    end = log.end
    log.mark(1, 1, commit=False)
    log.mark(2, 2, commit=True)
    monkeypatch.setattr(counting, "fetch", lambda _cluster, _partition, at, _size: log.fetched(at))
    found = count_records(object.__new__(KafkaCluster), ("t", 0), 0, end, end, ALL)
    assert (found.records, found.given, found.aborted, found.undecided) == (9, 6, 3, {})
    assert (found.markers, found.last_given, found.is_exact) == (0, 8, True)


def test_a_count_that_is_cut_short_has_a_least_number_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere: KafkaCluster = object.__new__(KafkaCluster)
    for seed in range(100):
        chance = random.Random(seed)
        log = drawn(chance)
        monkeypatch.setattr(
            counting, "fetch", lambda _cluster, _partition, at, _size, log=log: log.fetched(at)
        )
        stable = log.stable_at(log.end)
        found = count_records(nowhere, ("t", 0), 0, stable, log.end, Effort(max_bytes=1))
        expected = by_hand(log, 0, stable, log.end)
        for name in ("records", "given", "waiting", "aborted", "markers", "last_given"):
            assert getattr(found, name) <= getattr(expected, name), (seed, name)
        for producer_id, count in found.undecided.items():
            assert count <= expected.undecided.get(producer_id, 0), seed


def test_if_reading_stops_before_the_end_the_count_is_a_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    log.append(PLAIN, 0, 4)
    end = log.end
    answers = [PartitionData(records=b""), log.fetched(0), *[PartitionData(records=b"")] * counting.TRIES]
    monkeypatch.setattr(counting, "fetch", lambda *_: answers.pop(0))
    monkeypatch.setattr(counting, "PAUSE_S", 0)
    nowhere: KafkaCluster = object.__new__(KafkaCluster)
    found = count_records(nowhere, ("t", 0), 0, end + 3, end + 3, ALL)
    assert (found.records, found.is_exact, answers) == (4, False, [])

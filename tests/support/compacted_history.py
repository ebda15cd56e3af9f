"""A compacted log with a random history, and what a reader must find in it, cleaned or not.

It has keys, tombstones and records without a key, from plain, idempotent and transactional producers of both
transaction versions, which commit, abort, leave transactions open, go away and come back.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.errors import KafkaError
from protocol.records import compression
from protocol.records.batch import (
    NewRecord,
    build_batch,
    crc_is_valid,
    read_control_type,
    read_records,
    walk_batches,
)
from storage.cleaning.plan import CleaningPlan
from storage.log.partition_log import PartitionLog
from tests.support.cleaning import clean_log, plan_of
from tests.support.partition_logs import NOW_MS, append, end_transaction, open_log

KEYS = [b"k%d" % number for number in range(6)]
RETENTION_MS = 500
EXPIRATION_MS = 5000


@dataclass
class Written:
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]
    transaction: int | None
    """Each transaction's number; None outside of one."""


@dataclass
class Client:
    """A producer, with sequences and epochs as the coordinator and the client keep them."""

    producer_id: int
    transactional: bool
    version: int
    epoch: int = 0
    sequence: int = 0
    transaction: int | None = None


class CompactedHistory:
    """`log` is the partition. `step` does something at random. `check` raises if a reader finds something wrong."""

    def __init__(
        self,
        directory: Path,
        chance: random.Random,
        *,
        now_ms: int = NOW_MS,
        rooms: tuple[int, ...] = (2, 4, 1000, 1000, 1000),
        **config: Any,
    ) -> None:
        """`rooms` are the possible sizes of the offset map, in keys."""
        self.directory = directory
        self.chance = chance
        self.now_ms = now_ms
        self.rooms = rooms
        self.config: dict[str, Any] = {
            "segment_bytes": 700,
            "index_interval_bytes": 200,
            "delete_retention_ms": RETENTION_MS,
            "cleanup_policy": frozenset({"compact"}),
            "producer_id_expiration_ms": EXPIRATION_MS,
            "retention_ms": -1,
            **config,
        }
        self.log = open_log(directory, now_ms=now_ms, **self.config)
        self.written: list[Written] = []
        self.ended: dict[int, bool] = {}
        """For each finished transaction, whether it was committed."""
        self.transactions = 0
        self.values = 0
        self.first_dirty = 0
        self.clients = [Client(number, number > 2, number % 3) for number in range(1, 8)]

    # ---- events

    def step(self) -> None:
        self.now_ms += self.chance.randrange(60)
        kinds = ["plain", "produce", "end", "roll", "clean", "reopen", "recover", "expire"]
        kind = self.chance.choices(kinds, [6, 10, 6, 1, 1, 0.3, 0.3, 0.2])[0]
        getattr(self, kind)()

    def records(self) -> list[NewRecord]:
        made: list[NewRecord] = []
        for _ in range(self.chance.randint(1, 4)):
            self.values += 1
            key = None if self.chance.random() < 0.05 else self.chance.choice(KEYS)
            value = (
                None
                if self.chance.random() < 0.25
                else b"v%d" % self.values + b"-" * self.chance.randrange(30)
            )
            headers = ((b"h", b"x"), (b"n", None)) if self.chance.random() < 0.2 else ()
            made.append((self.now_ms - self.chance.randrange(40), key, value, headers))
        return made

    def batch(self, **options: Any) -> tuple[bytearray, list[NewRecord], int | None]:
        records = self.records()
        time_ms = self.now_ms if self.chance.random() < 0.2 else None
        codec = self.chance.choice([compression.NONE] * 4 + [compression.GZIP])
        return build_batch(records, codec=codec, log_append_time=time_ms, **options), records, time_ms

    def note(
        self, base_offset: int, records: list[NewRecord], time_ms: int | None, transaction: int | None
    ) -> None:
        for at, (timestamp, key, value, headers) in enumerate(records):
            stamp = timestamp if time_ms is None else time_ms
            self.written.append(Written(base_offset + at, stamp, key, value, tuple(headers), transaction))

    def plain(self) -> None:
        data, records, time_ms = self.batch()
        result = append(self.log, data, now_ms=self.now_ms)
        self.note(result.base_offset, records, time_ms, None)

    def produce(self) -> None:
        client = self.chance.choice(self.clients)
        if client.transaction is None and self.chance.random() < 0.1:
            # it was away, and comes back with a new epoch
            client.epoch += 1
            client.sequence = 0
        data, records, time_ms = self.batch(
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            base_sequence=client.sequence,
            transactional=client.transactional,
        )
        try:
            result = append(self.log, data, now_ms=self.now_ms)
        except KafkaError:
            # the log has forgotten the producer, or its epoch, which is allowed
            client.epoch += 1
            client.sequence = 0
            return
        client.sequence += len(records)
        if client.transactional and client.transaction is None:
            client.transaction = self.transactions
            self.transactions += 1
        self.note(result.base_offset, records, time_ms, client.transaction)

    def end(self) -> None:
        client = self.chance.choice([client for client in self.clients if client.transactional])
        if client.transaction is None and self.chance.random() < 0.7:
            return
        commit = self.chance.random() < 0.5
        if client.version == 2:
            client.epoch += 1
            client.sequence = 0
        end_transaction(
            self.log,
            commit,
            transaction_version=client.version,
            producer_id=client.producer_id,
            epoch=client.epoch,
            timestamp=self.now_ms,
        )
        if client.transaction is not None:
            self.ended[client.transaction] = commit
            client.transaction = None

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    def expire(self) -> None:
        self.now_ms += 2 * EXPIRATION_MS
        self.log.expire_producers(self.now_ms)

    def plan(self) -> CleaningPlan:
        """Return the plan of the next pass: up to the last stable offset, with room for a few keys or all."""
        return plan_of(
            self.log,
            first_dirty=max(self.first_dirty, self.log.log_start_offset),
            first_uncleanable=min(self.log.last_stable_offset, self.log.segments.active.base_offset),
            now_ms=self.now_ms,
            max_keys=self.chance.choice(self.rooms),
            keep_txn_index=self.chance.random() < 0.5,
        )

    def clean(self) -> None:
        plan = self.plan()
        if plan.first_uncleanable_offset <= plan.first_dirty_offset:
            return
        before = self.snapshot()
        result = clean_log(self.log, plan)
        self.first_dirty = result.first_dirty_offset
        assert plan.first_dirty_offset < self.first_dirty <= plan.first_uncleanable_offset
        self.check()
        self.check_nothing_superseded_is_left()
        self.check_same_offsets(before)

    def reopen(self) -> None:
        states = self.producer_states()
        self.log.close()
        self.log = self.opened(clean=True)
        assert self.producer_states() == states
        self.check()

    def recover(self) -> None:
        states = self.producer_states()
        old = self.producers_with_old_data()
        self.log.close(clean=False)
        recovery_point = self.chance.randint(0, self.log.log_end_offset)
        if self.chance.random() < 0.5:
            recovery_point = 0
            for snapshot in Path(self.log.directory).glob("*.snapshot"):
                snapshot.unlink()
        self.log = self.opened(clean=False, recovery_point=recovery_point)
        found = self.producer_states()
        for producer_id, (epoch, sequence) in states.items():
            # If the log only knew a producer's markers, it may forget the producer: an empty control batch brings
            # nothing back. It may also forget the data of a producer that has expired and lives on by a marker: a
            # recovery without snapshots finds the data once more, the next one from a snapshot doesn't.
            if sequence >= 0 and producer_id not in old:
                assert found[producer_id] == (epoch, sequence)
        self.check()

    def producers_with_old_data(self) -> set[int]:
        return {
            producer.producer_id
            for producer in self.log.producers.producers.values()
            if producer.batches and self.now_ms - producer.batches[-1].timestamp_ms >= EXPIRATION_MS
        }

    def opened(self, **options: Any) -> PartitionLog:
        log = open_log(self.directory, now_ms=self.now_ms, **options, **self.config)
        log.update_high_watermark(log.log_end_offset)
        return log

    # ---- invariants

    def producer_states(self) -> dict[int, tuple[int, int]]:
        """(epoch, last sequence) of the producers that aren't expired."""
        return {
            producer.producer_id: (producer.epoch, producer.last_sequence)
            for producer in self.log.producers.producers.values()
            if self.now_ms - producer.last_timestamp_ms < EXPIRATION_MS or producer.txn_first_offset >= 0
        }

    def snapshot(self) -> tuple[int, int, int, int]:
        log = self.log
        return log.log_start_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset

    def check_same_offsets(self, before: tuple[int, int, int, int]) -> None:
        assert self.snapshot() == before

    def is_aborted(self, written: Written) -> bool:
        return written.transaction is not None and self.ended.get(written.transaction) is False

    def check(self) -> None:
        """Check that everything read was written, and that both kinds of readers find the latest record of each key."""
        log = self.log
        uncommitted = dict(read(log, log.log_end_offset))
        committed = dict(read_committed(log))
        stable = log.last_stable_offset
        latest: dict[bytes, Written] = {}
        latest_committed: dict[bytes, Written] = {}
        for written in self.written:
            seen = uncommitted.get(written.offset)
            if seen is not None:
                assert seen == (written.timestamp, written.key, written.value, written.headers)
            aborted = self.is_aborted(written)
            is_committed = not aborted and written.offset < stable
            assert (written.offset in committed) == (is_committed and seen is not None)
            if aborted:
                continue
            if written.key is None:
                assert seen is not None or written.offset < self.first_dirty
                continue
            latest[written.key] = written
            if is_committed:
                latest_committed[written.key] = written
        assert uncommitted.keys() <= {written.offset for written in self.written}
        for found, expected in ((uncommitted, latest), (committed, latest_committed)):
            for written in expected.values():
                if written.value is not None:
                    assert written.offset in found, written
            values = {key: value for _timestamp, key, value, _headers in found.values() if key is not None}
            if found is committed:
                assert {key: value for key, value in values.items() if value is not None} == {
                    key: written.value for key, written in expected.items() if written.value is not None
                }

    def check_nothing_superseded_is_left(self) -> None:
        """Check that below the first dirty offset there are no older records of a key, no aborted ones, and none
        without a key."""
        found = dict(read(self.log, self.log.log_end_offset))
        latest: dict[bytes | None, int] = {}
        for written in self.written:
            if written.offset < self.first_dirty and not self.is_aborted(written) and written.key is not None:
                latest[written.key] = written.offset
        for written in self.written:
            if written.offset < self.first_dirty and written.offset in found:
                assert latest.get(written.key) == written.offset, written


Found = tuple[int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]


def read(log: PartitionLog, bound: int, *, max_bytes: int = 1 << 20) -> Iterator[tuple[int, Found]]:
    """Yield (offset, found) for each record below the bound, as a reader of uncommitted records finds them."""
    for data, _aborted in fetches(log, bound, max_bytes):
        for position, header in walk_batches(data):
            batch = data[position : position + header.size_bytes]
            assert crc_is_valid(batch, 0, len(batch))
            if not header.is_control:
                for record in read_records(batch):
                    yield record.offset, (record.timestamp, record.key, record.value, record.headers)


def read_committed(log: PartitionLog, *, max_bytes: int = 1 << 20) -> Iterator[tuple[int, Found]]:
    """Read as a client that reads committed records: by the list of aborted transactions, up to their markers."""
    for data, aborted in fetches(log, log.last_stable_offset, max_bytes):
        waiting = sorted(aborted, key=lambda txn: txn[1])
        dropped: set[int] = set()
        for position, header in walk_batches(data):
            batch = data[position : position + header.size_bytes]
            while waiting and waiting[0][1] <= header.last_offset:
                dropped.add(waiting.pop(0)[0])
            if header.is_control:
                records = read_records(batch)
                if records and read_control_type(records[0].key) == 0:
                    dropped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in dropped):
                for record in read_records(batch):
                    yield record.offset, (record.timestamp, record.key, record.value, record.headers)


def fetches(log: PartitionLog, bound: int, max_bytes: int) -> Iterator[tuple[bytes, list[tuple[int, int]]]]:
    """Yield each answer's whole batches with its aborted transactions, from the log start on."""
    offset = log.log_start_offset
    while offset < bound:
        found = log.read(offset, max_bytes, upper_bound=bound, min_one_batch=True)
        if not found.records:
            return
        aborted = [(txn.producer_id, txn.first_offset) for txn in log.aborted_transactions(offset, found)]
        end = 0
        for position, header in walk_batches(found.records):
            end = position + header.size_bytes
            assert header.last_offset >= offset
            offset = header.last_offset + 1
        assert end
        yield found.records[:end], aborted

"""Histories from seeds: producers of both versions, partitions with Kafka's rules, and everything that goes wrong.

Markers are held, reordered, answered late, twice or with errors; appends fail; the broker dies before or after any of
them, and a new shard replays the log; producers die, come twice and time out. Once all has come to rest, each
transaction is wholly committed or wholly aborted, as its producer was told, and nothing is left open or prepared.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest

from coordinator.ports import CoordinatorRecord, TxnMarker
from coordinator.transaction.producer_ids import TransactionalProducer
from coordinator.transaction.state_manager import (
    ProducerIdAndEpoch,
    TransitMetadata,
    encode_key,
    encode_value,
)
from coordinator.transaction.states import EMPTY, EXPIRES
from protocol.errors import Error
from protocol.topic_partition import TopicPartition
from tests.unit.coordinator.runtime import START_MS, FakeRuntime
from tests.unit.coordinator.transaction.coordinator import Coordinator, Done

PARTITIONS: list[TopicPartition] = [("a", 0), ("a", 1), ("b", 0), ("__consumer_offsets", 5)]
TIMEOUT_MS = 30_000


class Crashed(BaseException):
    """The broker has died in the middle of an append."""


class CrashingRuntime(FakeRuntime):
    """A runtime whose append may fail, or be the last thing that happens, with or without its record."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng
        self.is_calm = False

    def append(self, records: Sequence[CoordinatorRecord], **rest: Any) -> int:
        if self.is_calm:
            return super().append(records, **rest)
        chance = self.rng.random()
        if chance < 0.02:
            raise Crashed
        self.failing = self.rng.choice([Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_COORDINATOR])
        if chance >= 0.05:
            self.failing = None
        first = super().append(records, **rest)
        if chance > 0.98:
            raise Crashed
        return first


class Leader:
    """One partition: how its leader handles data and markers (`ProducerAppendInfo`)."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.coordinator_epochs: dict[int, int] = {}
        self.open: dict[int, list[int]] = {}
        self.committed: list[int] = []
        self.aborted: list[int] = []

    def write(self, producer_id: int, epoch: int, transaction: int) -> Error:
        if epoch < self.epochs.get(producer_id, -1):
            return Error.INVALID_PRODUCER_EPOCH
        self.epochs[producer_id] = epoch
        self.open.setdefault(producer_id, []).append(transaction)
        return Error.NONE

    def end(self, marker: TxnMarker) -> Error:
        producer_id, epoch = marker.producer_id, marker.producer_epoch
        current = self.epochs.get(producer_id, -1)
        is_retry = epoch in (current, 32767) and producer_id not in self.open
        if epoch < current or (marker.transaction_version >= 2 and epoch == current and not is_retry):
            return Error.INVALID_PRODUCER_EPOCH
        if marker.coordinator_epoch < self.coordinator_epochs.get(producer_id, -1):
            return Error.TRANSACTION_COORDINATOR_FENCED
        self.epochs[producer_id] = epoch
        self.coordinator_epochs[producer_id] = marker.coordinator_epoch
        ended = self.open.pop(producer_id, [])
        (self.committed if marker.commit else self.aborted).extend(ended)
        return Error.NONE


class Network:
    """The port `Markers` over a network that delays, loses, repeats and reorders."""

    def __init__(self, rng: random.Random, leaders: dict[TopicPartition, Leader]) -> None:
        self.rng = rng
        self.leaders = leaders
        self.in_flight: list[Callable[[], None]] = []
        self.is_calm = False

    def write(self, marker: TxnMarker, partitions: Sequence[TopicPartition], done: Done) -> None:
        for partition in partitions:
            self._write(marker, partition, done)

    def _write(self, marker: TxnMarker, partition: TopicPartition, done: Done) -> None:
        def arrive() -> None:
            error = self.leaders[partition].end(marker)
            answer = lambda: done({partition: error})  # noqa: E731
            if self.is_calm or self.rng.random() < 0.5:
                answer()
            else:
                self.in_flight.append(answer)
            if not self.is_calm and self.rng.random() < 0.2:
                self.in_flight.append(answer)

        def fail() -> None:
            done({partition: Error.REQUEST_TIMED_OUT})
            if marker.transaction_version >= 2:
                self.in_flight.append(
                    arrive
                )  # it arrives later, and then only the epochs of V2 tell it apart

        chance = 1.0 if self.is_calm else self.rng.random()
        if chance < 0.15:
            self.in_flight.append(fail)
        elif chance < 0.25:
            done({partition: Error.NOT_LEADER_OR_FOLLOWER})
        elif chance < 0.55:
            self.in_flight.append(arrive)
        else:
            arrive()

    def deliver_one(self) -> None:
        if self.in_flight:
            self.in_flight.pop(self.rng.randrange(len(self.in_flight)))()


class Producer:
    """A client of one transactional id. The simulation keeps a record of what it was told."""

    def __init__(self, simulation: Simulation, name: str, version: int) -> None:
        self.simulation = simulation
        self.name = name
        self.version = version
        self.me: ProducerIdAndEpoch | None = None
        self.transaction: int | None = None
        self.ending: bool | None = None

    def step(self) -> None:
        rng = self.simulation.rng
        if (
            self.me is None or rng.random() < 0.03
        ):  # the second case: another instance, or one that died and came back
            self.me = self.transaction = self.ending = None
            answer = self.simulation.coordinator.init(name=self.name, timeout_ms=TIMEOUT_MS)
            self.me = answer if isinstance(answer, ProducerIdAndEpoch) else None
        elif self.ending is not None:
            self._end()
        elif self.transaction is None:
            self.transaction = next(self.simulation.transaction_numbers)
        elif rng.random() < 0.3:
            self.ending = rng.random() < 0.7
            if self.ending:
                self.simulation.asked_to_commit.add(self.transaction)
            self._end()
        else:
            self._write(rng.choice(PARTITIONS))

    def _write(self, partition: TopicPartition) -> None:
        assert self.me is not None
        assert self.transaction is not None
        coordinator = self.simulation.coordinator
        error = coordinator.add(*self.me, partition, name=self.name, version=self.version)
        if error is Error.NONE and self.version == 0:
            answers = coordinator.shard.verify_partitions(
                TransactionalProducer(self.name, *self.me), [partition]
            )
            error = answers[partition]
        if error is Error.NONE:
            error = self.simulation.leaders[partition].write(*self.me, self.transaction)
            if error is Error.NONE:
                self.simulation.written[self.transaction].add(partition)
        self._look_at(error)

    def _end(self) -> None:
        assert self.me is not None
        assert self.ending is not None
        assert self.transaction is not None
        if self.version == 0 and not self.simulation.written[self.transaction]:
            # without written records, such a client doesn't ask the coordinator
            self.transaction = self.ending = None
            return
        answer = self.simulation.coordinator.end(
            *self.me, commit=self.ending, version=self.version, name=self.name
        )
        if isinstance(answer, Error):
            if answer is Error.INVALID_TXN_STATE and not self.simulation.written[self.transaction]:
                self.transaction = self.ending = None  # the transaction was empty
                return
            self._look_at(answer)
            return
        self.simulation.told[self.transaction] = self.ending
        self.transaction = self.ending = None
        if self.version >= 2:
            self.me = answer

    def _look_at(self, error: Error) -> None:
        retriable = (
            Error.NONE,
            Error.CONCURRENT_TRANSACTIONS,
            Error.COORDINATOR_NOT_AVAILABLE,
            Error.NOT_COORDINATOR,
        )
        if error not in retriable:
            self.me = self.transaction = self.ending = None


class Simulation:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.leaders = {each: Leader() for each in PARTITIONS}
        self.network = Network(self.rng, self.leaders)
        self.transaction_numbers = count()
        self.producer_ids = count(100)
        self.written: dict[int, set[TopicPartition]] = defaultdict(set)
        self.told: dict[int, bool] = {}
        self.asked_to_commit: set[int] = set()
        self.level = self.rng.choice([1, 2, 2])
        self.crashes = 0
        runtime = CrashingRuntime(self.rng)
        for index in range(3):  # some producers are near the end of their epochs
            it = TransitMetadata(
                EMPTY, index, index, -1, self.rng.choice([0, 32_757]), -1, 1, {}, -1, START_MS, 0
            )
            runtime.log.append(((encode_key(f"p{index}"), encode_value(it, 1)), -1))
        self.coordinator = self._coordinator(runtime, epoch=0)
        self.producers = [
            Producer(self, f"p{index}", 0 if index == 0 or self.level < 2 else 2) for index in range(4)
        ]

    def _coordinator(self, runtime: CrashingRuntime, epoch: int) -> Coordinator:
        made = Coordinator(runtime, level=self.level, epoch=epoch)
        made.producer_ids = self.producer_ids  # type: ignore[assignment]
        made.markers = self.network  # type: ignore[assignment]
        made.shard = made._new_shard()
        for offset, ((key, value), _) in enumerate(runtime.log):
            made.shard.replay(key, value, offset, -1)
        return made

    def step(self, what: Callable[[], None]) -> None:
        try:
            what()
        except Crashed:
            self.restart()

    def restart(self) -> None:
        """Restart the broker. Requests in flight may still arrive, but nobody gets the answers."""
        while True:
            self.crashes += 1
            before = self.coordinator.runtime
            assert isinstance(before, CrashingRuntime)
            runtime = CrashingRuntime(self.rng)
            runtime.log, runtime.elapsed_ms, runtime.is_calm = before.log, before.elapsed_ms, before.is_calm
            self.coordinator.shard.unload()
            self.coordinator = self._coordinator(runtime, epoch=self.coordinator.coordinator_epoch + 1)
            try:
                self.coordinator.shard.start()
            except Crashed:
                continue
            return

    def run(self, steps: int) -> None:
        for _ in range(steps):
            chance = self.rng.random()
            if chance < 0.7:
                self.step(self.rng.choice(self.producers).step)
            elif chance < 0.93:
                self.step(self.network.deliver_one)
            elif chance < 0.995:
                self.step(lambda: self.coordinator.runtime.pass_ms(self.rng.choice([5, 50, 500, 5_000])))
            else:
                self.restart()

    def come_to_rest(self) -> None:
        runtime = self.coordinator.runtime
        assert isinstance(runtime, CrashingRuntime)
        runtime.is_calm = self.network.is_calm = True
        runtime.failing = None
        while self.network.in_flight:
            self.network.deliver_one()
        runtime.pass_ms(TIMEOUT_MS + 20_000)
        while self.network.in_flight:
            self.network.deliver_one()

    def check(self) -> None:
        shard = self.coordinator.shard
        assert self.coordinator.completions == {}
        for metadata in shard.transactions.values():
            assert metadata.state in EXPIRES, f"{metadata} is stuck"
            assert metadata.pending_state is None
            assert 0 <= metadata.producer_epoch <= 32_766 + (self.level < 2)
        for leader in self.leaders.values():
            assert leader.open == {}, "a transaction hangs"
        for transaction, partitions in self.written.items():
            ends = {
                (transaction in self.leaders[each].committed, transaction in self.leaders[each].aborted)
                for each in partitions
            }
            assert len(ends) <= 1, f"transaction {transaction} is torn"
            for is_committed, is_aborted in ends:
                assert is_committed is not is_aborted
                if transaction in self.told:
                    assert is_committed is self.told[transaction], f"{transaction} didn't end as was said"
                if is_committed:
                    assert transaction in self.asked_to_commit


@pytest.mark.parametrize("seed", range(40))
def test_every_transaction_is_wholly_committed_or_wholly_aborted_whatever_goes_wrong(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.run(1_200)
    simulation.come_to_rest()
    simulation.check()


def test_the_histories_cover_what_they_are_meant_for() -> None:
    simulation = Simulation(1)
    simulation.run(5_000)
    simulation.come_to_rest()
    simulation.check()
    assert simulation.crashes > 40
    assert sum(simulation.told.values()) > 100
    assert len(simulation.asked_to_commit) > sum(simulation.told.values()), "some were never answered"
    assert next(simulation.producer_ids) > 101, "producer ids were rotated"

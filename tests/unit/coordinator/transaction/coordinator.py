"""A transaction coordinator in a runtime of its own: a log in memory, and markers that a test answers as it likes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Generic, NamedTuple, TypeVar

from broker.coordination.transactions import TransactionStatistics
from coordinator.ports import MarkerAnswers, TxnMarker
from coordinator.settings import TransactionSettings
from coordinator.transaction.producer_ids import TransactionalProducer
from coordinator.transaction.shard import Completion, TransactionShard
from coordinator.transaction.state_manager import (
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransitMetadata,
    decode_record,
)
from coordinator.transaction.states import STATE_NAMES, TransactionState
from protocol.errors import Error, KafkaError
from protocol.topic_partition import TopicPartition
from protocol.waiting import Later
from tests.unit.coordinator.runtime import FakeRuntime

FIRST_PRODUCER_ID = 7
TIMEOUT_MS = 60_000
T0: TopicPartition = ("t", 0)
T1: TopicPartition = ("t", 1)

Done = Callable[[MarkerAnswers], None]
T = TypeVar("T")


class Write(NamedTuple):
    """One call of `Markers.write`."""

    marker: TxnMarker
    partitions: list[TopicPartition]
    done: Done

    def answer(self, error: Error | None = Error.NONE, *partitions: TopicPartition) -> None:
        self.done(dict.fromkeys(partitions or self.partitions, error))


class FakeMarkers:
    """The port `Markers`. It answers at once what `errors` says, or NONE. While it is `held`, it answers nothing."""

    def __init__(self) -> None:
        self.errors: dict[TopicPartition, Error | None] = {}
        self.is_held = False
        self.writes: list[Write] = []

    def write(self, marker: TxnMarker, partitions: Sequence[TopicPartition], done: Done) -> None:
        assert partitions, "a marker for nobody"
        self.writes.append(Write(marker, [*partitions], done))
        if not self.is_held:
            done({partition: self.errors.get(partition, Error.NONE) for partition in partitions})


def answered(answer: T | Later[T], told: Callable[[T], None]) -> None:
    """Call `told` with the answer as soon as it comes, in the same call."""
    if isinstance(answer, Later):
        later: Later[T] = answer
        later.when_answered(lambda: told(later.result()))
    else:
        told(answer)


class Coordinator:
    """A shard with short methods for what clients ask. The transactional id is "x", the timeout TIMEOUT_MS.

    Each answer is the Error or the result. `level` is the cluster's transaction.version.
    """

    def __init__(self, runtime: FakeRuntime | None = None, *, level: int = 2, epoch: int = 3) -> None:
        self.runtime = runtime or FakeRuntime()
        self.markers = FakeMarkers()
        self.level = level
        self.settings = TransactionSettings()
        self.coordinator_epoch = epoch
        self.producer_ids = count(FIRST_PRODUCER_ID)
        self.producer_id_error: Error | None = None
        self.statistics = TransactionStatistics()
        self.shard = self._new_shard()

    def _new_shard(self) -> TransactionShard:
        return TransactionShard(
            self.runtime,
            self.markers,
            self._next_producer_id,
            self.settings,
            transaction_version=lambda: self.level,
            coordinator_epoch=self.coordinator_epoch,
            statistics=self.statistics,
        )

    def _next_producer_id(self) -> int:
        if self.producer_id_error is not None:
            raise KafkaError(self.producer_id_error)
        return next(self.producer_ids)

    # --- what clients ask -----------------------------------------------------------------------------------

    def init(
        self, producer_id: int = -1, epoch: int = -1, *, name: str = "x", timeout_ms: int = TIMEOUT_MS
    ) -> ProducerIdAndEpoch | Error:
        return self.init_as(TransactionalProducer(name, producer_id, epoch), timeout_ms=timeout_ms)

    def init_as(self, producer: TransactionalProducer, **asked: Any) -> ProducerIdAndEpoch | Error:
        answer: Answer[ProducerIdAndEpoch | KafkaError] = Answer()
        answered(self.shard.init_producer_id(producer, **asked), answer)
        return told(answer)

    def add(
        self,
        producer_id: int,
        epoch: int,
        *partitions: TopicPartition,
        name: str = "x",
        version: int = 2,
    ) -> Error:
        return self.add_all(producer_id, epoch, partitions or [T0], name=name, version=version)

    def add_all(
        self,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        *,
        name: str = "x",
        version: int,
    ) -> Error:
        answer: Answer[KafkaError | None] = Answer()
        producer = TransactionalProducer(name, producer_id, epoch)
        answered(self.shard.add_partitions(producer, partitions, client_transaction_version=version), answer)
        error = told(answer)
        return Error.NONE if error is None else error

    def verify(self, producer_id: int, epoch: int, *partitions: TopicPartition) -> list[Error]:
        asked = partitions or (T0,)
        answers = self.shard.verify_partitions(TransactionalProducer("x", producer_id, epoch), asked)
        return [answers[each] for each in asked]

    def end(
        self, producer_id: int, epoch: int, *, commit: bool, version: int = 2, name: str = "x"
    ) -> ProducerIdAndEpoch | Error:
        answer: Answer[ProducerIdAndEpoch | KafkaError] = Answer()
        producer = TransactionalProducer(name, producer_id, epoch)
        answered(self.shard.end_txn(producer, commit=commit, client_transaction_version=version), answer)
        return told(answer)

    # --- what a test arranges and looks at --------------------------------------------------------------------

    def begun(
        self, *partitions: TopicPartition, version: int = 2, timeout_ms: int = TIMEOUT_MS
    ) -> ProducerIdAndEpoch:
        """Return a producer with an open transaction."""
        me = self.init(timeout_ms=timeout_ms)
        assert isinstance(me, ProducerIdAndEpoch)
        assert self.add(*me, *partitions, version=version) is Error.NONE
        return me

    def configure(self, **settings: Any) -> None:
        """Change the settings of a shard that has no transactions yet."""
        assert not self.shard.transactions
        self.settings = TransactionSettings(**settings)
        self.shard = self._new_shard()

    @property
    def completions(self) -> dict[str, Completion]:
        return self.shard.completions

    def put(self, state: TransactionState, producer_id: int, epoch: int, **fields: object) -> None:
        """Put the id "x" into the state of such a record, whatever came before. T0 is in an open transaction."""
        is_open = state not in (0, 4, 5, 6)
        self.shard._manager.apply(
            "x",
            replace(TransitMetadata(
                state, producer_id, producer_id, -1, epoch, -1, TIMEOUT_MS, {T0: None} if is_open else {},
                -1 if state == 0 else self.runtime.now_ms(), self.runtime.now_ms(), 0,
            ), **fields),  # type: ignore[arg-type]
        )  # fmt: skip

    @property
    def x(self) -> TransactionMetadata:
        return self.shard.transactions["x"]

    @property
    def state(self) -> str:
        """Return the state of the id "x". An arrow leads to a pending state."""
        pending = self.x.pending_state
        return STATE_NAMES[self.x.state] + ("" if pending is None else f"→{STATE_NAMES[pending]}")

    def records(self, since: int = 0) -> list[tuple[str, TransitMetadata | None]]:
        return [decode_record(*record) for record, _ in self.runtime.log[since:]]

    def told(self, since: int = 0) -> list[str]:
        """Return each record as "State id/epoch"."""
        return [
            "tombstone" if it is None else f"{STATE_NAMES[it.state]} {it.producer_id}/{it.producer_epoch}"
            for _, it in self.records(since)
        ]

    def marked(self) -> list[str]:
        """Return each write of a marker as "commit id/epoch TV: partitions"."""
        return [
            f"{'commit' if it.marker.commit else 'abort'} {it.marker.producer_id}/{it.marker.producer_epoch} "
            f"TV{it.marker.transaction_version}: "
            + " ".join(f"{topic}-{index}" for topic, index in it.partitions)
            for it in self.markers.writes
        ]

    def restarted(self, *, is_held: bool = False, lags: bool = False) -> Coordinator:
        """Return a new shard with the same log, as after a restart. Producer ids come from a later block. With `lags`,
        none of the log is known to be committed."""
        runtime = FakeRuntime()
        runtime.elapsed_ms = self.runtime.elapsed_ms
        runtime.log = [*self.runtime.log]
        runtime.lags = lags
        again = Coordinator(runtime, level=self.level, epoch=self.coordinator_epoch + 1)
        again.settings = self.settings
        again.producer_ids = count(1000)
        again.markers.is_held = is_held
        again.shard = again._new_shard()
        for offset, ((key, value), _) in enumerate(runtime.log):
            again.shard.replay(key, value, offset, -1)
        again.shard.start(len(runtime.log) if lags else 0)
        return again


class Answer(Generic[T]):
    """The one argument with which a callback was called."""

    def __init__(self) -> None:
        self.all: list[T] = []

    def __call__(self, answer: T) -> None:
        assert not self.all, "answered twice"
        self.all.append(answer)


def told(answer: Answer[T | KafkaError]) -> T | Error:
    """Return the answer that has come, or its Error."""
    [found] = answer.all
    return found.error if isinstance(found, KafkaError) else found


def names(metadata: Collection[TransactionMetadata]) -> list[str]:
    return sorted(each.transactional_id for each in metadata)

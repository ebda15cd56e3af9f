"""Transactions on a broker that may die at any moment: what was asked for, what was acknowledged, what was read."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from protocol.errors import Error
from tests.support.transactional_client import (
    READ_COMMITTED,
    Broker,
    Producer,
    Reader,
    connected,
    eventually,
)
from tests.support.waiting import until

TOPIC = "t"
PARTITIONS = range(3)
TRANSACTIONAL_ID = "tx"
GROUP = "g"
READER_WAIT_MS = 10


class Fate(Enum):
    """What the last answer said of a transaction, or what was asked for and not answered."""

    OPEN = "nobody has asked for its end"
    COMMITTING = "a commit is asked for"
    COMMITTED = "a commit is acknowledged"
    ABORTING = "an abort is asked for"
    FENCING = "a second instance has asked for an id"
    TIMING_OUT = "its time is up"
    ABORTED = "an abort is acknowledged"


MUST_BE_WHOLE = (Fate.COMMITTED,)
MAY_BE_WHOLE = (Fate.COMMITTED, Fate.COMMITTING)


@dataclass
class Transaction:
    number: int
    fate: Fate = Fate.OPEN

    @property
    def values(self) -> dict[int, bytes]:
        """One for each partition. Its offset in the group is its number."""
        return {partition: b"%d in %d" % (self.number, partition) for partition in PARTITIONS}


@dataclass
class Readings:
    """What a read_committed consumer of each partition was given, as long as there was a broker."""

    seen: dict[int, list[bytes]] = field(default_factory=dict)
    stopped: bool = False
    failure: BaseException | None = None

    def read(self, port: int) -> None:
        try:
            with contextlib.suppress(ConnectionError), connected(port) as broker:
                readers = [Reader(broker, TOPIC, partition) for partition in PARTITIONS]
                self.seen = {reader.partition: reader.values for reader in readers}
                while not self.stopped:
                    for reader in readers:
                        reader.poll(READER_WAIT_MS)
        except BaseException as failure:
            self.failure = failure


class Workload:
    """One transactional id's life with a client of transactions version 1 or 2."""

    def __init__(self, version: int, time_is_up: Path) -> None:
        self.version = version
        self.time_is_up = time_is_up
        self.transactions: list[Transaction] = []
        self.readings = Readings()
        self.producer: Producer | None = None
        """The instance that isn't fenced, or about to be."""
        self.last_epochs: dict[int, int] = {}
        """For each producer id the largest epoch that was given."""
        self.survived = False

    def run(self, port: int) -> None:
        """Ends early where the broker is gone."""
        reading = threading.Thread(target=self.readings.read, args=(port,))
        try:
            with contextlib.suppress(ConnectionError), connected(port) as broker:
                broker.create_topic(TOPIC, len(PARTITIONS))
                broker.find_coordinators(TRANSACTIONAL_ID, GROUP)
                reading.start()
                self._live(broker)
        finally:
            self.readings.stopped = True
            if reading.ident is not None:
                reading.join()
        if self.readings.failure is not None:
            raise self.readings.failure

    def _live(self, broker: Broker) -> None:
        self._init(broker)
        self._end(broker, self._begin(), commit=True)
        self._end(broker, self._begin(), commit=False)

        fenced = self._begin()
        fenced.fate = Fate.FENCING
        self._init(broker)
        self._over(broker, fenced, Fate.ABORTED)
        self._end(broker, self._begin(), commit=True)

        self._init(broker, timeout_ms=1)
        late = self._begin()
        late.fate = Fate.TIMING_OUT
        self.time_is_up.touch()
        self._over(broker, late, Fate.ABORTED)
        self.time_is_up.unlink()
        self._init(broker)
        self._end(broker, self._begin(), commit=True)
        self._begin()
        self.survived = True

    def _init(self, broker: Broker, timeout_ms: int = 60_000) -> None:
        """A new instance."""
        producer = Producer(broker, TRANSACTIONAL_ID, self.version)
        eventually(lambda: producer.init(timeout_ms=timeout_ms))
        self._given(producer)
        self.producer = producer

    def _given(self, producer: Producer) -> None:
        assert producer.epoch > self.last_epochs.get(producer.producer_id, -1), "an epoch was given twice"
        self.last_epochs[producer.producer_id] = producer.epoch

    def _begin(self) -> Transaction:
        assert self.producer is not None
        transaction = Transaction(len(self.transactions))
        self.transactions.append(transaction)
        self.producer.send(TOPIC, transaction.values, GROUP, transaction.number)
        return transaction

    def _end(self, broker: Broker, transaction: Transaction, *, commit: bool) -> None:
        assert self.producer is not None
        transaction.fate = Fate.COMMITTING if commit else Fate.ABORTING
        error = self.producer.end(commit=commit)
        assert error is Error.NONE, error
        if self.version == 2:
            self._given(self.producer)
        self._over(broker, transaction, Fate.COMMITTED if commit else Fate.ABORTED)

    def _over(self, broker: Broker, transaction: Transaction, fate: Fate) -> None:
        if transaction.fate is not Fate.TIMING_OUT:
            transaction.fate = fate
        until(lambda: is_at_rest(broker), "no transaction is open")
        transaction.fate = fate


def is_at_rest(broker: Broker) -> bool:
    """No transaction is open, and every partition's last stable offset is its end."""
    state = broker.state(TRANSACTIONAL_ID)
    return state in ("", "Empty", "CompleteCommit", "CompleteAbort") and all(
        broker.end(TOPIC, partition) == broker.end(TOPIC, partition, isolation_level=READ_COMMITTED)
        for partition in PARTITIONS
    )

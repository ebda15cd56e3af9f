"""The state of a partition's producers: sequences, epochs, open transactions.

A batch is checked against the state, then written, then applied. A check changes nothing, so a failed write
leaves the state as it was. Replay after a restart applies batches in the same way. Sources: KIP-98, KIP-360,
KIP-890, KIP-1228; org.apache.kafka.storage ProducerStateManager, ProducerAppendInfo.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple
from weakref import WeakSet

from protocol.errors import Error, KafkaError
from protocol.records.batch import (
    MAX_PRODUCER_EPOCH,
    MAX_SEQUENCE,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    EndTransactionMarker,
)
from storage.indexes import AbortedTxn

logger = logging.getLogger(__name__)

NO_OFFSET = -1


class CachedBatch(NamedTuple):
    """One of a producer's last batches. A duplicate is recognized by it, and answered with it."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class Producer:
    """A producer's state. `txn_first_offset` is -1 outside a transaction. `batches` are the last five."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp_ms",
        "producer_id",
        "txn_first_offset",
    )

    def __init__(
        self,
        producer_id: int,
        epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp_ms: int = NO_TIMESTAMP,
        txn_first_offset: int = NO_OFFSET,
        batches: Iterable[CachedBatch] = (),
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp_ms = last_timestamp_ms
        self.txn_first_offset = txn_first_offset
        self.batches = list(batches)

    @property
    def last_sequence(self) -> int:
        """-1 if no batch of this epoch is known."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in reversed(self.__slots__))
        return f"Producer({fields})"


def is_expired(producer: Producer, now_ms: int, expiration_ms: int) -> bool:
    return producer.txn_first_offset < 0 and now_ms - producer.last_timestamp_ms >= expiration_ms


# ---- transactional appends that wait for the coordinator's verification (KIP-890)
#
# The first batch of a transaction must show the guard that its producer got when the coordinator was asked.
# So a batch that was still on its way when its transaction ended can't open a new one, which nobody would
# end. Source: org.apache.kafka.storage VerificationStateEntry, VerificationGuard.


class VerificationGuard:
    """Identifies one waiting append: both the guard to show and Kafka's entry for it."""

    __slots__ = ("created_ms", "epoch", "lowest_sequence", "supports_epoch_bump")

    def __init__(self, created_ms: int, sequence: int, epoch: int, supports_epoch_bump: bool) -> None:
        self.created_ms = created_ms
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.supports_epoch_bump = supports_epoch_bump
        """True if the producer uses transaction version 2."""


class Verifications(dict[int, VerificationGuard]):
    """The guards that were given out, by producer id, oldest first."""

    __slots__ = ()

    def start(
        self, producer_id: int, sequence: int, epoch: int, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard:
        """Return the guard to show. If several batches wait, it keeps their lowest sequence."""
        guard = self.get(producer_id)
        if guard is None:
            most = MOST_IN_PARTITION
            if len(self) >= most:
                self.forget_oldest(share(most))
            guard = self[producer_id] = VerificationGuard(now_ms, sequence, epoch, supports_epoch_bump)
        elif epoch > guard.epoch:
            guard.epoch = epoch
            guard.lowest_sequence = sequence
        elif epoch == guard.epoch and sequence < guard.lowest_sequence:
            guard.lowest_sequence = sequence
        return guard

    def end_by_marker(self, producer_id: int, marker_epoch: int) -> None:
        """Remove the guard because of a marker, unless the marker ended the epoch before it (version 2)."""
        guard = self.get(producer_id)
        if guard is not None and not (guard.supports_epoch_bump and marker_epoch == guard.epoch):
            del self[producer_id]

    def forget_oldest(self, count: int) -> None:
        """Remove the oldest guards. An append that shows one of them is refused."""
        for producer_id in [*islice(self, count)]:
            del self[producer_id]

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        for producer_id, guard in list(self.items()):
            if now_ms - guard.created_ms >= expiration_ms:
                del self[producer_id]


# ---- all producers of one partition

BATCHES_TO_RETAIN = 5


class ProducerStates:
    """The producers of one partition, by id, and its transactions, by first offset.

    `map_end_offset` is the offset up to which the state matches the log.
    """

    __slots__ = (
        "__weakref__",
        "_full_at",
        "_ongoing",
        "_with_marker",
        "map_end_offset",
        "memory",
        "producers",
        "topic_partition",
        "unreplicated",
        "verifications",
    )

    def __init__(self, topic_partition: str) -> None:
        self.topic_partition = topic_partition
        self.producers: dict[int, Producer] = {}
        self.map_end_offset = 0
        # by first offset, ascending: transactions open in the order of the log
        self._ongoing: dict[int, int] = {}
        # how many producers have a marker
        self._with_marker = 0
        # first offset → the marker's offset, for transactions whose marker isn't below the high watermark
        self.unreplicated: dict[int, int] = {}
        self.verifications = Verifications()
        self.memory: ProducerMemory | None = None
        self._full_at = MOST_IN_PARTITION

    # ---- checks before the write

    def find_duplicate(self, header: BatchHeader) -> CachedBatch | None:
        """The cached batch of the same epoch with exactly these sequences."""
        producer = self.producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        first = header.base_sequence
        for batch in producer.batches:
            if batch.first_sequence == first and batch.last_sequence == header.last_sequence:
                return batch
        return None

    def check_data(self, header: BatchHeader, base_offset: int, *, checks_sequence: bool) -> None:
        """Refuse a batch that may not follow its producer's state.

        Raises `KafkaError`: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE.
        """
        producer = self.producers.get(header.producer_id)
        epoch = header.producer_epoch
        known_epoch = producer.epoch if producer is not None else NO_PRODUCER_EPOCH
        if epoch < known_epoch:
            raise KafkaError(
                Error.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {header.producer_id} at offset {base_offset} in {self.topic_partition} is "
                f"{epoch}, which is smaller than the last seen epoch {known_epoch}",
            )
        if checks_sequence:
            self._check_sequence(header, producer, known_epoch)
        if producer is not None and producer.txn_first_offset >= 0 and not header.is_transactional:
            raise KafkaError(
                Error.INVALID_TXN_STATE,
                f"Expected transactional write from producer {header.producer_id} in {self.topic_partition}",
            )

    def _check_sequence(self, header: BatchHeader, producer: Producer | None, known_epoch: int) -> None:
        sequence = header.base_sequence
        if self.verifications:
            self._check_verified_sequence(header, producer)
        if header.producer_epoch != known_epoch:
            if sequence == 0 or known_epoch == NO_PRODUCER_EPOCH:
                return
            expected = "0 in a new epoch"
        else:
            if producer is None or known_epoch == NO_PRODUCER_EPOCH:
                return
            last = producer.last_sequence
            if sequence == last + 1 or (sequence == 0 and last == MAX_SEQUENCE):
                return
            expected = f"one after {last}"
        raise KafkaError(
            Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Out of order sequence number for producer {header.producer_id} in {self.topic_partition}: "
            f"{sequence} (incoming seq. number), expected {expected}",
        )

    def _check_verified_sequence(self, header: BatchHeader, producer: Producer | None) -> None:
        verification = self.verifications.get(header.producer_id)
        if verification is None:
            return
        sequence = header.base_sequence
        starts_anew = producer is None or not producer.batches
        if (verification.supports_epoch_bump and sequence != 0 and starts_anew) or (
            sequence > verification.lowest_sequence
        ):
            raise KafkaError(
                Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Invalid sequence number for producer {header.producer_id} in {self.topic_partition}: {sequence}, "
                f"the earliest seen in this transaction is {verification.lowest_sequence}",
            )

    def check_verified(self, header: BatchHeader, guard: VerificationGuard | None) -> None:
        """Refuse a transactional batch that the coordinator didn't verify, unless its transaction is open here.

        Raises `KafkaError`: INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE.
        """
        producer_id = header.producer_id
        if self.has_ongoing_transaction(producer_id, header.producer_epoch):
            return
        self.check_epoch(producer_id, header.producer_epoch)
        if not header.is_control and (guard is None or self.verifications.get(producer_id) is not guard):
            raise KafkaError(
                Error.INVALID_TXN_STATE, f"Record was not part of an ongoing transaction: {producer_id}"
            )

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Raises `KafkaError` (INVALID_PRODUCER_EPOCH) for an epoch below the known one."""
        producer = self.producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise KafkaError(
                Error.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {producer_id} is {epoch}, which is smaller than the last seen epoch "
                f"{producer.epoch}",
            )

    def check_marker(self, header: BatchHeader, marker: EndTransactionMarker) -> None:
        """Refuse a marker of an earlier epoch, or of a coordinator that was replaced.

        From transaction version 2 on, a marker's epoch must be above the known one, since the coordinator
        adds one at every end (KIP-1228). The same epoch is a retry if nothing is open (KAFKA-19999), and so
        is 32767. Raises `KafkaError`: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        producer = self.producers.get(header.producer_id)
        if producer is None:
            return
        epoch = header.producer_epoch
        known = producer.epoch
        retried = producer.txn_first_offset < 0 or epoch == MAX_PRODUCER_EPOCH
        if epoch < known or (marker.transaction_version >= 2 and epoch == known and not retried):
            raise KafkaError(
                Error.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {header.producer_id} in {self.topic_partition} is {epoch}, which may not end a "
                f"transaction of epoch {known} (TV{marker.transaction_version})",
            )
        if producer.coordinator_epoch > marker.coordinator_epoch:
            raise KafkaError(
                Error.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch for producer {header.producer_id} in {self.topic_partition}: "
                f"{marker.coordinator_epoch} (zombie), {producer.coordinator_epoch} (current)",
            )

    # ---- changes after the write

    def apply_data(self, header: BatchHeader, base_offset: int) -> None:
        """Apply a data batch, written at `base_offset`. A transactional one opens a transaction if none is open."""
        producer_id = header.producer_id
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self._new(producer_id)
        batches = producer.batches
        if producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            batches.clear()
        elif len(batches) == BATCHES_TO_RETAIN:
            del batches[0]
        delta = header.last_offset_delta
        first = header.base_sequence
        last = first + delta
        if last > MAX_SEQUENCE or first < 0:
            last = header.last_sequence
        timestamp_ms = producer.last_timestamp_ms = header.max_timestamp
        batches.append(CachedBatch(first, last, base_offset, base_offset + delta, timestamp_ms))
        if header.attributes & 0x10:
            if producer.txn_first_offset < 0:
                producer.txn_first_offset = base_offset
                self._ongoing[base_offset] = producer_id
            if self.verifications:
                self.verifications.pop(producer_id, None)

    def aborted_by(self, header: BatchHeader, marker: EndTransactionMarker, offset: int) -> AbortedTxn | None:
        """The transaction index's entry for a marker at `offset`, or None unless it aborts data.

        Its last stable offset is the first offset of the earliest transaction that another producer has open,
        or else one more than the marker's offset.
        """
        producer = self.producers.get(header.producer_id)
        if marker.commit or producer is None or producer.txn_first_offset < 0:
            return None
        stable = offset + 1
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != header.producer_id:
                stable = first_offset
                break
        return AbortedTxn(header.producer_id, producer.txn_first_offset, offset, stable)

    def apply_marker(self, header: BatchHeader, marker: EndTransactionMarker, offset: int) -> None:
        """Apply a marker, written at `offset`. It ends the open transaction, if there is one."""
        producer_id = header.producer_id
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self._new(producer_id)
        if producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        self._with_marker += (marker.coordinator_epoch >= 0) - (producer.coordinator_epoch >= 0)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp_ms = marker.timestamp_ms
        first_offset = producer.txn_first_offset
        if first_offset >= 0:
            producer.txn_first_offset = NO_OFFSET
            del self._ongoing[first_offset]
            self.unreplicated[first_offset] = offset
        self.verifications.end_by_marker(producer_id, header.producer_epoch)

    def apply_emptied_marker(self, header: BatchHeader) -> None:
        """Apply a marker that compaction has emptied. Only the producer's epoch is left of it.

        Kafka ignores it, and so forgets the producer if no snapshot has it.
        """
        producer = self.producers.get(header.producer_id)
        if producer is None:
            producer = self._new(header.producer_id)
        if producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.last_timestamp_ms = header.max_timestamp

    # ---- transactions

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest transaction that is open, or whose marker isn't below the high
        watermark."""
        first = next(iter(self._ongoing), None)
        if self.unreplicated:
            unreplicated = min(self.unreplicated)
            return unreplicated if first is None else min(first, unreplicated)
        return first

    def oldest_open(self) -> Producer | None:
        """The producer with the earliest open transaction."""
        producer_id = next(iter(self._ongoing.values()), None)
        return None if producer_id is None else self.producers.get(producer_id)

    @property
    def knows_transactions(self) -> bool:
        """True if any producer has a marker or an open transaction."""
        return bool(self._ongoing) or self._with_marker > 0

    def has_ongoing_transaction(self, producer_id: int, epoch: int) -> bool:
        producer = self.producers.get(producer_id)
        return producer is not None and producer.txn_first_offset >= 0 and producer.epoch == epoch

    def on_high_watermark(self, high_watermark: int) -> None:
        """Note that transactions with a marker below the offset are replicated."""
        for first_offset, last_offset in list(self.unreplicated.items()):
            if last_offset < high_watermark:
                del self.unreplicated[first_offset]

    # ---- the producers as a whole

    @property
    def held(self) -> int:
        """The number of known producers, plus the guards."""
        return len(self.producers) + len(self.verifications)

    def _new(self, producer_id: int) -> Producer:
        """Add a new producer. This may forget others."""
        most = MOST_IN_PARTITION
        if len(self.producers) >= self._full_at:
            count = self._forget(len(self.producers) - most + share(most))
            logger.warning(
                "%s: forgetting %d producers, because there are too many", self.topic_partition, count
            )
            # If nearly all have open transactions, few can go. Don't try again with each new one.
            self._full_at = max(most, len(self.producers) + share(most))
        if self.memory is not None:
            self.memory.comes(self)
        producer = self.producers[producer_id] = Producer(producer_id)
        return producer

    def start_verification(
        self, producer_id: int, sequence: int, epoch: int, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard:
        """Return the guard that the producer's append has to show."""
        if self.memory is not None and producer_id not in self.verifications:
            self.memory.comes(self)
        return self.verifications.start(producer_id, sequence, epoch, supports_epoch_bump, now_ms)

    def forget(self, count: int) -> int:
        """Forget this many producers and guards, in proportion to their numbers. Returns the number of producers."""
        guards = count * len(self.verifications) // max(self.held, 1)
        self.verifications.forget_oldest(guards)
        return self._forget(count - guards)

    def _forget(self, count: int) -> int:
        orders = {
            each.producer_id: each.batches[-1].last_offset
            if each.batches
            else silence_order(NO_OFFSET, each.last_timestamp_ms)
            for each in self.producers.values()
            if each.txn_first_offset < 0
        }
        silent = longest_silent(orders, count)
        for producer_id in silent:
            self._with_marker -= self.producers.pop(producer_id).coordinator_epoch >= 0
        return len(silent)

    def count_in(self, memory: ProducerMemory) -> None:
        """Count these producers in `memory`, the sum for all partitions of a node, from now on."""
        self.memory = memory
        memory.count(self)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers without an open transaction that have been silent for this long. Returns how many."""
        expired = [p for p in self.producers.values() if is_expired(p, now_ms, expiration_ms)]
        for producer in expired:
            self._let_go(producer)
        self.verifications.expire(now_ms, expiration_ms)
        return len(expired)

    def expire_now(self, producer_id: int) -> bool:
        """Forget this producer as if it had expired. Returns False if it is unknown, or has an open transaction."""
        producer = self.producers.get(producer_id)
        if producer is None or producer.txn_first_offset >= 0:
            return False
        self._let_go(producer)
        return True

    def _let_go(self, producer: Producer) -> None:
        del self.producers[producer.producer_id]
        self._with_marker -= producer.coordinator_epoch >= 0

    def reset(self, producers: Iterable[Producer], map_end_offset: int) -> None:
        """Start over with the producers of a snapshot."""
        self.producers = {producer.producer_id: producer for producer in producers}
        open_ones = sorted(
            (p.txn_first_offset, p.producer_id) for p in self.producers.values() if p.txn_first_offset >= 0
        )
        self._ongoing = dict(open_ones)
        self._with_marker = sum([p.coordinator_epoch >= 0 for p in self.producers.values()])
        self.unreplicated = {}
        self.map_end_offset = map_end_offset


# ---- the most producers of one partition, and of all partitions of a node
#
# A client that makes up producer ids leaves an entry for each, for `producer.id.expiration.ms`: a day. Beyond
# a bound, those that wrote the longest ago are forgotten, as if they had expired, but never one with an open
# transaction. Their age is the offset of their last batch. Snapshots and batches contain it, so a start
# decides in the same way, and unlike a timestamp it can't be forged.

MOST_IN_PARTITION = 100_000
"""The most producers of one partition, and the most guards."""
MOST_IN_NODE = 250_000
"""The most producers and guards of all partitions."""
_AFTER_ALL_TIMES = 1 << 63


def share(most: int) -> int:
    """How many to forget at once: an eighth, so that searches for them are rare."""
    return max(most // 8, 1)


def silence_order(last_offset: int, last_timestamp_ms: int) -> int:
    """A sort key, smaller for producers that wrote earlier.

    Producers with only a marker and no offset (-1) come first: their next batch begins an epoch anyway.
    """
    return last_offset if last_offset >= 0 else last_timestamp_ms - _AFTER_ALL_TIMES


def longest_silent(orders: dict[int, int], count: int) -> list[int]:
    """The producers that wrote the longest ago, by `silence_order`; a few more if some have the same age."""
    if not orders or count <= 0:
        return []
    last = sorted(orders.values())[min(count, len(orders)) - 1]
    return [producer_id for producer_id, order in orders.items() if order <= last]


class ProducerMemory:
    """The producers of all partitions of a node.

    New ones are added to a sum. Once that reaches the bound, all are counted anew, which takes those into
    account that have gone.
    """

    __slots__ = ("_left", "_partitions")

    def __init__(self) -> None:
        self._partitions: WeakSet[ProducerStates] = WeakSet()
        self._left = MOST_IN_NODE
        """How many more may come before the next count."""

    def count(self, states: ProducerStates) -> None:
        """Count the producers that a partition already knows."""
        if states.held:
            self.comes(states, states.held)

    def comes(self, states: ProducerStates, number: int = 1) -> None:
        """Make room for a new producer of the partition, or a new guard."""
        self._partitions.add(states)  # not earlier: most partitions have no producers
        self._left -= number
        if self._left < 0:
            self._make_room()

    def _make_room(self) -> None:
        held = sum(states.held for states in self._partitions)
        if held >= MOST_IN_NODE:
            self._cut_down(MOST_IN_NODE - share(MOST_IN_NODE))
            held = sum(states.held for states in self._partitions)
        # If all have open transactions none can go. Don't try again with each new one.
        self._left = MOST_IN_NODE - held - 1 if held < MOST_IN_NODE else share(MOST_IN_NODE)

    def _cut_down(self, most: int) -> None:
        """Reduce partitions above a common level to that level. Those below it lose nothing."""
        by_size = sorted(self._partitions, key=lambda states: states.held)
        level = 0
        for at, states in enumerate(by_size):
            level = most // (len(by_size) - at)
            if states.held > level:
                break
            most -= states.held
        large = [states for states in by_size if states.held > level]
        forgotten = sum([states.forget(states.held - level) for states in large])
        told = "%d producers that wrote the longest ago are forgotten, in %d partitions: there are too many"
        logger.warning(told, forgotten, len(large))

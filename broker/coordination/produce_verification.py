"""Asking a transaction's coordinator before a producer's batches are appended (KIP-890; Kafka:
`ReplicaManager.handleProduceAppend`).

A transactional batch that is the first of its transaction in a partition is appended once the transaction's
coordinator has said that it may be: it verifies that the partition is in the transaction, or from Produce v12 on adds
it. Where an earlier end of the same transactional id is still under way then, v12 and later ask again for up to
`add.partitions.to.txn.retry.backoff.max.ms`, which is quicker than the client is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING

from broker.coordination.add_partitions_to_txn_manager import (
    ADD_PARTITION,
    AddPartitionsToTxnManager,
    TransactionSupportedOperation,
    Verified,
)
from broker.network.later import Later
from broker.network.turns import PER_TURN, portions
from coordinator.transaction.producer_ids import TransactionalProducer
from protocol.errors import Error
from protocol.records.batch import ATTRIBUTES_POS, PRODUCER_ID_POS, TRANSACTIONAL_BIT
from protocol.records.checks import RequestFailedError
from protocol.waiting import turn

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.environment.scheduler import Clock, LoopTimers
    from broker.replicas.partition import Partition

_ATTRIBUTES_LOW_BYTE_POS = ATTRIBUTES_POS + 1
_PRODUCER = Struct(">qhi")  # id, epoch, base sequence: neighbours in a batch's header

# What keeps the coordinator from answering is told in a way that has every client come again.
_NOT_VERIFIED = frozenset(
    {
        Error.NETWORK_EXCEPTION,
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.NOT_COORDINATOR,
    }
)

SEVERAL_SENDERS = Error.INVALID_PRODUCER_ID_MAPPING
MORE_THAN_ONE_SENDER = "Transactional records contained more than one producer ID"


def is_transactional(records: memoryview | None) -> bool:
    """Whether the first batch has the flag."""
    return (
        records is not None
        and len(records) > _ATTRIBUTES_LOW_BYTE_POS
        and bool(records[_ATTRIBUTES_LOW_BYTE_POS] & TRANSACTIONAL_BIT)
    )


def transactional_producer(
    transactional_id: str, batches: Iterable[tuple[Partition, memoryview]]
) -> tuple[TransactionalProducer, dict[Partition, int]] | None:
    """Who sends them, and the first sequence of each partition's batch; None where no batch has a producer.

    Raises RequestFailedError where there are several, or where a batch ends too soon.
    """
    first: tuple[int, int] | None = None
    several = False
    sequences: dict[Partition, int] = {}
    for partition, batch in batches:
        # With a negative producer id the flag means nothing, as in Kafka.
        if is_transactional(batch) and batch[PRODUCER_ID_POS] < 0x80:
            if len(batch) < PRODUCER_ID_POS + _PRODUCER.size:
                raise RequestFailedError(Error.UNKNOWN_SERVER_ERROR)  # here Kafka reads past the end
            producer_id, producer_epoch, sequence = _PRODUCER.unpack_from(batch, PRODUCER_ID_POS)
            if first is None:
                first = (producer_id, producer_epoch)
            elif first != (producer_id, producer_epoch):
                several = True
            sequences[partition] = sequence
    if several:
        raise RequestFailedError(SEVERAL_SENDERS, MORE_THAN_ONE_SENDER)
    return None if first is None else (TransactionalProducer(transactional_id, *first), sequences)


async def sender_of(
    transactional_id: str, batches: Sequence[tuple[Partition, memoryview]]
) -> tuple[TransactionalProducer, dict[Partition, int]] | None:
    """As `transactional_producer`; many are gone through in turns."""
    if len(batches) <= PER_TURN:
        return transactional_producer(transactional_id, batches)
    sender: TransactionalProducer | None = None
    sequences: dict[Partition, int] = {}
    several = False
    for some in portions(batches):
        try:
            found = transactional_producer(transactional_id, some)
        except RequestFailedError as failure:
            if failure.error is not SEVERAL_SENDERS:
                raise
            several = True  # a batch that ends too soon comes before it, wherever it is
        else:
            if found is not None:
                if sender is not None and found[0] != sender:
                    several = True
                sender = found[0]
                sequences.update(found[1])
        await turn()
    if several:
        raise RequestFailedError(SEVERAL_SENDERS, MORE_THAN_ONE_SENDER)
    return None if sender is None else (sender, sequences)


class ProduceVerification:
    """The port of the Produce handler."""

    def __init__(
        self, manager: AddPartitionsToTxnManager, config: BrokerConfig, clock: Clock, timers: LoopTimers
    ) -> None:
        self.manager = manager
        self.config = config
        self.clock = clock
        self.timers = timers

    async def verified(
        self, producer: TransactionalProducer, sequences: Mapping[Partition, int], version: int
    ) -> Verified:
        """What the coordinator says of each partition's batch."""
        operation = TransactionSupportedOperation.of_produce(version)
        first_s: float | None = None  # when it was found that it has to be asked again
        while True:
            verified = await self.manager.added_or_verified(producer, sequences, operation)
            if (
                operation is not ADD_PARTITION
                or Error.CONCURRENT_TRANSACTIONS not in verified.errors.values()
            ):
                return verified
            now_s = self.clock.monotonic_s()
            if first_s is None:
                first_s = now_s
            elif (now_s - first_s) * 1000 >= self._limit_ms():
                return verified
            await self._backed_off()

    def _limit_ms(self) -> int:
        """For so long it is asked again."""
        config = self.config
        limit_ms = config.get_int("add.partitions.to.txn.retry.backoff.max.ms")
        return min(limit_ms, config.get_int("request.timeout.ms"))

    async def _backed_off(self) -> None:
        over: Later[None] = Later()
        backoff_ms = self.config.get_int("add.partitions.to.txn.retry.backoff.ms")
        self.timers.schedule(over, backoff_ms, partial(over.reply, None))
        over.waits_for(partial(self.timers.cancel, over))  # nobody is asked again for a client that has gone
        await over


def told_to_producer(error: Error, version: int) -> tuple[Error, str | None]:
    """What a producer is told of a partition that the coordinator refused: an error, and words to it."""
    operation = TransactionSupportedOperation.of_produce(version)
    if error in _NOT_VERIFIED or (error is Error.CONCURRENT_TRANSACTIONS and operation is not ADD_PARTITION):
        message = f"It can't be verified now that the partition is in the transaction: {error.name}"
        return Error.NOT_ENOUGH_REPLICAS, message
    if error is Error.INVALID_TXN_STATE:
        return error, "The partition was not added to the transaction"
    return error, None

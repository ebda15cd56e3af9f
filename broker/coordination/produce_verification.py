"""Asking a transaction's coordinator before a producer's batches are appended (KIP-890; Kafka:
`ReplicaManager.handleProduceAppend`).

A transactional batch that is the first of its transaction in a partition is appended once the transaction's
coordinator has said that it may be: it verifies that the partition is in the transaction, or from Produce v12 on adds
it. Where an earlier end of the same transactional id is still under way then, v12 and later ask again for up to
`add.partitions.to.txn.retry.backoff.max.ms`, which is quicker than the client is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from typing import TYPE_CHECKING

from broker.coordination.add_partitions_to_txn_manager import (
    ADD_PARTITION,
    AddPartitionsToTxnManager,
    TransactionSupportedOperation,
    Verified,
)
from broker.network.turns import PER_TURN, portions
from coordinator.transaction.producer_ids import TransactionalProducer
from protocol.errors import Error
from protocol.records.batch import ATTRIBUTES_POS, PRODUCER_ID_POS, TRANSACTIONAL_BIT
from protocol.records.checks import RequestFailedError
from protocol.waiting import turn

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.environment.clock import Clock
    from broker.environment.timers import LoopTimers
    from broker.network.turns import Turns
    from broker.replicas.partition import Partition

log = logging.getLogger("barnabas.transactions")

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

WhenVerified = Callable[[Verified], None]


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


async def sender_in_turns(
    transactional_id: str, batches: Sequence[tuple[Partition, memoryview]]
) -> tuple[TransactionalProducer, dict[Partition, int]] | None:
    """As `transactional_producer`, of many."""
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
        self,
        manager: AddPartitionsToTxnManager,
        config: BrokerConfig,
        clock: Clock,
        timers: LoopTimers,
        turns: Turns,
    ) -> None:
        self.manager = manager
        self.config = config
        self.clock = clock
        self.timers = timers
        self.turns = turns

    def verify(
        self, producer: TransactionalProducer, sequences: Mapping[Partition, int], version: int
    ) -> Verified | Verifying:
        """What the coordinator says, where it can be known in this call; else who tells it later."""
        operation = TransactionSupportedOperation.of_produce(version)
        announced = self.manager.announce(producer, sequences, operation)
        if not announced.guards:
            return announced
        return Verifying(self, producer, sequences, operation).ask(announced)

    async def verify_in_turns(
        self, producer: TransactionalProducer, sequences: Mapping[Partition, int], version: int
    ) -> Verified | Verifying:
        """As `verify`, of many partitions."""
        operation = TransactionSupportedOperation.of_produce(version)
        announced = await self.manager.announce_in_turns(producer, sequences, operation)
        if not announced.guards:
            return announced
        return Verifying(self, producer, sequences, operation).ask(announced)


class Verifying:
    """One request's question to the coordinator, and what is asked again of it."""

    __slots__ = (
        "_begun_s",
        "_found",
        "_is_abandoned",
        "_operation",
        "_port",
        "_producer",
        "_sequences",
        "_then",
    )

    def __init__(
        self,
        port: ProduceVerification,
        producer: TransactionalProducer,
        sequences: Mapping[Partition, int],
        operation: TransactionSupportedOperation,
    ) -> None:
        self._port = port
        self._producer = producer
        self._sequences = sequences
        self._operation = operation
        self._found: Verified | None = None
        self._then: WhenVerified | None = None
        self._is_abandoned = False
        self._begun_s: float | None = None  # when it was asked again for the first time

    def ask(self, announced: Verified) -> Verified | Verifying:
        """What the coordinator says at once and for good; else this, which tells it later."""
        self._port.manager.ask(self._producer, announced, self._operation, self._verified)
        return self if self._found is None else self._found

    def when_verified(self, then: WhenVerified) -> None:
        """`then` is called once, unless the client goes before."""
        self._then = then

    def abandon(self) -> None:
        """The client has gone."""
        self._is_abandoned = True
        self._then = None
        self._port.timers.cancel(self)

    def _ask_again(self) -> None:
        port = self._port
        if len(self._sequences) > PER_TURN:
            port.turns.carry_out(self._ask_again_in_turns(), self._failed)
        else:
            port.manager.add_or_verify(self._producer, self._sequences, self._operation, self._verified)

    async def _ask_again_in_turns(self) -> None:
        manager, producer, operation = self._port.manager, self._producer, self._operation
        announced = await manager.announce_in_turns(producer, self._sequences, operation)
        if self._is_abandoned:
            return
        if announced.guards:
            manager.ask(producer, announced, operation, self._verified)
        else:
            self._verified(announced)

    def _failed(self, error: BaseException) -> None:
        log.error("partitions can't be added to a transaction", exc_info=error)
        self._verified(Verified(dict.fromkeys(self._sequences, Error.COORDINATOR_NOT_AVAILABLE), {}))

    def _verified(self, verified: Verified) -> None:
        if self._is_abandoned:
            return
        if verified.errors and self._asks_again(verified):
            backoff_ms = self._port.config.get_int("add.partitions.to.txn.retry.backoff.ms")
            self._port.timers.schedule(self, backoff_ms, self._ask_again)
            return
        then, self._then = self._then, None
        if then is None:
            self._found = verified  # in the call that asks
        else:
            then(verified)

    def _asks_again(self, verified: Verified) -> bool:
        """Whether the end of the transaction before is under way, and there is time left."""
        if (
            self._operation is not ADD_PARTITION
            or Error.CONCURRENT_TRANSACTIONS not in verified.errors.values()
        ):
            return False
        now_s = self._port.clock.monotonic_s()
        if self._begun_s is None:
            self._begun_s = now_s
            return True
        config = self._port.config
        limit_ms = min(
            config.get_int("add.partitions.to.txn.retry.backoff.max.ms"), config.get_int("request.timeout.ms")
        )
        return (now_s - self._begun_s) * 1000 < limit_ms


def told_to_producer(error: Error, version: int) -> tuple[Error, str | None]:
    """What a producer is told of a partition that the coordinator refused: an error, and words to it."""
    operation = TransactionSupportedOperation.of_produce(version)
    if error in _NOT_VERIFIED or (error is Error.CONCURRENT_TRANSACTIONS and operation is not ADD_PARTITION):
        message = f"It can't be verified now that the partition is in the transaction: {error.name}"
        return Error.NOT_ENOUGH_REPLICAS, message
    if error is Error.INVALID_TXN_STATE:
        return error, "The partition was not added to the transaction"
    return error, None

"""Asking a transaction's coordinator before a producer's batches are appended (KIP-890; Kafka:
`ReplicaManager.handleProduceAppend`).

The first batch of a transaction in a partition is appended once the transaction's coordinator has allowed it: it
verifies that the partition is in the transaction, or from Produce v12 on adds it. If an earlier transaction of the same
transactional id is still being ended, v12 and later ask again for up to `add.partitions.to.txn.retry.backoff.max.ms`.
That is quicker than a retry of the client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from broker.network.turns import PER_TURN, portions
from coordinator.transaction.producer_ids import TransactionalProducer
from protocol.errors import NO_ERROR, Error, KafkaError
from protocol.records.batch import ATTRIBUTES_LOW_BYTE_POS, PRODUCER_ID_POS, TRANSACTIONAL_BIT
from protocol.records.checks import RequestFailedError
from protocol.waiting import Later, turn

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.coordination.transactions import Transactions
    from broker.environment.scheduler import Clock, LoopTimers
    from broker.replicas.partition import Partition
    from protocol.topic_partition import TopicPartition
    from storage.producer_state import VerificationGuard


# --- Verifying that an append belongs to a transaction that its coordinator knows (KIP-890) --------------------
#
# The first append of a transaction to a partition is announced to the log, which returns a guard. Then the
# coordinator is asked, and the guard goes with the append. So a batch that was on its way when its transaction
# ended can't open another transaction that nobody would end. Clients of transactions version 2 don't add
# partitions themselves: the question to the coordinator adds them. Sources: `AddPartitionsToTxnManager`,
# `ReplicaManager.maybeSendPartitionsToTransactionCoordinator`.

Errors: TypeAlias = "Mapping[TopicPartition, Error]"
AskElsewhere: TypeAlias = (
    "Callable[[TransactionalProducer, Sequence[TopicPartition], bool], Later[Errors] | None]"
)
"""Takes a producer, partitions, and whether to verify only. Returns None if the coordinator isn't on another node."""

TRANSACTION_VERSION_2 = 2

# the first versions whose clients know TRANSACTION_ABORTABLE, and whose appends add their partitions
_PRODUCE_VERSIONS = (11, 12)
_TXN_OFFSET_COMMIT_VERSIONS = (4, 5)


class TransactionSupportedOperation(Enum):
    """What the coordinator is to do, and which errors the client knows."""

    DEFAULT_ERROR = "verify, with errors that old clients know"
    GENERIC_ERROR = "verify"
    ADD_PARTITION = "add"

    @staticmethod
    def of_produce(version: int) -> TransactionSupportedOperation:
        return _operation(version, *_PRODUCE_VERSIONS)

    @staticmethod
    def of_txn_offset_commit(version: int) -> TransactionSupportedOperation:
        return _operation(version, *_TXN_OFFSET_COMMIT_VERSIONS)


DEFAULT_ERROR, GENERIC_ERROR, ADD_PARTITION = TransactionSupportedOperation


def _operation(version: int, new_errors_from: int, adds_from: int) -> TransactionSupportedOperation:
    if version >= adds_from:
        return ADD_PARTITION
    return GENERIC_ERROR if version >= new_errors_from else DEFAULT_ERROR


class Verified(NamedTuple):
    """`errors`: of partitions to which nothing may be appended; `guards`: for the appends to the others.

    A partition in which the transaction is open already has neither: the coordinator needn't be asked.
    """

    errors: dict[Partition, Error]
    guards: dict[Partition, VerificationGuard]


class AddPartitionsToTxnManager:
    """Asks the coordinators of transactions before appends."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        transactions: Transactions,
        elsewhere: AskElsewhere | None = None,
    ) -> None:
        """`elsewhere` asks a coordinator on another node, if there may be one."""
        self._config = config
        self._clock = clock
        self._transactions = transactions
        self._elsewhere = elsewhere

    async def added_or_verified(
        self,
        producer: TransactionalProducer,
        sequences: Mapping[Partition, int],
        operation: TransactionSupportedOperation,
    ) -> Verified:
        """Add or verify partitions. `sequences`: the first sequence of each partition's batch, or −1 if it has none."""
        announced = await self.announced(producer, sequences, operation)
        return await self.asked(producer, announced, operation) if announced.guards else announced

    async def asked(
        self, producer: TransactionalProducer, verified: Verified, operation: TransactionSupportedOperation
    ) -> Verified:
        """Ask the coordinator about the partitions that have a guard, and add its refusals to the errors."""
        asked = {(partition.topic.name, partition.index): partition for partition in verified.guards}
        statistics, monotonic_s = self._transactions.statistics, self._clock.monotonic_s
        began_s = monotonic_s()
        refused = await self._ask(producer, [*asked], operation)
        statistics.verifications.add((monotonic_s() - began_s) * 1000)
        for name, error in refused.items():
            if error is not NO_ERROR:
                statistics.verification_failures += 1
                verified.errors[asked[name]] = _told(error, operation)
        return verified

    async def _ask(
        self,
        producer: TransactionalProducer,
        asked: Sequence[TopicPartition],
        operation: TransactionSupportedOperation,
    ) -> Errors:
        if self._elsewhere is not None:
            answer = self._elsewhere(producer, asked, operation is not ADD_PARTITION)
            if answer is not None:
                return await answer
        try:
            shard = self._transactions.shard_of(producer.transactional_id)
        except KafkaError as failure:
            none_there = failure.error is Error.NOT_COORDINATOR
            error = Error.COORDINATOR_NOT_AVAILABLE if none_there else failure.error
            return dict.fromkeys(asked, error)
        if operation is not ADD_PARTITION:
            return await shard.verify_when_certain(producer, asked)
        added = shard.add_partitions(producer, asked, client_transaction_version=TRANSACTION_VERSION_2)
        refused = await added if isinstance(added, Later) else added
        return {} if refused is None else dict.fromkeys(asked, refused.error)

    async def announced(
        self,
        producer: TransactionalProducer,
        sequences: Mapping[Partition, int],
        operation: TransactionSupportedOperation,
    ) -> Verified:
        """Announce the append to each partition's log, and collect the guards. The coordinator has to be asked only
        about partitions with a guard."""
        if len(sequences) <= PER_TURN:
            return self._announce(producer, sequences, operation)
        verified = Verified({}, {})
        for some in portions([*sequences.items()]):
            part = self._announce(producer, dict(some), operation)
            verified.errors.update(part.errors)
            verified.guards.update(part.guards)
            await turn()
        return verified

    def _announce(
        self,
        producer: TransactionalProducer,
        sequences: Mapping[Partition, int],
        operation: TransactionSupportedOperation,
    ) -> Verified:
        verified = Verified({}, {})
        adds = operation is ADD_PARTITION
        if not adds and not self._config.get_boolean("transaction.partition.verification.enable"):
            return verified
        now_ms = self._clock.now_ms()
        for partition, sequence in sequences.items():
            try:
                if partition.is_gone:
                    raise KafkaError(partition.topic.missing(partition.index))
                # This comes first, so that no partition to which nothing can be appended here joins the transaction.
                guard = partition.leader().log.start_verification(
                    producer.producer_id, sequence, producer.producer_epoch, adds, now_ms
                )
            except KafkaError as error:
                verified.errors[partition] = error.error
            else:
                if guard is not None:
                    verified.guards[partition] = guard
        return verified


def _told(error: Error, operation: TransactionSupportedOperation) -> Error:
    """The error that producers expect."""
    if error is Error.PRODUCER_FENCED:
        return Error.INVALID_PRODUCER_EPOCH
    if error is Error.TRANSACTION_ABORTABLE and operation is DEFAULT_ERROR:
        return Error.INVALID_TXN_STATE
    return error


# --------------------------------------------------------------------------------------------------------------

_PRODUCER = Struct(">qhi")  # id, epoch, base sequence: neighbours in a batch's header

# For errors that keep the coordinator from answering, the producer gets an error on which every client retries.
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


def transactional_producer(
    transactional_id: str, batches: Iterable[tuple[Partition, memoryview]]
) -> tuple[TransactionalProducer, dict[Partition, int]] | None:
    """The producer of the batches, and the first sequence of each; None if no batch has a producer.

    Raises RequestFailedError if there are several producers, or if a batch is too short.
    """
    first: tuple[int, int] | None = None
    several = False
    sequences: dict[Partition, int] = {}
    for partition, batch in batches:
        # As in Kafka, the flag doesn't count with a negative producer id.
        if batch[ATTRIBUTES_LOW_BYTE_POS] & TRANSACTIONAL_BIT and batch[PRODUCER_ID_POS] < 0x80:
            if len(batch) < PRODUCER_ID_POS + _PRODUCER.size:
                raise RequestFailedError(Error.UNKNOWN_SERVER_ERROR)  # Kafka reads past the end here
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
    """As `transactional_producer`, in turns if there are many batches."""
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
            several = True  # a batch that is too short takes precedence, wherever it is
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
    """The verification for the Produce handler."""

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
        """Ask the coordinator about each partition's batch."""
        operation = TransactionSupportedOperation.of_produce(version)
        first_s: float | None = None  # when the first retry turned out to be needed
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
        """How long to ask again."""
        config = self.config
        limit_ms = config.get_int("add.partitions.to.txn.retry.backoff.max.ms")
        return min(limit_ms, config.get_int("request.timeout.ms"))

    async def _backed_off(self) -> None:
        over: Later[None] = Later()
        backoff_ms = self.config.get_int("add.partitions.to.txn.retry.backoff.ms")
        self.timers.schedule(over, backoff_ms, partial(over.reply, None))
        over.waits_for(partial(self.timers.cancel, over))  # no retry for a client that has gone
        await over


def told_to_producer(error: Error, version: int) -> tuple[Error, str | None]:
    """The error and message for a producer, about a partition that the coordinator refused."""
    operation = TransactionSupportedOperation.of_produce(version)
    if error in _NOT_VERIFIED or (error is Error.CONCURRENT_TRANSACTIONS and operation is not ADD_PARTITION):
        message = f"It can't be verified now that the partition is in the transaction: {error.name}"
        return Error.NOT_ENOUGH_REPLICAS, message
    if error is Error.INVALID_TXN_STATE:
        return error, "The partition was not added to the transaction"
    return error, None

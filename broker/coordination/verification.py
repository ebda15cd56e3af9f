"""Whether a transactional append is part of a transaction that its coordinator knows of (KIP-890).

The first append of a transaction to a partition is announced to the log, the coordinator is asked, and what the log
gave for the announcement goes with the append: so nothing that was on its way when its transaction ended can open
another one that nobody would end. Clients of transactions version 2 don't add partitions themselves: the question
adds them. Sources: `AddPartitionsToTxnManager`, `ReplicaManager.maybeSendPartitionsToTransactionCoordinator`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from broker.replicas.partitions import Partition
    from broker.server import Server
    from storage.producers.announcements import Verification

TRANSACTION_VERSION_2 = 2

# the first versions whose clients know TRANSACTION_ABORTABLE, and whose appends add their partitions
_PRODUCE_VERSIONS = (11, 12)
_TXN_OFFSET_COMMIT_VERSIONS = (4, 5)


class Operation(Enum):
    """What is asked of the coordinator, and with which errors (Kafka: `TransactionSupportedOperation`)."""

    VERIFY_WITH_OLD_ERRORS = "verify with old errors"
    VERIFY = "verify"
    ADD = "add"

    @staticmethod
    def of_produce(version: int) -> Operation:
        return _operation(version, *_PRODUCE_VERSIONS)

    @staticmethod
    def of_txn_offset_commit(version: int) -> Operation:
        return _operation(version, *_TXN_OFFSET_COMMIT_VERSIONS)


def _operation(version: int, new_errors_from: int, adds_from: int) -> Operation:
    if version >= adds_from:
        return Operation.ADD
    return Operation.VERIFY if version >= new_errors_from else Operation.VERIFY_WITH_OLD_ERRORS


class TransactionalProducer(NamedTuple):
    """Who appends."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Verified(NamedTuple):
    """`errors` of the partitions that may not be appended to; `guards` for the appends to the others.

    A partition in which the transaction is open already has neither: nobody need be asked.
    """

    errors: dict[Partition, Error]
    guards: dict[Partition, Verification]


def add_or_verify(
    server: Server,
    producer: TransactionalProducer,
    sequences: Mapping[Partition, int],
    operation: Operation,
) -> Verified:
    """`sequences`: of each partition's batch the first one, or −1 where there are none."""
    adds = operation is Operation.ADD
    verified = Verified({}, {})
    if not (adds or server.config.get_boolean("transaction.partition.verification.enable")):
        return verified
    now_ms = server.clock.now_ms()
    for partition, sequence in sequences.items():
        try:
            if partition.is_gone:
                raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
            guard = partition.log.start_verification(
                producer.producer_id, sequence, producer.producer_epoch, adds, now_ms
            )
        except KafkaError as error:
            verified.errors[partition] = error.error
        else:
            if guard is not None:
                verified.guards[partition] = guard
    if verified.guards:
        for partition, answer in _ask(server, producer, [*verified.guards], adds=adds).items():
            verified.errors[partition] = _told(answer, operation)
    return verified


def _ask(
    server: Server, producer: TransactionalProducer, partitions: list[Partition], *, adds: bool
) -> dict[Partition, Error]:
    """What keeps the coordinator from having partitions in the transaction."""
    names = {(partition.topic.name, partition.index): partition for partition in partitions}
    try:
        shard = server.transactions.shard_of(producer.transactional_id)
    except KafkaError as error:
        none_there = error.error is Error.NOT_COORDINATOR
        return dict.fromkeys(partitions, Error.COORDINATOR_NOT_AVAILABLE if none_there else error.error)
    try:
        if adds:
            shard.add_partitions(*producer, [*names], client_transaction_version=TRANSACTION_VERSION_2)
            return {}
        errors = shard.verify_partitions(*producer, [*names])
    except KafkaError as error:
        return dict.fromkeys(partitions, error.error)
    return {names[name]: error for name, error in errors.items() if error}


def _told(error: Error, operation: Operation) -> Error:
    """What producers expect to be told."""
    if error is Error.PRODUCER_FENCED:
        return Error.INVALID_PRODUCER_EPOCH
    if error is Error.TRANSACTION_ABORTABLE and operation is Operation.VERIFY_WITH_OLD_ERRORS:
        return Error.INVALID_TXN_STATE
    return error

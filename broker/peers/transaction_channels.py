"""What a partition's leader asks of a transaction's coordinator elsewhere: whether the partition is in the transaction,
or to add it.

Source: `AddPartitionsToTxnManager`; AddPartitionsToTxn v4, v5.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from broker.controller.image import NO_LEADER
from broker.coordination.transactions import TRANSACTION_TOPIC
from protocol.errors import Error, KafkaError, error_of, tell_each
from protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from protocol.topic_partition import indexes_by_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker.controller.image import ClusterImage
    from broker.peers.broker_channels import BrokerChannels
    from coordinator.transaction.producer_ids import TransactionalProducer
    from protocol.topic_partition import TopicPartition
    from protocol.wire.schema import Message

    Errors = Mapping[TopicPartition, Error]


log = logging.getLogger("barnabas.peers")


class _Asked(NamedTuple):
    producer: TransactionalProducer
    partitions: Sequence[TopicPartition]
    verify_only: bool
    then: Callable[[Errors], None]


class TransactionChannels:
    """To the coordinators of transactions."""

    def __init__(
        self,
        node_id: int,
        image: ClusterImage,
        partition_of: Callable[[str], int],
        channels: Callable[..., BrokerChannels[_Asked]],
    ) -> None:
        """`partition_of`: the partition of `__transaction_state` that a transactional id is in."""
        self._node_id = node_id
        self._image = image
        self._partition_of = partition_of
        self._channels = channels(request_of=_request_of, answered=_answered)

    def ask(
        self,
        producer: TransactionalProducer,
        partitions: Sequence[TopicPartition],
        verify_only: bool,
        then: Callable[[Errors], None],
    ) -> bool:
        """Whether the coordinator is on another node: then `then` is told each partition's error.

        Of one transactional id one ask waits to be sent, as the answer tells them apart by it: an older producer is
        fenced, INVALID_PRODUCER_EPOCH, and who asks again takes the place of what it asked before, NETWORK_EXCEPTION.
        Both are told in this call; else it is a later turn.
        """
        topic = self._image.topics.get(TRANSACTION_TOPIC)
        index = self._partition_of(producer.transactional_id)
        partition = None if topic is None else topic.partitions.get(index)
        if partition is None or partition.leader in (self._node_id, NO_LEADER):
            return False
        asked = _Asked(producer, partitions, verify_only, then)
        before = self._channels.waiting(partition.leader, producer.transactional_id)
        if before is not None and before.producer.producer_epoch > producer.producer_epoch:
            _refuse(asked, Error.INVALID_PRODUCER_EPOCH)
            return True
        self._channels.say(partition.leader, asked, producer.transactional_id)
        if before is not None:
            is_fenced = before.producer.producer_epoch < producer.producer_epoch
            _refuse(before, Error.INVALID_PRODUCER_EPOCH if is_fenced else Error.NETWORK_EXCEPTION)
        return True

    def stop(self) -> None:
        """Nobody is told of anything any more."""
        self._channels.stop()


def _refuse(asked: _Asked, error: Error) -> None:
    asked.then(dict.fromkeys(asked.partitions, error))


def _request_of(asked: Sequence[_Asked]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=each.producer.transactional_id,
                producer_id=each.producer.producer_id,
                producer_epoch=each.producer.producer_epoch,
                verify_only=each.verify_only,
                topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=indexes)
                    for name, indexes in indexes_by_topic(each.partitions).items()
                ],
            )
            for each in asked
        ]
    )


def _answered(asked: Sequence[_Asked], answer: Message | KafkaError) -> None:
    told: dict[tuple[str, str, int], Error] = {}
    error = Error.NETWORK_EXCEPTION
    if not isinstance(answer, KafkaError):
        assert isinstance(answer, AddPartitionsToTxnResponse)
        if answer.error_code:
            error = error_of(answer.error_code)
        if error is Error.CLUSTER_AUTHORIZATION_FAILED:
            error = Error.INVALID_TXN_STATE  # of this broker, which is no client's business
        told = {
            (result.transactional_id, topic.name, partition.partition_index): error_of(
                partition.partition_error_code
            )
            for result in answer.results_by_transaction
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }

    def tell(each: _Asked) -> None:
        of = each.producer.transactional_id
        each.then({name: told.get((of, *name), error) for name in each.partitions})

    tell_each(asked, tell, log, "a producer can't be told whether its transaction has the partitions")

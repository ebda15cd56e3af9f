"""Leaders' questions to transaction coordinators elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from broker.controller.image import NO_LEADER
from broker.coordination.transactions import TRANSACTION_TOPIC
from broker.peers.other_brokers import TransactionChannels
from coordinator.transaction.producer_ids import TransactionalProducer
from protocol.errors import Error, KafkaError
from protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from protocol.topic_partition import TopicPartition
from tests.unit.peers.several_brokers import OWN, SECOND, Channels, cluster

PRODUCER = TransactionalProducer("1", 9, 2)


class Asking:
    """A node that asks. A transactional id is the number of its coordinator's partition."""

    def __init__(self, *leaders: int) -> None:
        self.channels = Channels()
        self.coordinators = TransactionChannels(OWN, cluster(TRANSACTION_TOPIC, leaders), int, self.channels)
        self.answers: dict[TopicPartition, Error] = {}

    def ask(self, producer: TransactionalProducer, *partitions: TopicPartition, verify: bool = True) -> bool:
        answer = self.coordinators.ask(producer, partitions, verify)
        if answer is not None:
            later = answer
            later.when_answered(lambda: self.answers.update(later.result()))
        return answer is not None


def told(*results: tuple[str, str, int, int], error_code: int = 0) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        error_code=error_code,
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(
                                partition_index=index, partition_error_code=code
                            )
                        ],
                    )
                ],
            )
            for transactional_id, name, index, code in results
        ],
    )


@pytest.mark.parametrize(
    ("transactional_id", "is_elsewhere"), [("0", False), ("1", True), ("2", False), ("7", False)]
)
def test_a_coordinator_is_asked_where_it_is(transactional_id: str, is_elsewhere: bool) -> None:
    """If the partition has no leader or doesn't exist, this node's own answer counts."""
    node = Asking(OWN, SECOND, NO_LEADER)
    assert node.ask(TransactionalProducer(transactional_id, 9, 2), ("t", 0)) is is_elsewhere
    assert len(node.channels.items(SECOND)) == is_elsewhere
    assert node.answers == {}


def test_several_transactions_are_in_one_request() -> None:
    node = Asking(OWN, SECOND, SECOND)
    node.ask(PRODUCER, ("t", 0), ("u", 1), ("t", 2))
    node.ask(TransactionalProducer("2", 10, 3), ("t", 0), verify=False)
    request: Any = node.channels.request_of(node.channels.items(SECOND))
    assert [
        (
            each.transactional_id,
            each.producer_id,
            each.producer_epoch,
            each.verify_only,
            [(topic.name, topic.partitions) for topic in each.topics],
        )
        for each in request.transactions
    ] == [("1", 9, 2, True, [("t", [0, 2]), ("u", [1])]), ("2", 10, 3, False, [("t", [0])])]
    node.coordinators.stop()
    assert node.channels.is_stopped


@pytest.mark.parametrize(
    ("answer", "first", "second"),
    [
        (told(("1", "t", 0, 0), ("1", "t", 1, 48)), Error.NONE, Error.INVALID_TXN_STATE),
        (told(("1", "t", 0, 9_999), ("1", "t", 1, 0)), Error.UNKNOWN_SERVER_ERROR, Error.NONE),
        (told(("2", "t", 0, 0)), Error.NETWORK_EXCEPTION, Error.NETWORK_EXCEPTION),
        (told(error_code=15), Error.COORDINATOR_NOT_AVAILABLE, Error.COORDINATOR_NOT_AVAILABLE),
        (told(error_code=31), Error.INVALID_TXN_STATE, Error.INVALID_TXN_STATE),
        (KafkaError(Error.REQUEST_TIMED_OUT), Error.NETWORK_EXCEPTION, Error.NETWORK_EXCEPTION),
    ],
)
def test_each_partition_gets_its_error(answer: Any, first: Error, second: Error) -> None:
    node = Asking(OWN, SECOND)
    node.ask(PRODUCER, ("t", 0), ("t", 1))
    node.channels.answered(node.channels.items(SECOND), answer)
    assert node.answers == {("t", 0): first, ("t", 1): second}


@pytest.mark.parametrize(
    ("epochs", "waiting", "told_at_once"),
    [
        ((2, 3), 3, {("t", 0): Error.INVALID_PRODUCER_EPOCH}),
        ((2, 2), 2, {("t", 0): Error.NETWORK_EXCEPTION}),
        ((3, 2), 3, {("t", 1): Error.INVALID_PRODUCER_EPOCH}),
    ],
)
def test_one_request_of_a_transactional_id_waits_at_a_time(
    epochs: tuple[int, int], waiting: int, told_at_once: dict[TopicPartition, Error]
) -> None:
    """So nobody gets an answer that was meant for another producer."""
    node = Asking(OWN, SECOND)
    for index, epoch in enumerate(epochs):
        node.ask(TransactionalProducer("1", 9, epoch), ("t", index))
    assert node.answers == told_at_once
    (item,) = node.channels.items(SECOND)
    request: Any = node.channels.request_of([item])
    assert [each.producer_epoch for each in request.transactions] == [waiting]
    (left,) = {0, 1} - {index for _, index in told_at_once}
    node.channels.answered([item], told(("1", "t", left, 0)))
    assert node.answers == told_at_once | {("t", left): Error.NONE}

"""Requests of transactions by senders with too few rights: the authorizer is asked in Kafka's order, and they are
refused with Kafka's errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from broker.server import Server
from protocol.errors import Error
from protocol.messages.produce import InitProducerIdRequest
from protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.node.transactional import Producer, ask, coordinating, create, state
from tests.support.denying import Asked, DenyingAuthorizer

WRITE, READ, DESCRIBE, ALTER = Operation.WRITE, Operation.READ, Operation.DESCRIBE, Operation.ALTER
TX, GROUP, TOPIC, CLUSTER = (
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.GROUP,
    ResourceType.TOPIC,
    ResourceType.CLUSTER,
)
DENIED = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def asking(node: Server, *denied: tuple[Any, ...]) -> DenyingAuthorizer:
    """Give the node an authorizer that denies each (operation, resource type, name)."""
    authorizer = DenyingAuthorizer()
    for each in denied:
        authorizer.deny(*each)
    node.authorizer = authorizer
    return authorizer


async def test_init_producer_id_needs_to_write_its_transactional_id(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    authorizer = asking(node, (WRITE, TX, "tx"))
    answer = Producer(node).init()
    assert (Error(answer.error_code), answer.producer_id, answer.producer_epoch) == (DENIED, -1, -1)
    assert authorizer.asked == [Asked(WRITE, TX, "tx")]
    unpaired = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1, producer_id=5)
    assert ask(node, unpaired, 5).error_code == DENIED, "before the request itself is looked at"


async def test_an_idempotent_producer_needs_the_cluster_or_any_topic(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    cluster = (Operation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME)
    authorizer = asking(node, cluster)
    assert ask(node, request, 5).error_code == Error.NONE
    assert authorizer.asked == [Asked(*cluster), Asked(WRITE, TOPIC, None)]
    asking(node, cluster, (WRITE, TOPIC))
    assert ask(node, request, 5).error_code == Error.CLUSTER_AUTHORIZATION_FAILED


async def test_a_client_adds_partitions_of_topics_that_it_may_write(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    create(node, "u")
    producer = Producer(node, version=1).begin()
    asking(node, (WRITE, TX, "tx"))
    assert producer.add(("t", 0), ("t", 1)) == [DENIED, DENIED]
    authorizer = asking(node, (WRITE, TOPIC, "u"))
    assert producer.add(("u", 0), ("t", 0), ("none", 0)) == [
        Error.TOPIC_AUTHORIZATION_FAILED,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.OPERATION_NOT_ATTEMPTED,
    ]
    assert authorizer.asked == [
        Asked(WRITE, TX, "tx"),
        *(Asked(WRITE, TOPIC, name) for name in ("u", "t", "none")),
    ]
    assert state(node) == "Empty"


async def test_only_brokers_add_to_several_transactions(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    request = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id="tx",
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
            )
        ]
    )
    authorizer = asking(node, (Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME))
    answer = ask(node, request, 5)
    assert (answer.error_code, answer.results_by_transaction) == (Error.CLUSTER_AUTHORIZATION_FAILED, [])
    authorizer = asking(node, (WRITE, TX), (WRITE, TOPIC))
    assert ask(node, request, 5).error_code == Error.NONE
    assert authorizer.asked == [Asked(Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)]
    assert state(node) == "Ongoing"


async def test_add_offsets_needs_the_transactional_id_then_the_group(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node, version=1).begin()
    asking(node, (WRITE, TX, "tx"), (READ, GROUP, "g"))
    assert producer.add_offsets() is DENIED
    authorizer = asking(node, (READ, GROUP, "g"))
    assert producer.add_offsets() is Error.GROUP_AUTHORIZATION_FAILED
    assert authorizer.asked == [Asked(WRITE, TX, "tx"), Asked(READ, GROUP, "g")]


async def test_ending_a_transaction_needs_the_right_to_write_it(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send()
    asking(node, (WRITE, TX, "tx"))
    assert producer.end() is DENIED
    asking(node)
    assert state(node) == "Ongoing"


async def test_txn_offset_commit_needs_transactional_id_group_and_each_topic(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    create(node, "u")
    producer = Producer(node).begin()
    request = TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="g",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)],
            )
            for name in ("t", "u", "none")
        ],
    )

    def errors() -> dict[str, Error]:
        answer = ask(node, request, 5)
        return {topic.name: Error(topic.partitions[0].error_code) for topic in answer.topics}

    asking(node, (WRITE, TX, "tx"), (READ, GROUP, "g"))
    assert errors() == dict.fromkeys(("t", "u", "none"), DENIED)
    asking(node, (READ, GROUP, "g"))
    assert errors() == dict.fromkeys(("t", "u", "none"), Error.GROUP_AUTHORIZATION_FAILED)
    authorizer = asking(node, (READ, TOPIC, "u"))
    assert errors() == {
        "t": Error.NONE,
        "u": Error.TOPIC_AUTHORIZATION_FAILED,
        "none": Error.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert authorizer.asked[:2] == [Asked(WRITE, TX, "tx"), Asked(READ, GROUP, "g")]


async def test_writing_markers_needs_the_right_to_alter_the_cluster_or_to_be_part_of_it(
    tmp_path: Path,
) -> None:
    node = await coordinating(tmp_path)
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=5,
                producer_epoch=0,
                transaction_result=True,
                topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
                coordinator_epoch=0,
            )
        ]
    )

    def error() -> Error:
        [marker] = ask(node, request, 1).markers
        return Error(marker.topics[0].partitions[0].error_code)

    alter, action = (ALTER, CLUSTER, CLUSTER_NAME), (Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
    asking(node, alter, action)
    assert error() is Error.CLUSTER_AUTHORIZATION_FAILED
    authorizer = asking(node, alter)
    assert error() is Error.NONE
    assert authorizer.asked == [Asked(*alter), Asked(*action)]
    authorizer = asking(node, action)
    assert error() is Error.NONE
    assert authorizer.asked == [Asked(*alter)]


async def test_transactions_are_shown_to_users_who_may_describe_them_and_their_topics(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    create(node, "u")
    producer = Producer(node).begin()
    producer.send("t")
    producer.send("u")
    Producer(node, "other").begin()
    asking(node, (DESCRIBE, TX, "other"), (DESCRIBE, TOPIC, "u"))

    answer = ask(node, DescribeTransactionsRequest(transactional_ids=["tx", "other", "nobody"]), 0)
    assert [(each.transactional_id, Error(each.error_code)) for each in answer.transaction_states] == [
        ("tx", Error.NONE),
        ("other", DENIED),
        ("nobody", Error.TRANSACTIONAL_ID_NOT_FOUND),
    ]
    assert [topic.topic for topic in answer.transaction_states[0].topics] == ["t"]

    listed = ask(node, ListTransactionsRequest(), 2)
    assert [each.transactional_id for each in listed.transaction_states] == ["tx"]

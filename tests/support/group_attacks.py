"""What one client, or a hundred, may ask of offsets and settings to hold up all others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from barnabas import Broker
from protocol.errors import Error
from protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.groups_admin import DeleteGroupsRequest
from protocol.messages.groups_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from protocol.messages.producer_ids import InitProducerIdRequest
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.transactions import (
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.attacks import Attack
from tests.support.wire import Client, request_frame

TOPIC, BROKER = 2, 4  # kinds of resources
GROUP = "of many offsets"


def crowds() -> Iterator[Attack]:
    """A hundred clients that ask for what takes some ms each, again and again."""
    for name, resources in (
        ("all settings of the broker", [(BROKER, "1")]),
        ("all settings of topics", [(TOPIC, str(number)) for number in range(5)]),
    ):
        wanted = [
            DescribeConfigsResource(resource_type=kind, resource_name=each, configuration_keys=None)
            for kind, each in resources
        ]
        frame = request_frame(DescribeConfigsRequest(resources=wanted), 4, 1)
        yield Attack(name, [frame] * 4, connections=100)


def commits(broker: Broker, count: int) -> Iterator[Attack]:
    """Of so many offsets, by OffsetCommit and in a transaction, which ends; and their deletion, by either way. Each is
    tried first: it has to be accepted."""
    with Client.of(broker.bootstrap) as client:
        wide = CreatableTopic(name="committed", num_partitions=count, replication_factor=1)
        client.ask(CreateTopicsRequest(topics=[wide], timeout_ms=60_000), 7)
        request = InitProducerIdRequest(transactional_id="g", transaction_timeout_ms=60_000)
        producer = client.ask(request, 4)
        by: dict[str, Any] = {
            "transactional_id": "g",
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
        }
        commit = (_offset_commit(count), 9)
        for request, version in (
            commit,
            (_txn_offset_commit(count, by), 5),
            (EndTxnRequest(committed=True, **by), 4),
            (_offset_delete(count), 0),
            commit,
            (DeleteGroupsRequest(groups_names=[GROUP]), 2),
        ):
            answer = client.ask(request, version)
            assert _errors(answer) == {Error.NONE}, request
            yield Attack(f"{type(request).__name__} of {count}", [request_frame(request, version, 1)])


def _errors(answer: Any) -> set[int]:
    topics = getattr(answer, "topics", None)
    if topics is not None:
        return {partition.error_code for topic in topics for partition in topic.partitions}
    results = getattr(answer, "results", None)
    return {answer.error_code} if results is None else {result.error_code for result in results}


def _offset_commit(count: int) -> OffsetCommitRequest:
    wanted = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in range(count)
    ]
    topics = [OffsetCommitRequestTopic(name="committed", partitions=wanted)]
    return OffsetCommitRequest(group_id=GROUP, topics=topics)


def _txn_offset_commit(count: int, by: dict[str, Any]) -> TxnOffsetCommitRequest:
    wanted = [
        TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=2, committed_metadata="")
        for index in range(count)
    ]
    topics = [TxnOffsetCommitRequestTopic(name="committed", partitions=wanted)]
    return TxnOffsetCommitRequest(group_id=GROUP, member_id="", topics=topics, **by)


def _offset_delete(count: int) -> OffsetDeleteRequest:
    wanted = [OffsetDeleteRequestPartition(partition_index=index) for index in range(count)]
    return OffsetDeleteRequest(
        group_id=GROUP, topics=[OffsetDeleteRequestTopic(name="committed", partitions=wanted)]
    )

"""Requests about offsets and settings by which one client, or a hundred, may hold up all others."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from barnabas import Broker
from protocol.errors import Error
from protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.groups import (
    DeleteGroupsRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from protocol.messages.produce import InitProducerIdRequest
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.transactions import (
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.attacks import Attack
from tests.support.wire import Client, request_frame

TOPIC, BROKER = 2, 4  # types of resources
GROUP = "of many offsets"


def crowds() -> Iterator[Attack]:
    """A hundred clients ask for something that takes some ms, again and again."""
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
    """Commits of `count` offsets, by OffsetCommit and in a transaction, which ends; and their deletion, in both ways.
    The broker has to accept the preparation of each try, and the last try."""
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
        in_transaction = (_txn_offset_commit(count, by), 5)
        for before, (attack, version), offset in (
            (None, commit, 1),
            (None, in_transaction, 1),
            (in_transaction, (EndTxnRequest(committed=True, **by), 4), 2),
            (commit, (_offset_delete(count), 0), -1),
            (commit, (DeleteGroupsRequest(groups_names=[GROUP]), 2), -1),
        ):
            yield Attack(
                f"{type(attack).__name__} of {count}",
                [request_frame(attack, version, 1)],
                before=None if before is None else partial(_accepted, client, *before),
            )
            found = client.ask(_offset_fetch(count), 7).topics[0].partitions
            assert {each.committed_offset for each in found} == {offset}, attack


def _accepted(client: Client, request: Any, version: int) -> None:
    topics = client.ask(request, version).topics
    assert {each.error_code for topic in topics for each in topic.partitions} == {Error.NONE}, request


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


def _offset_fetch(count: int) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopic(name="committed", partition_indexes=[*range(count)])]
    return OffsetFetchRequest(group_id=GROUP, topics=topics, require_stable=False)

"""Whom to ask: the leader of a partition, a coordinator, or anybody."""

from __future__ import annotations

from typing import Any, NamedTuple

from protocol.errors import Error
from protocol.messages.fetch import FetchRequest
from protocol.messages.groups import DescribeGroupsRequest, OffsetFetchRequest
from protocol.messages.groups_consumer import ConsumerGroupDescribeRequest
from protocol.messages.groups_share import DescribeShareGroupOffsetsRequest, ShareGroupDescribeRequest
from protocol.messages.offsets import ListOffsetsRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.topics import DeleteRecordsRequest
from protocol.messages.transactions import AddPartitionsToTxnRequest, TxnOffsetCommitRequest
from protocol.wire.schema import Struct

GROUP, TRANSACTION = 0, 1
"""Types of keys in FindCoordinator."""


class OfLeader(NamedTuple):
    topic: str
    index: int


class OfCoordinator(NamedTuple):
    key: str
    key_type: int


Route = OfLeader | OfCoordinator | None

MOVED = frozenset(
    {
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.LEADER_NOT_AVAILABLE,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.KAFKA_STORAGE_ERROR,
        Error.NOT_COORDINATOR,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.FENCED_LEADER_EPOCH,
        Error.UNKNOWN_LEADER_EPOCH,
    }
)
"""Errors after which another one, or the same one again, has to be asked."""


def route_of(request: Any) -> Route:
    """Return the request's route; None if anybody can answer."""
    if isinstance(request, ProduceRequest):
        [topic] = request.topic_data
        return OfLeader(topic.name, topic.partition_data[0].index)
    if isinstance(request, FetchRequest):
        [of_fetch] = request.topics
        return OfLeader(of_fetch.topic, of_fetch.partitions[0].partition)
    if isinstance(request, ListOffsetsRequest):
        [of_list] = request.topics
        return OfLeader(of_list.name, of_list.partitions[0].partition_index)
    if isinstance(request, DeleteRecordsRequest):
        [of_delete] = request.topics
        return OfLeader(of_delete.name, of_delete.partitions[0].partition_index)
    if isinstance(request, OffsetFetchRequest | DescribeGroupsRequest | DescribeShareGroupOffsetsRequest):
        [group] = request.groups
        return OfCoordinator(getattr(group, "group_id", group), GROUP)
    if isinstance(request, ConsumerGroupDescribeRequest | ShareGroupDescribeRequest):
        return OfCoordinator(request.group_ids[0], GROUP)
    if isinstance(request, AddPartitionsToTxnRequest):
        return OfCoordinator(request.v3_and_below_transactional_id, TRANSACTION)
    transactional_id = getattr(request, "transactional_id", None)
    if transactional_id is not None and not isinstance(request, TxnOffsetCommitRequest):
        return OfCoordinator(transactional_id, TRANSACTION)
    group_id = getattr(request, "group_id", None)
    return None if group_id is None else OfCoordinator(group_id, GROUP)


def errors_of(answer: Any) -> set[int]:
    """Return all error codes in an answer, wherever they are."""
    found: set[int] = set()
    if isinstance(answer, list):
        for each in answer:
            found |= errors_of(each)
    elif isinstance(answer, Struct):
        for name in type(answer).__slots__:
            value = getattr(answer, name)
            if name.endswith("error_code"):
                found.add(value)
            elif isinstance(value, list | Struct):
                found |= errors_of(value)
    return found

"""A refused change leaves nothing behind that only the collector of cycles would find. The collector looks at old
objects once in a hundred million objects, and a refused change may have made ten thousand."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from broker.controller import topic_requests
from broker.server import Server
from protocol.errors import KafkaError
from protocol.messages.cluster_admin import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ElectLeadersTopic,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.configs import AlterClientQuotasRequest, AlterEntryData, EntityData, OpData
from protocol.messages.groups import HeartbeatRequest
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest
from protocol.messages.produce import InitProducerIdRequest
from protocol.messages.security import AlterUserScramCredentialsRequest, ScramCredentialDeletion
from protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from protocol.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.wire.schema import Message
from tests.support.straight import Straight
from tests.support.wire import Client

MANY = 100

REFUSED: list[tuple[Message, int]] = [
    (CreateTopicsRequest(topics=[CreatableTopic(name="?", num_partitions=1, replication_factor=1)]), 7),
    (CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=MANY, replication_factor=1)]), 7),
    (CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=MANY)]), 3),
    (CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="none", count=1)]), 3),
    (DeleteTopicsRequest(topics=[DeleteTopicState(name="none")]), 6),
    (
        AlterClientQuotasRequest(
            entries=[
                AlterEntryData(
                    entity=[EntityData(entity_type="nobody", entity_name="n")],
                    ops=[OpData(key="producer_byte_rate", value=1.0)],
                )
            ]
        ),
        1,
    ),
    (AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="n", mechanism=1)]), 0),
    (ElectLeadersRequest(topic_partitions=[ElectLeadersTopic(topic="none", partitions=[0])]), 2),
    (
        AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(
                    name="none", partitions=[ReassignablePartition(partition_index=0, replicas=[1])]
                )
            ]
        ),
        1,
    ),
    (HeartbeatRequest(group_id="none", generation_id=1, member_id="m"), 4),
    (ConsumerGroupHeartbeatRequest(group_id="none", member_id="m", member_epoch=3), 1),
    (InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=-1), 5),
    (
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=1,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        ),
        3,
    ),
]


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize(("request_", "version"), REFUSED, ids=lambda value: type(value).__name__)
async def test_a_refusal_leaves_no_frames_behind(
    node: Server, monkeypatch: pytest.MonkeyPatch, request_: Message, version: int
) -> None:
    before = raised()  # somebody still holds another test's
    client = Client(Straight(node))
    created = CreateTopicsRequest(
        topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)], timeout_ms=1
    )
    await client.answer(created, 7)
    monkeypatch.setattr(topic_requests, "MAX_RECORDS_PER_REQUEST", MANY // 2)
    assert await client.answer(request_, version)
    assert [each for each in raised() if all(each is not other for other in before)] == []


def raised() -> list[KafkaError]:
    return [each for each in gc.get_objects() if isinstance(each, KafkaError) and each.__traceback__]

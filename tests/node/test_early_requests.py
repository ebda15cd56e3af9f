"""Requests for things that the metadata has, and that this node is still getting ready for, wait, and get no error."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.coordination import hosted_shards
from broker.coordination.groups import OFFSETS_TOPIC
from broker.coordination.hosted_shards import HostedShards
from broker.coordination.share_states import SHARE_STATE_TOPIC
from broker.coordination.transactions import TRANSACTION_TOPIC
from broker.early_requests import EarlyRequests
from broker.server import Server
from coordinator.share.share_partition_key import SharePartitionKey
from protocol.errors import Error
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.groups import (
    DescribeGroupsRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    ListGroupsRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest
from protocol.messages.groups_share import ShareGroupHeartbeatRequest
from protocol.messages.metadata import FindCoordinatorRequest
from protocol.messages.metadata_records import PartitionChangeRecord
from protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.produce import (
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from protocol.messages.share_state import ReadPartition, ReadShareGroupStateRequest, ReadStateData
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.transactions import ListTransactionsRequest
from protocol.wire.schema import error_codes
from tests.node.computing import SHORT
from tests.support.first_contact import MET_BY_WAITING
from tests.support.straight import Straight
from tests.support.whole_server import crash, started
from tests.support.wire import Answer, Client, Outcome, Sent

MANY = 1_200
"""So many partitions that the node takes several steps to follow them."""

JOIN = (
    JoinGroupRequest(
        group_id="g",
        session_timeout_ms=6_000,
        rebalance_timeout_ms=6_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    ),
    3,
)
TRANSACTIONS = (
    (InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 4),
    (ListTransactionsRequest(), 1),
)
SHARED = SharePartitionKey("s", bytes(15) + b"7", 0)
SHARE_KEY = SHARED.text
SHARE_STATES = (
    (
        ReadShareGroupStateRequest(
            group_id="s", topics=[ReadStateData(topic_id=SHARED.topic_id, partitions=[ReadPartition()])]
        ),
        0,
    ),
)

GROUPS = (
    JOIN,
    (
        ConsumerGroupHeartbeatRequest(
            group_id="c", member_id="m", rebalance_timeout_ms=6_000, subscribed_topic_names=["t"],
            topic_partitions=[],
        ),
        1,
    ),
    (ShareGroupHeartbeatRequest(group_id="s", member_id="m", subscribed_topic_names=["t"]), 1),
    (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g")]), 8),
    (DescribeGroupsRequest(groups=["h"]), 5),
    (ListGroupsRequest(), 5),
)  # fmt: skip


LAST = MANY - 1
USES = (
    (
        ProduceRequest(
            acks=-1,
            timeout_ms=1_000,
            topic_data=[
                TopicProduceData(name="t", partition_data=[PartitionProduceData(index=LAST, records=SHORT)])
            ],
        ),
        9,
    ),
    (
        ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name="t", partitions=[ListOffsetsPartition(partition_index=LAST, timestamp=-1)]
                )
            ],
        ),
        7,
    ),
    (
        FetchRequest(
            max_bytes=1_000,
            topics=[
                FetchTopic(topic="t", partitions=[FetchPartition(partition=LAST, partition_max_bytes=1_000)])
            ],
        ),
        11,
    ),
)


async def told_early(node: Server, topic: str, cause: tuple[Any, int], early: Any) -> list[Any]:
    """Send requests, each on its own connection, in every turn from when the metadata has the topic until the node is
    ready for it. Returns their answers, behind the answer to the request that causes the change."""
    asked: list[tuple[Client, Sent]] = []

    def send(request: Any, version: int) -> None:
        client = Client(Straight(node))
        asked.append((client, client.send(request, version)))

    send(*cause)
    while topic not in node.metadata.image.topics:
        await asyncio.sleep(0)
    assert node.early_requests.is_behind, "nobody could come early"
    while node.early_requests.is_behind:
        for each in early:
            send(*each)
        await asyncio.sleep(0)
    return [await answered(*each) for each in asked]


async def answered(client: Client, sent: Sent) -> Any:
    while not isinstance(answer := client.receive(sent, within_s=0), Answer):
        await asyncio.sleep(0)
    client.close()
    return answer.message


def errors(answers: list[Any]) -> set[str]:
    """Return the errors in the answers that a client meets by asking again."""
    return {
        error.name
        for answer in answers
        for error in map(Error, error_codes(answer))
        if error in MET_BY_WAITING
    }


@pytest.mark.parametrize(
    ("setting", "topic", "find", "early"),
    [
        ("offsets.topic.num.partitions", OFFSETS_TOPIC, (0, "g"), GROUPS),
        ("transaction.state.log.num.partitions", TRANSACTION_TOPIC, (1, "tx"), TRANSACTIONS),
        ("share.coordinator.state.topic.num.partitions", SHARE_STATE_TOPIC, (2, SHARE_KEY), SHARE_STATES),
    ],
)
async def test_requests_to_a_coordinator_wait_while_its_topic_is_made(
    tmp_path: Path, setting: str, topic: str, find: tuple[int, str], early: Any
) -> None:
    node = await started(tmp_path, f"{setting}={MANY}")
    key_type, key = find
    cause = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 6
    answers = await told_early(node, topic, cause, [cause, *early])
    assert errors(answers) == set()


async def test_requests_for_a_topic_wait_while_its_partitions_are_made(node: Server) -> None:
    topic = CreatableTopic(name="t", num_partitions=MANY, replication_factor=1)
    cause = CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 7
    answers = await told_early(node, "t", cause, USES)
    assert errors(answers) == set()


class HeldLoading:
    """Holds the loading of shards until the test lets it go on in turns, however many turns the start takes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_held = True
        take_turn = HostedShards._take_turn

        def held(shards: HostedShards[Any]) -> None:
            if self.is_held:
                shards._turn = shards._scheduler.call_soon(shards._take_turn)
            else:
                take_turn(shards)

        monkeypatch.setattr(HostedShards, "_take_turn", held)


@pytest.mark.parametrize(
    ("find", "early"),
    [((0, "g"), GROUPS), ((1, "tx"), TRANSACTIONS), ((2, SHARE_KEY), SHARE_STATES)],
)
async def test_requests_wait_while_coordinators_load_after_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, find: tuple[int, str], early: Any
) -> None:
    key_type, key = find
    node = await started(tmp_path)
    cause = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 6
    client = Client(Straight(node))
    assert errors([await answered(client, client.send(*cause))]) == set()
    crash(node)

    monkeypatch.setattr(hosted_shards, "AT_ONCE", 0)
    monkeypatch.setattr(hosted_shards, "STEP_COST", 1)
    loading = HeldLoading(monkeypatch)
    node = await started(tmp_path)
    [topic] = node.metadata.image.topics
    loading.is_held = False
    answers = await told_early(node, topic, cause, early)
    assert errors(answers) == set()


async def test_requests_wait_while_a_transaction_coordinator_is_reelected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await started(tmp_path)
    cause = FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]), 6
    client = Client(Straight(node))
    assert errors([await answered(client, client.send(*cause))]) == set()

    monkeypatch.setattr(hosted_shards, "AT_ONCE", 0)
    monkeypatch.setattr(hosted_shards, "STEP_COST", 1)
    topic = node.metadata.image.topics[TRANSACTION_TOPIC]
    node.metadata.append(
        [
            PartitionChangeRecord(
                topic_id=topic.topic_id, partition_id=index, leader=node.node_id, isr=[node.node_id]
            )
            for index in topic.partitions
        ]
    )
    answers = await told_early(node, TRANSACTION_TOPIC, cause, TRANSACTIONS)
    assert errors(answers) == set()


async def test_requests_wait_until_the_coordinators_broker_knows_the_topic(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EarlyRequests, "_may_lag", True)  # as if another node controlled this broker
    node.early_requests._look()
    client, other = Client(Straight(node)), Client(Straight(node))
    sent = client.send(*JOIN)
    await asyncio.sleep(0)
    assert client.receive(sent, within_s=0) is Outcome.SILENCE
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    assert errors([await answered(other, other.send(find, 6))]) == set()
    assert errors([await answered(client, sent)]) == set()

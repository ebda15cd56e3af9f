"""Poisoned records in the internal topics cost the partition that they are in: told in one line, no other harmed.

`POISONED_ROUNDS=500` tries so many seeds (`make poisoned`); `POISONED_FROM` is the first one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from broker.coordination.groups import OFFSETS_TOPIC
from broker.coordination.transactions import TRANSACTION_TOPIC
from broker.handlers import HANDLERS
from broker.server import Server
from coordinator.java.maps import partition_of_key
from protocol.errors import Error, KafkaError
from protocol.messages import groups as groups_admin
from protocol.messages import groups as groups_classic
from protocol.messages import groups as groups_offsets
from protocol.messages import groups_consumer, groups_share
from protocol.messages import transactions as txn
from protocol.messages import transactions as txn_admin
from protocol.messages.metadata import FindCoordinatorRequest
from protocol.messages.produce import InitProducerIdRequest
from protocol.records.batch import patch_offset_and_epoch
from protocol.wire.schema import Message
from storage.log.log_state import AppendOrigin
from tests.node.poisoned_records import Poisoner
from tests.node.transactional import Producer, ask, create
from tests.support.straight import Straight
from tests.support.whole_server import clock_of, crash, started
from tests.support.wire import Client, Outcome

PARTITIONS = 3
FIRST = int(os.environ.get("POISONED_FROM", "0"))
ROUNDS = int(os.environ.get("POISONED_ROUNDS", "10"))

SETTINGS = (
    f"offsets.topic.num.partitions={PARTITIONS}",
    f"transaction.state.log.num.partitions={PARTITIONS}",
)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + ROUNDS))
async def test_poisoned_partitions_of_internal_topics_cost_only_their_own_shards(
    seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chance = Random(seed)
    node = await started(tmp_path, *SETTINGS)
    used = use(node)
    victims = {topic: chance.randrange(PARTITIONS) for topic in (OFFSETS_TOPIC, TRANSACTION_TOPIC)}
    poisoners = {topic: Poisoner(chance, index, PARTITIONS) for topic, index in victims.items()}
    groups = poisoners[OFFSETS_TOPIC]
    for batch in groups.batches(
        [groups.offset, groups.classic_group, groups.consumer_group, groups.share_group]
    ):
        append(node, OFFSETS_TOPIC, victims[OFFSETS_TOPIC], batch)
    transactions = poisoners[TRANSACTION_TOPIC]
    for batch in transactions.batches([transactions.transaction]):
        append(node, TRANSACTION_TOPIC, victims[TRANSACTION_TOPIC], batch)
    before = {topic: contents(node, topic, index) for topic, index in victims.items()}
    if chance.random() < 0.5:
        await node.stop()
    else:
        crash(node)
        await node.background.finish()
    caplog.clear()

    again = await started(tmp_path, *SETTINGS)

    for topic, index in victims.items():
        refused = error_of(again, topic, index)
        told = [line for line in lines(caplog, logging.ERROR) if f"{topic}-{index} can't be loaded" in line]
        if refused is None:
            assert not told
            continue
        kafkas = Error.NOT_COORDINATOR if topic == OFFSETS_TOPIC else Error.COORDINATOR_LOAD_IN_PROGRESS
        assert refused is kafkas
        assert len(told) == 1
        assert f"{topic}-{index} can't be loaded: at offset " in told[0]
        assert contents(again, topic, index) == before[topic]
    for topic, keys in used.items():
        for key, index in keys.items():
            if index != victims[topic]:
                assert error_of(again, topic, index) is None
                assert is_known(again, topic, key)
    for request, version in everything_asked(groups.ids, transactions.ids):
        outcome = sent(again, request, version)
        assert outcome is not Outcome.CLOSED, f"{request} v{version}"
        assert again.failure is None
    for hours in (1, 24, 24 * 8):
        clock_of(again).advance_ms(hours * 3_600_000)
        again.timers.fire_due()
        assert again.failure is None
    for request, version in everything_asked(groups.ids, transactions.ids):
        assert sent(again, request, version) is not Outcome.CLOSED, f"{request} v{version}"
    assert not [record for record in caplog.records if record.exc_info and record.levelno >= logging.INFO]
    assert not [line for line in lines(caplog, logging.INFO) if "\n" in line]
    await again.stop()
    assert again.failure is None


def use(node: Server) -> dict[str, dict[str, int]]:
    """Give each partition of both topics something to know. Returns the partitions by topic and key."""
    create(node, "t")
    ask(node, FindCoordinatorRequest(key="g"), 3)
    ask(node, FindCoordinatorRequest(key="tx", key_type=1), 3)
    used: dict[str, dict[str, int]] = {OFFSETS_TOPIC: {}, TRANSACTION_TOPIC: {}}
    for number in range(6):
        name = f"known-{number}"
        index = partition_of_key(name, PARTITIONS)
        partition = groups_offsets.OffsetCommitRequestPartition(partition_index=0, committed_offset=number)
        topic = groups_offsets.OffsetCommitRequestTopic(name="t", partitions=[partition])
        answer = ask(node, groups_offsets.OffsetCommitRequest(group_id=name, topics=[topic]), 8)
        assert answer.topics[0].partitions[0].error_code == Error.NONE
        used[OFFSETS_TOPIC][name] = index
        producer = Producer(node, name).begin()
        assert producer.add(("t", 0)) == [Error.NONE]
        used[TRANSACTION_TOPIC][name] = index
    assert {*used[OFFSETS_TOPIC].values()} == {*range(PARTITIONS)}
    return used


def is_known(node: Server, topic: str, key: str) -> bool:
    if topic == OFFSETS_TOPIC:
        offsets = node.groups.shard_of(key).offsets.of_group(key)
        return offsets["t"][0].offset == int(key.removeprefix("known-"))
    return key in node.transactions.shard_of(key).transactions


def append(node: Server, topic: str, index: int, batch: bytearray) -> None:
    """Append the batch as a replica does, so that nobody checks its contents."""
    partition = node.partitions.get(topic, index)
    patch_offset_and_epoch(batch, 0, partition.log.log_end_offset, partition.leader_epoch)
    partition.log.append(batch, leader_epoch=-1, now_ms=1, origin=AppendOrigin.REPLICATION)


def contents(node: Server, topic: str, index: int) -> bytes:
    [file] = Path(node.partitions.get(topic, index).log.directory).glob("*.log")
    return file.read_bytes()


def error_of(node: Server, topic: str, index: int) -> Error | None:
    shards = node.groups.hosted if topic == OFFSETS_TOPIC else node.transactions.hosted
    try:
        shards.at(index)
    except KafkaError as error:
        return error.error
    return None


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= level]


def sent(node: Server, request: Message, version: int) -> object:
    """Return what comes back at once: an answer, silence if somebody is waited for, or the end of the connection."""
    client = Client(Straight(node))
    try:
        outcome = client.receive(client.send(request, version), within_s=0)
    finally:
        client.close()
    return outcome


def everything_asked(group_ids: list[str], transactional_ids: list[str]) -> Iterator[tuple[Message, int]]:
    """Yield everything that a client can ask a coordinator about each of the ids, with the deletions last."""
    for group_id in group_ids:
        yield from of_a_group(group_id)
        for request, version in of_a_share_group(group_id):
            if type(request).API_KEY in HANDLERS:  # not all are served yet
                yield request, version
    yield groups_admin.ListGroupsRequest(), 5
    for transactional_id in [*transactional_ids, ""]:
        yield from of_a_transaction(transactional_id)
    yield txn_admin.ListTransactionsRequest(transactional_id_pattern=".*"), 2
    yield groups_admin.DeleteGroupsRequest(groups_names=group_ids), 2


def of_a_group(group_id: str) -> Iterator[tuple[Message, int]]:
    yield groups_admin.DescribeGroupsRequest(groups=[group_id]), 6
    yield groups_consumer.ConsumerGroupDescribeRequest(group_ids=[group_id]), 1
    fetched = groups_offsets.OffsetFetchRequestGroup(group_id=group_id, topics=None)
    for require_stable in (False, True):
        yield groups_offsets.OffsetFetchRequest(groups=[fetched], require_stable=require_stable), 9
    partition = groups_offsets.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = groups_offsets.OffsetCommitRequestTopic(name="t", partitions=[partition])
    deleted = groups_offsets.OffsetDeleteRequestTopic(
        name="t", partitions=[groups_offsets.OffsetDeleteRequestPartition(partition_index=0)]
    )
    protocols = [groups_classic.JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\0\0\0\0\0")]
    for member_id in ("", "m0", "m1", "m2", "nobody"):
        for instance_id in (None, "i0"):
            for epoch in (-1, 3, 4):
                yield (
                    groups_offsets.OffsetCommitRequest(
                        group_id=group_id,
                        member_id=member_id,
                        group_instance_id=instance_id,
                        generation_id_or_member_epoch=epoch,
                        topics=[topic],
                    ),
                    9,
                )
                if member_id:
                    yield (
                        groups_consumer.ConsumerGroupHeartbeatRequest(
                            group_id=group_id,
                            member_id=member_id,
                            member_epoch=epoch,
                            instance_id=instance_id,
                        ),
                        1,
                    )
            yield (
                groups_consumer.ConsumerGroupHeartbeatRequest(
                    group_id=group_id,
                    member_id=member_id or "new",
                    member_epoch=0,
                    instance_id=instance_id,
                    rebalance_timeout_ms=1000,
                    subscribed_topic_names=["t"],
                    topic_partitions=[],
                ),
                1,
            )
            yield (
                groups_classic.HeartbeatRequest(
                    group_id=group_id, member_id=member_id, generation_id=3, group_instance_id=instance_id
                ),
                4,
            )
            yield (
                groups_classic.SyncGroupRequest(
                    group_id=group_id, member_id=member_id, generation_id=3, group_instance_id=instance_id
                ),
                3,
            )
            yield (
                groups_classic.JoinGroupRequest(
                    group_id=group_id,
                    member_id=member_id,
                    group_instance_id=instance_id,
                    session_timeout_ms=10_000,
                    rebalance_timeout_ms=1000,
                    protocol_type="consumer",
                    protocols=protocols,
                ),
                5,
            )
    yield groups_offsets.OffsetDeleteRequest(group_id=group_id, topics=[deleted]), 0
    leaving = [
        groups_classic.MemberIdentity(member_id="m0", group_instance_id=None),
        groups_classic.MemberIdentity(member_id="", group_instance_id="i0"),
    ]
    yield groups_classic.LeaveGroupRequest(group_id=group_id, members=leaving), 4


def of_a_share_group(group_id: str) -> Iterator[tuple[Message, int]]:
    yield groups_share.ShareGroupDescribeRequest(group_ids=[group_id]), 1
    asked = groups_share.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
    yield groups_share.DescribeShareGroupOffsetsRequest(groups=[asked]), 1
    for member_id in ("m0", "m1", "m2", "nobody"):
        for epoch in (4, 3, 0, 5, -1):
            yield (
                groups_share.ShareGroupHeartbeatRequest(
                    group_id=group_id,
                    member_id=member_id,
                    member_epoch=epoch,
                    subscribed_topic_names=["t"] if epoch == 0 else None,
                ),
                1,
            )
    partition = groups_share.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
    altered = groups_share.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[partition])
    yield groups_share.AlterShareGroupOffsetsRequest(group_id=group_id, topics=[altered]), 0
    deleted = groups_share.DeleteShareGroupOffsetsRequestTopic(topic_name="t")
    yield groups_share.DeleteShareGroupOffsetsRequest(group_id=group_id, topics=[deleted]), 0


def of_a_transaction(transactional_id: str) -> Iterator[tuple[Message, int]]:
    yield txn_admin.DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0
    topics = [txn.AddPartitionsToTxnTopic(name="t", partitions=[0])]
    for producer_id, epoch in ((5, 1), (5, 0), (-1, -1)):
        yield (
            txn.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            ),
            3,
        )
        for version in (4, 5):
            for committed in (True, False):
                yield (
                    txn.EndTxnRequest(
                        transactional_id=transactional_id,
                        producer_id=producer_id,
                        producer_epoch=epoch,
                        committed=committed,
                    ),
                    version,
                )
        yield (
            InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=60_000,
                producer_id=producer_id,
                producer_epoch=epoch,
            ),
            5,
        )

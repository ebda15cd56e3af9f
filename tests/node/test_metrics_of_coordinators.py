"""The counts of coordinators, authorizers and listeners are shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import Error
from protocol.messages.groups import JoinGroupRequest, JoinGroupRequestProtocol, SyncGroupRequest
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.node.transactional import Producer, coordinating, create, find
from tests.support.scrape import scraped, value
from tests.support.straight import Straight
from tests.support.whole_server import clock_of, started
from tests.support.wire import Client

WATCHED = "barnabas.metrics.listener=127.0.0.1:0"
GROUPS = "kafka_server_group_coordinator_metrics_"
VERIFICATION = "kafka_server_addpartitionstotxnmanager_"


async def test_partitions_that_a_coordinator_refuses_are_counted(tmp_path: Path) -> None:
    node = await coordinating(tmp_path, WATCHED)
    assert node.metrics is not None
    producer = Producer(node, version=1).begin()
    producer.produce(("t", 0), ("t", 1))  # none of them was added
    producer.add(("t", 0))
    assert producer.send() is Error.NONE
    series = await scraped(node.metrics.port)
    assert value(series, VERIFICATION + "verificationfailurerate_count_total") == 2
    assert value(series, VERIFICATION + "verificationtimems_count") == 2


async def test_a_transaction_that_hangs_is_late(tmp_path: Path) -> None:
    """Its producer is silent for longer than any timeout, and nobody has ended it."""
    node = await coordinating(tmp_path, WATCHED)
    assert node.metrics is not None
    Producer(node).begin().send()
    late = "kafka_server_replicamanager_partitionswithlatetransactionscount"
    clock_of(node).advance_ms(15 * 60_000 + 5 * 60_000)
    assert value(await scraped(node.metrics.port), late) == 0
    clock_of(node).advance_ms(1)
    assert value(await scraped(node.metrics.port), late) == 1


async def test_producer_ids_are_counted_by_block_and_by_replica(tmp_path: Path) -> None:
    node = await coordinating(tmp_path, WATCHED)
    assert node.metrics is not None
    for name in ("tx", "another"):
        find(node, name)
        assert Producer(node, name).begin().send() is Error.NONE
    series = await scraped(node.metrics.port)
    assert value(series, "barnabas_producer_ids_blocks_total") == 1
    assert value(series, "barnabas_producer_ids_left") == 998
    assert value(series, "kafka_server_replicamanager_produceridcount") == 2


async def test_groups_and_their_rebalances_are_counted_by_protocol(tmp_path: Path) -> None:
    node = await coordinating(tmp_path, WATCHED, "group.initial.rebalance.delay.ms=0")
    assert node.metrics is not None
    client = Client(Straight(node))
    join = JoinGroupRequest(
        group_id="classic",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )
    member_id = (await client.answer(join, 3)).member_id
    await client.answer(SyncGroupRequest(group_id="classic", generation_id=1, member_id=member_id), 3)
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id="consumer",
        member_id="one",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert (await client.answer(heartbeat, 1)).error_code == Error.NONE
    series = await scraped(node.metrics.port)
    assert value(series, GROUPS + "group_completed_rebalance_count") == 1
    assert value(series, GROUPS + "consumer_group_rebalance_count") == 1
    assert value(series, GROUPS + "share_group_rebalance_count") == 0
    assert value(series, GROUPS + "group_count", protocol="classic") == 1
    assert value(series, GROUPS + "classic_group_count", state="Stable") == 1
    assert value(series, GROUPS + "consumer_group_count", state="Stable") == 1
    assert value(series, GROUPS + "consumer_group_count", state="Empty") == 0


async def test_shards_are_counted_by_state_with_the_time_that_they_took(tmp_path: Path) -> None:
    node = await coordinating(tmp_path, WATCHED)
    assert node.metrics is not None
    times = node.coordinators.transactions.hosted.load_times
    assert times.count == 1
    times.add(30_000)
    series = await scraped(node.metrics.port)
    of_transactions = "kafka_server_transaction_coordinator_metrics_"
    assert value(series, of_transactions + "partition_load_time_max") == 30_000
    assert value(series, of_transactions + "partition_load_time_avg") == times.sum_ms / 2
    assert value(series, GROUPS + "num_partitions", state="active") == 1
    assert value(series, GROUPS + "num_partitions", state="loading") == 0
    assert value(series, GROUPS + "num_partitions", state="failed") == 0


async def test_denials_are_counted_by_operation_and_type_of_resource(tmp_path: Path) -> None:
    node = await started(
        tmp_path,
        WATCHED,
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:somebody",
    )
    assert node.metrics is not None
    create(node, "t")
    client = Client(Straight(node))
    for _ in range(2):
        client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
    series = await scraped(node.metrics.port)
    denied = "barnabas_authorization_denied_total"
    assert value(series, denied, operation="DESCRIBE", resource_type="TOPIC") == 2
    assert len([name for name, _ in series if name == denied]) == 1


@pytest.mark.parametrize(
    ("asked", "counted"), [("PLAIN", "PLAIN"), ("whatever a client thinks of", "unknown")]
)
async def test_failed_sign_ins_are_counted_by_mechanism(tmp_path: Path, asked: str, counted: str) -> None:
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required user_alice=secret;"
    node = await started(
        tmp_path,
        WATCHED,
        "listeners=SASL_PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name=SASL_PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN",
        "connection.failed.authentication.delay.ms=0",
        f"listener.name.sasl_plaintext.plain.sasl.jaas.config={jaas}",
    )
    assert node.metrics is not None
    [listener] = node.listeners.values()
    with Client.connect(listener.port) as client:
        told = await client.answer(SaslHandshakeRequest(mechanism=asked), 1)
        if told.error_code == Error.NONE:
            await client.answer(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
    series = await scraped(node.metrics.port)
    failed = "barnabas_authentications_failed_total"
    assert value(series, failed, listener="SASL_PLAINTEXT", mechanism=counted) == 1


def test_an_unclean_election_is_counted() -> None:
    from broker.controller.image import RECOVERED, RECOVERING, ClusterImage
    from protocol.messages.metadata_records import PartitionChangeRecord, PartitionRecord, TopicRecord

    image, topic_id = ClusterImage(), b"t" * 16
    image.apply(TopicRecord(name="t", topic_id=topic_id))
    image.apply(PartitionRecord(topic_id=topic_id, partition_id=0, replicas=[1, 2], isr=[1], leader=1))
    for leader, state in ((2, RECOVERING), (2, RECOVERED), (1, -1)):
        image.apply(
            PartitionChangeRecord(
                topic_id=topic_id, partition_id=0, leader=leader, leader_recovery_state=state
            )
        )
    assert image.unclean_elections == 1
    assert image.copy().unclean_elections == 1

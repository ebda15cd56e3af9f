"""Which brokers, leaders and replicas clients are told of: by Apache Kafka, and by us, who have observed the same
metadata. Beside Kafka's own broker there are registrations of ours that nobody serves: of a broker that is alive, of
one that clients of this listener can't find, and of one that is fenced."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from broker.coordination.groups import OFFSETS_TOPIC
from broker.environment.network import SocketNetwork
from broker.environment.scheduler import LoopScheduler
from broker.handlers import describe_cluster, describe_topic_partitions, find_coordinator, metadata
from broker.network.dispatch import with_ports
from broker.peers.controller_channel import ControllerChannel
from broker.peers.lifecycle import BrokerLifecycle, Listening
from broker.peers.peer import PeerSettings
from broker.security.authorizer import ANONYMOUS, AllowEverything
from coordinator.java.maps import partition_of_key
from protocol.messages.metadata import (
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from protocol.waiting import at_once
from protocol.wire.schema import Message
from tests.compare.plain import plain
from tests.interop.observing import PATIENCE_S, Node, registration, until
from tests.support import apache_kafka, waiting
from tests.support.apache_kafka import ApacheKafka
from tests.support.requirements import need_apache_kafka
from tests.support.wire import Client

KAFKAS = 1
ALIVE, NOT_FOUND, FENCED = 7, 8, 9
LISTENERS = {ALIVE: ("PLAINTEXT", "OTHER"), NOT_FOUND: ("OTHER",), FENCED: ("PLAINTEXT",)}
ASSIGNMENTS = {
    "alone": [[KAFKAS], [ALIVE], [NOT_FOUND]],
    "there": [[ALIVE, KAFKAS], [KAFKAS, ALIVE]],
    "not-found": [[NOT_FOUND, ALIVE], [KAFKAS, NOT_FOUND]],
    "fenced": [[FENCED, KAFKAS], [KAFKAS, FENCED], [ALIVE, FENCED], [NOT_FOUND, FENCED]],
}


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    need_apache_kafka()
    settings = ("broker.rack=rack-1", "offsets.topic.num.partitions=10")
    with apache_kafka.running(tmp_path / "kafka", *settings) as kafka:
        yield kafka


class Registered:
    """One that Kafka's controller has registered; it is unfenced once it is `ready`."""

    def __init__(self, node: Node) -> None:
        channel = ControllerChannel(
            lambda: node.observer.leader,
            PeerSettings(str(node.node_id), "0"),
            SocketNetwork(),
            LoopScheduler(),
        )
        nobody = lambda: None  # noqa: E731
        self.node = node
        self.lifecycle = BrokerLifecycle(
            registration(node, *LISTENERS[node.node_id]),
            channel,
            LoopScheduler(),
            lambda: node.metadata.last_applied_offset,
            Listening(caught_up=nobody, unfenced=nobody, let_go=nobody, not_registered=nobody),
            heartbeat_interval_ms=200,
            cordoned=tuple,
        )


async def registered(folder: Path, kafka: ApacheKafka) -> list[Registered]:
    """Alive but for the one that stays fenced."""
    brokers = [Registered(Node(folder / str(node_id), kafka, node_id)) for node_id in LISTENERS]
    observing = brokers[0].node
    image = observing.metadata.image
    for broker in brokers:
        broker.lifecycle.start()
        broker.node.fetcher.start()
    await until(observing, lambda: image.brokers.keys() >= LISTENERS.keys())
    for broker in brokers:
        if broker.node.node_id != FENCED:
            broker.lifecycle.ready()
    await until(observing, lambda: not (image.brokers[ALIVE].fenced or image.brokers[NOT_FOUND].fenced))
    return brokers


def create(kafka: ApacheKafka) -> None:
    """By a client that asks Kafka's own broker alone: others take any that is alive for one that serves them."""
    wanted = [
        CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
                for index, replicas in enumerate(assigned)
            ],
        )
        for name, assigned in ASSIGNMENTS.items()
    ]
    with Client.of(kafka.bootstrap) as client:
        created = client.ask(CreateTopicsRequest(topics=wanted), 7)
        assert [each.error_code for each in created.topics] == [0] * len(wanted), created
        client.ask(FindCoordinatorRequest(key="g", key_type=0), 3)  # which creates the topic of offsets


QUESTIONS: list[tuple[ModuleType, Message, Sequence[int]]] = [
    (metadata, MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ASSIGNMENTS]), range(14)),
    (describe_cluster, DescribeClusterRequest(), range(3)),
    (describe_cluster, DescribeClusterRequest(include_fenced_brokers=True), [2]),
    (
        describe_topic_partitions,
        DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsTopic(name=name) for name in ASSIGNMENTS]
        ),
        [0],
    ),
    (
        find_coordinator,
        FindCoordinatorRequest(coordinator_keys=[f"g{each}" for each in range(30)]),
        [4, 5, 6],
    ),
    *((find_coordinator, FindCoordinatorRequest(key=f"g{each}"), range(4)) for each in range(10)),
]


def theirs(kafka: ApacheKafka) -> list[Any]:
    with Client.of(kafka.bootstrap) as client:
        return [
            in_order(client.ask(asked, version), version)
            for _, asked, versions in QUESTIONS
            for version in versions
        ]


def ours(node: Node) -> list[Any]:
    """By handlers that have what is observed, and no partitions of their own."""
    image = node.metadata.image
    shards = SimpleNamespace(
        partition_of=lambda key: partition_of_key(key, len(image.topics[OFFSETS_TOPIC].partitions))
    )
    ports = SimpleNamespace(
        node_id=KAFKAS,
        cluster_id=node.cluster_id,
        config=SimpleNamespace(get_int=lambda name: 2_000, get_boolean=lambda name: False),
        metadata=node.metadata,
        topics=None,
        groups=shards,
        transactions=shards,
        share_states=shards,
        authorizer=AllowEverything(),
        turns=SimpleNamespace(driver=_at_once),
    )

    def answer(handler: ModuleType, asked: Message, version: int) -> Any:
        context = SimpleNamespace(api_version=version, listener_name="PLAINTEXT", principal=ANONYMOUS)
        return in_order(with_ports(handler.handle, ports)(context, asked), version)

    return [answer(handler, asked, version) for handler, asked, versions in QUESTIONS for version in versions]


def _at_once(handle: Any, node: Any) -> Any:
    return lambda context, request: at_once(handle(node, context, request))


def in_order(answer: Message, version: int) -> Any:
    """But for the controller, who is one of the brokers at random, or none where clients don't find that one, and for
    messages of errors."""
    told = plain(answer, version)
    assert told.pop("controller_id", KAFKAS) in (KAFKAS, ALIVE, NOT_FOUND, -1)
    told.pop("error_message", None)
    for coordinator in told.get("coordinators", ()):
        coordinator.pop("error_message")
    told.get("brokers", []).sort(key=itemgetter("broker_id" if "broker_id" in str(told) else "node_id"))
    told.get("topics", []).sort(key=itemgetter("name"))
    for topic in told.get("topics", ()):
        topic["partitions"].sort(key=itemgetter("partition_index"))
    return told


async def compare(node: Node, kafka: ApacheKafka) -> list[Any]:
    """Compare once Kafka's broker has caught up, too."""

    def differing() -> list[tuple[Any, Any]]:
        return [pair for pair in zip(ours(node), theirs(kafka), strict=True) if pair[0] != pair[1]]

    try:
        await asyncio.to_thread(waiting.until, lambda: not differing(), "both say the same", PATIENCE_S)
    except AssertionError:
        mine, kafkas = differing()[0]
        assert mine == kafkas
        raise
    return ours(node)


async def test_clients_get_the_same_answers_from_ours_as_from_kafkas_broker(
    tmp_path: Path, kafka: ApacheKafka
) -> None:
    brokers = await registered(tmp_path, kafka)
    alive = brokers[0]
    image = alive.node.metadata.image
    await asyncio.to_thread(create, kafka)
    await until(alive.node, lambda: {*ASSIGNMENTS, OFFSETS_TOPIC} <= image.topics.keys())
    assert {partition.leader for partition in image.topics[OFFSETS_TOPIC].partitions.values()} == {
        KAFKAS,
        ALIVE,
        NOT_FOUND,
    }
    before = await compare(alive.node, kafka)

    alive.lifecycle.begin_controlled_shutdown()
    await until(brokers[1].node, lambda: brokers[1].node.metadata.image.brokers[ALIVE].fenced)
    after = await compare(brokers[1].node, kafka)
    assert after != before
    for broker in brokers:
        broker.lifecycle.stop()
        broker.node.fetcher.stop()

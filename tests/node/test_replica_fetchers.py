"""A node fetches from each leader that it follows, for as long as it follows any of that leader's partitions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from broker.controller.broker_records import BrokerIncarnation
from broker.controller.image import BROKER_RESOURCE, TOPIC_RESOURCE, TopicChanges
from broker.peers.peer import PeerSettings
from broker.peers.replica_fetcher_manager import ReplicaFetchers
from broker.quotas import FOLLOWER_RATE, FOLLOWER_REPLICAS
from broker.replicas.replica_fetcher import FetchSettings
from broker.server import Server
from protocol.messages.metadata_records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    RegisterBrokerRecord,
)
from tests.node.replicated import ME, OTHER, change, replicated
from tests.support.whole_server import clock_of, configured, crash

THIRD = 3


class Connections:
    """A network whose peers never answer. `open` lists who is connected to."""

    def __init__(self) -> None:
        self.open: list[tuple[str, int]] = []

    def connect(self, host: str, port: int, make_protocol: Callable[[], Any], failed: object) -> None:
        self.open.append((host, port))
        transport = SimpleNamespace(write=lambda data: None, abort=lambda: self.open.remove((host, port)))
        make_protocol().connection_made(transport)


def fetchers_of(node: Server, network: Connections) -> ReplicaFetchers:
    environment: Any = SimpleNamespace(network=network, scheduler=node.scheduler, clock=node.clock)
    return ReplicaFetchers(
        BrokerIncarnation(ME, 1),
        node.metadata.image,
        node.partitions,
        listener_name="PLAINTEXT",
        peer_settings=PeerSettings("fetcher", "0"),
        environment=environment,
        settings=FetchSettings(),
        quota=node.replication_quotas.follower,
        failed=node.stop_on_failure,
    )


def register(node: Server, node_id: int) -> None:
    end_points = [BrokerEndpoint(name="PLAINTEXT", host="broker", port=node_id)]
    node.metadata.append([RegisterBrokerRecord(broker_id=node_id, end_points=end_points, fenced=False)])


async def test_a_leader_with_no_partition_left_to_follow_is_left(tmp_path: Path) -> None:
    node, network = await replicated(tmp_path), Connections()
    for node_id in (OTHER, THIRD):
        register(node, node_id)
    fetchers = fetchers_of(node, network)

    def led_by(leader_id: int) -> list[tuple[str, int]]:
        change(node, leader=leader_id, isr=[leader_id, ME], replicas=[*{leader_id, ME}])
        fetchers.follow(TopicChanges({"t": None}, [], []))
        return network.open

    assert led_by(OTHER) == [("broker", OTHER)]
    assert led_by(THIRD) == [("broker", THIRD)]
    assert led_by(ME) == []
    assert led_by(OTHER) == [("broker", OTHER)]
    fetchers.stop()
    assert network.open == []
    crash(node)


async def test_a_leader_that_has_gone_is_left_until_it_is_back(tmp_path: Path) -> None:
    node, network = await replicated(tmp_path), Connections()
    register(node, OTHER)
    fetchers = fetchers_of(node, network)
    change(node, leader=OTHER)
    fetchers.follow(TopicChanges({"t": None}, [], []))
    assert network.open == [("broker", OTHER)]
    for fenced, there in ((1, []), (-1, [("broker", OTHER)])):
        node.metadata.append(
            [BrokerRegistrationChangeRecord(broker_id=OTHER, broker_epoch=-1, fenced=fenced)]
        )
        fetchers.follow(TopicChanges({}, [], []))
        assert network.open == there
    fetchers.stop()
    crash(node)


async def test_throttled_partitions_are_fetched_within_the_nodes_quota(tmp_path: Path) -> None:
    node, network = await replicated(tmp_path), Connections()
    register(node, OTHER)
    quota = node.replication_quotas.follower
    quota.record(1_000_000)
    for resource_type, resource, name, value in (
        (BROKER_RESOURCE, str(ME), FOLLOWER_RATE, "100"),
        (TOPIC_RESOURCE, "t", FOLLOWER_REPLICAS, f"0:{ME}"),
    ):
        config = ConfigRecord(resource_type=resource_type, resource_name=resource, name=name, value=value)
        node.metadata.append([config])
    fetchers = fetchers_of(node, network)
    change(node, leader=OTHER)
    fetchers.follow(TopicChanges({"t": None}, [], []))
    assert network.open == []
    clock_of(node).advance_ms(11_000)
    fetchers.follow(TopicChanges({}, [], []))
    assert network.open == [("broker", OTHER)]
    fetchers.stop()
    crash(node)


def test_the_settings_are_those_of_the_broker(tmp_path: Path) -> None:
    assert FetchSettings.of(configured(tmp_path)) == FetchSettings()
    own = FetchSettings(
        wait_max_ms=1, min_bytes=2, response_max_bytes=3, max_bytes=4, backoff_ms=5, timeout_ms=6
    )
    names = [
        "replica.fetch.wait.max.ms",
        "replica.fetch.min.bytes",
        "replica.fetch.response.max.bytes",
        "replica.fetch.max.bytes",
        "replica.fetch.backoff.ms",
        "replica.socket.timeout.ms",
    ]
    given = [f"{name}={number}" for number, name in enumerate(names, 1)]
    assert FetchSettings.of(configured(tmp_path, *given)) == own

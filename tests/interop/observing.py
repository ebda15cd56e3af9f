"""A node of ours that observes the metadata of Apache Kafka's controller, and may be registered with it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from broker.controller.broker_records import supported_features
from broker.controller.image import ClusterImage
from broker.controller.metadata_log import MetadataLog
from broker.controller.observer import Observer, ObserverIdentity
from broker.environment.network import SocketNetwork
from broker.environment.scheduler import LoopScheduler, SystemClock
from broker.peers.joined_cluster import MetadataFetcher
from broker.peers.peer import PeerSettings
from protocol.messages.broker_to_controller import (
    AdvertisedListener,
    BrokerRegistrationRequest,
    SupportedFeature,
)
from storage.directory.log_directory import METADATA_TOPIC
from storage.disk_files import DiskFiles
from storage.log.log_config import LogConfig
from storage.log.partition_log import PartitionLog
from tests.support.apache_kafka import ApacheKafka
from tests.support.immediate_background import run_at_once

PATIENCE_S = 120.0
NODE = 7


class Node:
    """An observing node, in its own folder."""

    def __init__(self, folder: Path, kafka: ApacheKafka, node_id: int = NODE) -> None:
        self.node_id = node_id
        self.directory_id = bytes([*range(15), node_id])
        clock = SystemClock()
        log = PartitionLog.open(
            str(folder),
            METADATA_TOPIC,
            0,
            LogConfig(),
            now_ms=clock.now_ms(),
            clean=False,
            files=DiskFiles(),
            background=run_at_once,
        )
        self.metadata = MetadataLog(log, ClusterImage(), clock)
        self.metadata.replay(only_voter=False)
        properties = properties_of(kafka.data / "meta.properties")
        self.cluster_id = properties["cluster.id"]
        identity = ObserverIdentity(node_id, self.cluster_id, self.directory_id)
        self.observer = Observer(self.metadata, identity, clock)
        host, port = (
            properties_of(kafka.directory / "server.properties")["controller.quorum.voters"]
            .split("@")[1]
            .split(":")
        )
        self.changed = asyncio.Event()
        self.failures: list[Exception] = []
        self.fetcher = MetadataFetcher(
            self.observer,
            [(host, int(port))],
            settings=PeerSettings(f"raft-client-{node_id}", "0"),
            network=SocketNetwork(),
            scheduler=LoopScheduler(),
            failed=self.failures.append,
        )
        self.metadata.on_change = self.changed.set

    async def until_it_has(self, topics: set[str]) -> None:
        await until(self, lambda: self.observer.has_caught_up and topics <= {*self.metadata.image.topics})


async def until(node: Node, is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            assert not node.failures
            node.changed.clear()
            await node.changed.wait()


def properties_of(file: Path) -> dict[str, str]:
    lines = [line.partition("=") for line in file.read_text().splitlines() if "=" in line and line[0] != "#"]
    return {name.strip(): value.strip() for name, _, value in lines}  # the last one counts


def registration(node: Node, *listeners: str) -> BrokerRegistrationRequest:
    """The registration of a broker with such listeners, which nobody serves."""
    return BrokerRegistrationRequest(
        broker_id=node.node_id,
        cluster_id=node.cluster_id,
        incarnation_id=os.urandom(16),
        listeners=[
            AdvertisedListener(name=name, host="127.0.0.1", port=9 + place)
            for place, name in enumerate(listeners or ("PLAINTEXT",))
        ],
        rack=f"rack-{node.node_id}",
        features=[
            SupportedFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in supported_features().items()
        ],
        log_dirs=[node.directory_id],
    )

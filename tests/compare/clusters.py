"""The two clusters for scripts, a controller and three brokers each, from the same properties."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import barnabas
from tests.support import apache_kafka
from tests.support.apache_kafka import RUNNER, ApacheKafka

from .brokers import barnabas_broker, kafka
from .cluster import Cluster, Node
from .cluster_properties import BROKERS, CONTROLLER, Ports, is_cluster, new_ports, node_settings
from .scene import Broker

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
KAFKA_SESSION_TIMEOUT_MS = 6000
BARNABAS_SESSION_TIMEOUT_MS = 4000
"""Our brokers are never as busy as four JVMs on two cores sometimes are, and no test should wait longer than needed
until a killed broker is noticed."""


class KafkaNode:
    """A node of Apache Kafka's, which is already started."""

    def __init__(self, running: ApacheKafka) -> None:
        self._running = running
        self.data = running.data

    @property
    def pid(self) -> int:
        return int((self._running.directory / "pid").read_text())

    def start(self) -> None:
        self._running.start_again()

    def stop(self) -> None:
        subprocess.run([RUNNER, "down", self._running.directory], check=True)

    def kill(self) -> None:
        self._running.kill()


@contextlib.contextmanager
def kafka_cluster(folder: Path, properties: str) -> Iterator[Cluster]:
    ports = new_ports()
    with contextlib.ExitStack() as stack:

        def started(node_id: int) -> Node:
            settings = node_settings(properties, node_id, ports, KAFKA_SESSION_TIMEOUT_MS)
            return KafkaNode(stack.enter_context(apache_kafka.node(folder / str(node_id), settings)))

        yield stack.enter_context(_at_work(_at_once(started), ports))


@contextlib.contextmanager
def barnabas_cluster(folder: Path, properties: str) -> Iterator[Cluster]:
    ports = new_ports()
    with contextlib.ExitStack() as stack:

        def started(node_id: int) -> Node:
            directory = folder / str(node_id)
            directory.mkdir()
            file, data = directory / "server.properties", directory / "data"
            settings = {
                "log.dirs": str(data),
                **node_settings(properties, node_id, ports, BARNABAS_SESSION_TIMEOUT_MS),
            }
            file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
            subprocess.run(
                [sys.executable, "-m", "broker", "format", "-t", CLUSTER_ID, "-c", str(file)],
                stdout=subprocess.DEVNULL,
                check=True,
            )
            node = barnabas.Broker(data=data, properties=file)
            stack.callback(node.kill)
            return node.start()

        yield stack.enter_context(_at_work(_at_once(started), ports))


def _at_once(start: Callable[[int], Node]) -> dict[int, Node]:
    """Start all nodes at once: a broker waits for its controller."""
    ids = (CONTROLLER, *BROKERS)
    with ThreadPoolExecutor(len(ids)) as pool:
        return dict(zip(ids, pool.map(start, ids), strict=True))


@contextlib.contextmanager
def _at_work(nodes: dict[int, Node], ports: Ports) -> Iterator[Cluster]:
    cluster = Cluster(nodes, ports)
    try:
        cluster.state.make_internal_topics()
        yield cluster
    finally:
        cluster.let_go()


def kafka_for(folder: Path, properties: str) -> contextlib.AbstractContextManager[Broker]:
    """Return what plays scripts with these properties: a broker, or a cluster."""
    return kafka_cluster(folder, properties) if is_cluster(properties) else kafka(folder, properties)


def barnabas_for(folder: Path, properties: str) -> contextlib.AbstractContextManager[Broker]:
    if is_cluster(properties):
        return barnabas_cluster(folder, properties)
    return barnabas_broker(folder, properties)

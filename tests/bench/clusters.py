"""Three brokers and their controller, ours and Apache Kafka's in turns, from nothing each time.

The settings are equal: a broker is fenced 3 s after its last heartbeat.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.broker import LAUNCHER
from tests.bench.checkouts import ROOT
from tests.bench.measures import PATIENCE_S, RECORD_BYTES, memory_mb
from tests.bench.report import Row
from tests.support.apache_kafka import RUNNER, tool
from tests.support.kafka_server import CLUSTER_ID, JVM_OPTIONS
from tests.support.ports import free_ports

ROWS = [
    Row(
        "cluster-launch", "three brokers, launch to first record on all", "s", less_is_better=True, decimals=2
    ),
    Row("cluster-rss", "three brokers and a controller, RSS", "MB", less_is_better=True),
    Row("cluster-produce", "produce to three replicas, acks=all", "MB/s"),
    Row("cluster-transactions", "transactions over three brokers", "/s"),
    Row("cluster-commit", "commit over three brokers, median", "ms", less_is_better=True, decimals=1),
    Row("cluster-leaderless", "without a leader after kill -9", "s", less_is_better=True, decimals=1),
]

CONTROLLER, BROKERS = 1, (2, 3, 4)
PRODUCED_MB = 200
WARM_MB = 50
TRANSACTIONS = 300
SETTINGS = {
    "controller.listener.names": "CONTROLLER",
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
}

Spawn = Callable[[Path], "subprocess.Popen[bytes]"]
"""Starts a node from the path of a server.properties."""


def ours(properties: Path) -> subprocess.Popen[bytes]:
    """Start a node of this checkout."""
    command = [sys.executable, "-P", str(ROOT / LAUNCHER.relative_to(ROOT)), "--config", str(properties)]
    return _spawned(command, properties, {"CLUSTER_ID": CLUSTER_ID})


def kafkas(properties: Path) -> subprocess.Popen[bytes]:
    """Start a node of Apache Kafka, whose folder is formatted."""
    return _spawned(
        [str(RUNNER), "class", "kafka.Kafka", str(properties)], properties, {"KAFKA_OPTS": JVM_OPTIONS}
    )


def _spawned(command: list[str], properties: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with (properties.parent / "log").open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
        )


class Nodes:
    """A controller and `brokers`, by their ids."""

    def __init__(self, folder: Path, spawn: Spawn, brokers: tuple[int, ...] = BROKERS) -> None:
        controller_port, *ports = free_ports(1 + len(brokers))
        quorum = {"controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}"}
        self.ports = dict(zip(brokers, ports, strict=True))
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self._spawn = spawn
        listens = {CONTROLLER: f"CONTROLLER://127.0.0.1:{controller_port}"}
        listens |= {each: f"PLAINTEXT://127.0.0.1:{port}" for each, port in self.ports.items()}
        self._properties: dict[int, Path] = {}
        for node_id, listeners in listens.items():
            roles = "controller" if node_id == CONTROLLER else "broker"
            place = folder / str(node_id)
            place.mkdir(parents=True)
            given = {
                "process.roles": roles,
                "node.id": node_id,
                "listeners": listeners,
                "log.dirs": place / "data",
                **quorum,
                **SETTINGS,
            }
            file = self._properties[node_id] = place / "server.properties"
            file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
            if spawn is kafkas:
                standalone = ["--standalone"] if node_id == CONTROLLER else []
                tool("storage", "format", "-t", CLUSTER_ID, *standalone, "-c", file)

    def start(self) -> None:
        for node_id in self._properties:
            self.start_one(node_id)

    def start_one(self, node_id: int) -> None:
        self.processes[node_id] = self._spawn(self._properties[node_id])

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()


@contextmanager
def _running(folder: Path, spawn: Spawn) -> Iterator[Nodes]:
    nodes = Nodes(folder, spawn)
    try:
        yield nodes
    finally:
        nodes.end()


def measure(folder: Path, spawn: Spawn) -> dict[str, float]:
    """Measure all figures of one cluster, which lives as long as that takes."""
    with _running(folder, spawn) as nodes:
        figures: dict[str, float] = {}
        started_s = time.perf_counter()
        nodes.start()
        asking = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
        _create(asking, "first", {"min.insync.replicas": "3"})
        producer = Producer(
            {"bootstrap.servers": nodes.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
        )
        _acknowledged(producer, "first")
        figures["cluster-launch"] = time.perf_counter() - started_s
        _create(asking, "produced", {})
        _produce(nodes.bootstrap, WARM_MB)
        figures["cluster-produce"] = _produce(nodes.bootstrap, PRODUCED_MB)
        figures |= _transactions(nodes.bootstrap)
        figures["cluster-rss"] = sum(memory_mb(each.pid)[0] for each in nodes.processes.values())
        figures["cluster-leaderless"] = statistics.median(
            _leaderless(nodes, asking, each) for each in BROKERS
        )
        return figures


def _leaderless(nodes: Nodes, asking: AdminClient, leader: int) -> float:
    """Return the seconds from the kill of a topic's leader until a record is acknowledged again. The broker is back
    then. One measurement says little: the last heartbeat may be half a second old, and the client asks for the leader
    up to a second apart."""
    topic = f"survives-{leader}"
    _create(asking, topic, {}, [[leader, *(each for each in BROKERS if each != leader)]])
    survivor = Producer(
        {"bootstrap.servers": nodes.bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
    )
    _acknowledged(survivor, topic)
    killed_s = time.perf_counter()
    nodes.processes[leader].send_signal(signal.SIGKILL)
    nodes.processes[leader].wait()
    _acknowledged(survivor, topic)
    took_s = time.perf_counter() - killed_s
    nodes.start_one(leader)
    _create(asking, f"back-{leader}", {})  # once there are three again
    return took_s


def _create(
    asking: AdminClient, topic: str, config: dict[str, str], assignment: list[list[int]] | None = None
) -> None:
    """Create the topic as soon as there are three brokers for it. Return once all three replicas are in sync."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        new = (
            NewTopic(topic, 1, 3, config=config)
            if assignment is None
            else NewTopic(topic, replica_assignment=assignment, num_partitions=1, config=config)
        )
        try:
            asking.create_topics([new], request_timeout=5)[topic].result(PATIENCE_S)
            return
        except KafkaException as refused:
            if refused.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return  # an earlier try created it, but its answer came too late
            assert time.monotonic() < deadline_s, f"{topic} can't be created"
            time.sleep(0.01)


def _acknowledged(producer: Producer, topic: str) -> None:
    """Send a record, as often as needed."""
    while not _is_acknowledged(producer, topic):
        pass


def _is_acknowledged(producer: Producer, topic: str) -> bool:
    errors: list[object] = []
    producer.produce(topic, b"x" * RECORD_BYTES, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    return errors == [None]


def _produce(bootstrap: str, megabytes: int) -> float:
    """Return MB per second with confluent-kafka."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
            "log_level": 0,
        }
    )
    value = os.urandom(RECORD_BYTES)
    count = megabytes * 1_000_000 // RECORD_BYTES
    producer.list_topics("produced", timeout=PATIENCE_S)
    started_s = time.perf_counter()
    for _ in range(count):
        producer.produce("produced", value)
    assert producer.flush(PATIENCE_S) == 0
    return megabytes / (time.perf_counter() - started_s)


def _transactions(bootstrap: str) -> dict[str, float]:
    """Measure one producer's transactions of one record each."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "bench", "linger.ms": 0, "log_level": 0}
    )
    producer.init_transactions(PATIENCE_S)
    value = os.urandom(RECORD_BYTES)
    commits_ms: list[float] = []
    started_s = 0.0
    for number in range(-TRANSACTIONS, TRANSACTIONS):
        if number == 0:
            started_s = time.perf_counter()
        producer.begin_transaction()
        producer.produce("produced", value)
        producer.flush(PATIENCE_S)
        began_s = time.perf_counter()
        producer.commit_transaction(PATIENCE_S)
        if number >= 0:
            commits_ms.append((time.perf_counter() - began_s) * 1000)
    took_s = time.perf_counter() - started_s
    return {
        "cluster-transactions": TRANSACTIONS / took_s,
        "cluster-commit": statistics.median(commits_ms),
    }

"""Brokers of Apache Kafka, and one of ours, in a cluster that a controller of ours controls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import barnabas
from tests.interop.joining import PATIENCE_S, admin
from tests.support import apache_kafka, waiting
from tests.support.apache_kafka import ApacheKafka, tool
from tests.support.load import PARTITIONS, TOPIC, Sending, described, end_and_find_all, go_on
from tests.support.ports import free_ports
from tests.support.requirements import need_apache_kafka

CONTROLLER, OURS, KAFKAS = 1, 2, (3, 4)
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
SETTINGS = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "transaction.state.log.min.isr": 2,
    "broker.heartbeat.interval.ms": 500,
}


class Cluster:
    """What is started is ended with the stack; `ours` and `kafkas` are brokers. `version` is Kafka's, whose tool
    formats all folders."""

    def __init__(self, folder: Path, stack: ExitStack, version: str | None = None) -> None:
        self._version = version
        controller_port, *ports = free_ports(4)
        self.quorum = {
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        }
        listens = {
            "listeners": f"CONTROLLER://127.0.0.1:{controller_port}",
            "broker.session.timeout.ms": 3000,
        }
        self.controller = self._node(folder / "controller", "controller", CONTROLLER, listens)
        stack.callback(self.controller.stop)
        self.controller.start()
        given = {"listeners": f"PLAINTEXT://127.0.0.1:{ports[0]}", **SETTINGS}
        self.ours = self._node(folder / "ours", "broker", OURS, given)
        stack.callback(self.ours.kill)
        self.ours.start()
        self.kafkas: dict[int, ApacheKafka] = {}
        for node_id, port in zip(KAFKAS, ports[1:], strict=True):
            of_kafka = {"process.roles": "broker", "node.id": node_id, **self.quorum, **SETTINGS}
            of_kafka["listeners"] = f"PLAINTEXT://127.0.0.1:{port}"
            self.kafkas[node_id] = stack.enter_context(
                apache_kafka.node(folder / str(node_id), of_kafka, version=version)
            )
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)

    def _node(self, folder: Path, roles: str, node_id: int, given: dict[str, object]) -> barnabas.Broker:
        """Of ours, its folder formatted by Kafka's own tool."""
        folder.mkdir()
        config: dict[str, object] = {"process.roles": roles, "node.id": node_id, **self.quorum, **given}
        file, data = folder / "server.properties", folder / "data"
        file.write_text("".join(f"{key}={value}\n" for key, value in {**config, "log.dirs": data}.items()))
        standalone = ["--standalone"] if roles == "controller" else []
        tool("storage", "format", "-t", CLUSTER_ID, *standalone, "-c", file, version=self._version)
        return barnabas.Broker(data=data, config=config)

    def data(self) -> list[Path]:
        """Of each broker."""
        return [self.ours.data, *(kafka.data for kafka in self.kafkas.values())]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    need_apache_kafka()
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


def all_are_there(asking: AdminClient) -> bool:
    return asking.list_topics(timeout=PATIENCE_S).brokers.keys() == {OURS, *KAFKAS}


def all_in_sync(asking: AdminClient) -> bool:
    return all(len(partition.isrs) == 3 for partition in described(asking).values())


@pytest.mark.one_run_in(2)
def test_nothing_is_lost_doubled_or_reordered_whoever_is_killed(cluster: Cluster) -> None:
    asking = admin(cluster.bootstrap)
    waiting.until(lambda: all_are_there(asking), "all brokers are there", PATIENCE_S)
    assert {
        line.split()[0]
        for line in tool("cluster", "list-endpoints", "--bootstrap-server", cluster.bootstrap).splitlines()[
            1:
        ]
    } == {str(each) for each in (OURS, *KAFKAS)}
    wanted = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    asking.create_topics([wanted])[TOPIC].result(PATIENCE_S)
    sending = [Sending(cluster.bootstrap), Sending(cluster.bootstrap, transactional_id="transactional")]
    for each in sending:
        each.start()
    go_on(sending)

    for kafka in cluster.kafkas.values():
        kafka.kill()
        go_on(sending)
        kafka.start_again()
        waiting.until(lambda: all_in_sync(asking), "Kafka's is in sync again", PATIENCE_S)
    cluster.ours.kill()
    go_on(sending)
    cluster.ours.start()
    waiting.until(lambda: all_in_sync(asking), "ours is in sync again", PATIENCE_S)
    cluster.controller.kill()
    go_on(sending)  # brokers serve on without it
    cluster.controller.start()
    first = cluster.kafkas[KAFKAS[0]]
    first.kill()
    go_on(sending)
    first.start_again()
    waiting.until(lambda: all_in_sync(asking), "all are in sync again", PATIENCE_S)
    end_and_find_all(sending, cluster.bootstrap)
    waiting.until(
        lambda: all(
            len({logs_of(data, index) for data in cluster.data()}) == 1 for index in range(PARTITIONS)
        ),
        "the replicas' files are equal",
        PATIENCE_S,
    )


def logs_of(data: Path, index: int) -> bytes:
    segments = sorted((data / f"{TOPIC}-{index}").glob("*.log"))
    return b"".join(path.read_bytes() for path in segments)

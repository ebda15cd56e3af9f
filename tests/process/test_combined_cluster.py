"""A cluster of one node that is both broker and controller, and two more brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import barnabas
from tests.support import waiting
from tests.support.load import PARTITIONS, PATIENCE_S, TOPIC, Sending, described, end_and_find_all, go_on
from tests.support.ports import free_ports

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
BOTH, OTHERS = 1, (2, 3)
SETTINGS = {
    "controller.listener.names": "CONTROLLER",
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 300,
    "replica.lag.time.max.ms": 3_000,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
}
REPLICATED = {"offsets.topic.replication.factor": 3, "transaction.state.log.replication.factor": 3}


class Node(barnabas.Broker):
    def _command(self, control_fd: int) -> list[str]:
        return [*super()._command(control_fd), "--cluster-id", CLUSTER_ID]


class Nodes:
    def __init__(self, folder: Path) -> None:
        controller_port, *ports = free_ports(4)
        controller = f"127.0.0.1:{controller_port}"
        given = {"controller.quorum.bootstrap.servers": controller, **SETTINGS}
        listens = f"PLAINTEXT://127.0.0.1:{ports[0]},CONTROLLER://{controller}"
        config = {"node.id": BOTH, "listeners": listens, **given}
        self.both = Node(data=folder / "1", config=config)
        self.others = [
            Node(
                data=folder / str(node_id),
                config={"process.roles": "broker", "node.id": node_id, **given, **REPLICATED}
                | {"listeners": f"PLAINTEXT://127.0.0.1:{port}"},
            )
            for node_id, port in zip(OTHERS, ports[1:], strict=True)
        ]
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)

    @property
    def all(self) -> list[Node]:
        return [self.both, *self.others]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path)
    try:
        for node in nodes.all:
            node.start()
        yield nodes
    finally:
        for node in reversed(nodes.all):
            node.kill()


def all_in_sync(asking: AdminClient) -> bool:
    return all(len(partition.isrs) == 3 for partition in described(asking).values())


def test_a_combined_node_leads_follows_coordinates_leaves_and_comes_back(nodes: Nodes) -> None:
    asking = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
    waiting.until(
        lambda: {*asking.list_topics(timeout=PATIENCE_S).brokers} == {BOTH, *OTHERS},
        "all are there",
        PATIENCE_S,
    )
    # a broker creates internal topics by its own settings, and this broker's say three replicas
    asking_other = AdminClient({"bootstrap.servers": nodes.others[0].bootstrap, "log_level": 0})
    wanted = [
        NewTopic(
            TOPIC, PARTITIONS, replica_assignment=[[1, 2, 3], [2, 3, 1]], config={"min.insync.replicas": "2"}
        ),
        NewTopic(
            "__transaction_state",
            2,
            replica_assignment=[[2, 3, 1], [1, 2, 3]],
            config={"cleanup.policy": "compact"},
        ),
    ]
    for made in asking_other.create_topics(wanted).values():
        made.result(PATIENCE_S)
    waiting.until(lambda: all_in_sync(asking), "it follows, too", PATIENCE_S)
    ids = [f"transactional-{number}" for number in range(4)]  # the hashes of these ids cover both partitions
    plain, *transactional = [
        Sending(nodes.bootstrap),
        *(Sending(nodes.bootstrap, transactional_id=each) for each in ids),
    ]
    sending = [plain, *transactional]
    for each in sending:
        each.start()
    go_on(sending)

    nodes.both.stop()  # the others lead its partitions, though they have no controller meanwhile
    go_on(sending)
    nodes.both.start()
    waiting.until(lambda: all_in_sync(asking), "it is in sync again", PATIENCE_S)
    go_on(sending)
    nodes.others[0].kill()
    go_on(sending)
    nodes.others[0].start()
    waiting.until(lambda: all_in_sync(asking), "the other one is in sync again", PATIENCE_S)
    nodes.both.kill()
    nodes.both.start()
    waiting.until(lambda: all_in_sync(asking), "it is in sync again after a kill", PATIENCE_S)
    go_on(sending)
    end_and_find_all(sending, nodes.bootstrap, ("plain", *ids))
    waiting.until(
        lambda: all(
            len({log_of(node.data / f"{TOPIC}-{index}") for node in nodes.all}) == 1
            for index in range(PARTITIONS)
        ),
        "the replicas' files are equal",
        PATIENCE_S,
    )


def log_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))

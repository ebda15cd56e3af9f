"""What the nodes of a `Cluster` are: ids, ports, folders, settings."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from barnabas.cluster_node import ClusterNode, Network
from barnabas.ports import HeldPorts

CONTROLLER_ID = 100

SET_BY_THE_CLUSTER = {
    "advertised.listeners",
    "broker.id",
    "broker.rack",
    "controller.listener.names",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "listeners",
    "log.dir",
    "log.dirs",
    "metadata.log.dir",
    "node.id",
    "process.roles",
    "security.inter.broker.protocol",
}


def defaults(brokers: int) -> dict[str, object]:
    """Settings that aren't Kafka's defaults, where `config` doesn't say otherwise. Topics have as many replicas as
    Kafka's defaults wish for, as far as there are brokers, and take records while one of three is away. An internal
    topic has a few partitions for each broker, and not 50: a test waits for all of them. Heartbeats come four times as
    often: a broker that stops asks the controller as often whether it may."""
    replicas = min(3, brokers)
    least_in_sync = 2 if replicas > 2 else 1
    return {
        "broker.heartbeat.interval.ms": 500,
        "default.replication.factor": replicas,
        "min.insync.replicas": least_in_sync,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": 6,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": least_in_sync,
        "transaction.state.log.num.partitions": 6,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": least_in_sync,
    }


class Layout:
    """Of one cluster: see there."""

    def __init__(
        self,
        brokers: int,
        racks: Sequence[str],
        config: Mapping[str, object],
        *,
        host: str,
        port: int | None,
        log_level: str | None,
        startup_timeout_s: float,
    ) -> None:
        """Raises ValueError for what no cluster can be made by."""
        if brokers < 1:
            raise ValueError(f"a cluster has one broker or more, and not {brokers}")
        taken = SET_BY_THE_CLUSTER.intersection(config)
        if taken:
            raise ValueError(f"{', '.join(sorted(taken))}: a cluster sets that itself")
        self.brokers = brokers
        self.startup_timeout_s = startup_timeout_s
        self._racks = racks
        self._config = {**defaults(brokers), **config}
        self._host = host
        self._port = port
        self._log_level = log_level
        self._ports: HeldPorts | None = None

    def nodes(self, root: Path, temporary_root: Path | None) -> list[ClusterNode]:
        """The controller and the brokers, none of which runs yet. Folders that are there already say the cluster's id.
        Free ports are taken, and held until `let_go_of_ports`."""
        network = Network()
        cluster_id = _found_cluster_id(root) or _new_cluster_id()
        return [
            ClusterNode(
                node_id,
                address,
                network,
                folder=root / name,
                temporary_root=temporary_root,
                cluster_id=cluster_id,
                config=config,
                log_level=self._log_level,
                startup_timeout_s=self.startup_timeout_s,
            )
            for node_id, name, address, config in self._planned()
        ]

    def let_go_of_ports(self) -> None:
        """Nobody listens on them any more."""
        if self._ports is not None:
            self._ports.let_go()

    def _planned(self) -> Iterator[tuple[int, str, tuple[str, int], dict[str, object]]]:
        """Id, folder, address for other nodes, settings."""
        self._ports = HeldPorts([self._host] * (2 * self.brokers + 1))
        controller_port, *ports = self._ports.numbers
        if self._port is not None:
            ports[: self.brokers] = range(self._port, self._port + self.brokers)
        controller_id = max(CONTROLLER_ID, self.brokers + 1)
        of_all = {
            **self._config,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{controller_id}@{self._at(controller_port)}",
        }
        of_controller = {
            **of_all,
            "process.roles": "controller",
            "node.id": controller_id,
            "listeners": f"CONTROLLER://{self._at(controller_port)}",
        }
        yield controller_id, "controller", (self._host, controller_port), of_controller
        for node_id in range(1, self.brokers + 1):
            client_port, port = ports[node_id - 1], ports[self.brokers + node_id - 1]
            of_broker: dict[str, object] = {
                **of_all,
                "process.roles": "broker",
                "node.id": node_id,
                "listeners": f"PLAINTEXT://{self._at(client_port)},BROKERS://{self._at(port)}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "inter.broker.listener.name": "BROKERS",
            }
            if self._racks:
                of_broker["broker.rack"] = self._racks[(node_id - 1) % len(self._racks)]
            yield node_id, str(node_id), (self._host, port), of_broker

    def _at(self, port: int) -> str:
        return f"[{self._host}]:{port}" if ":" in self._host else f"{self._host}:{port}"


def _new_cluster_id() -> str:
    """As Kafka draws one: it can't be taken for an option."""
    while (drawn := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return drawn


def _found_cluster_id(root: Path) -> str | None:
    """Of folders that were here before."""
    for file in sorted(root.glob("*/meta.properties")):
        for line in file.read_text("utf-8", errors="replace").splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "cluster.id":
                return value.strip()
    return None

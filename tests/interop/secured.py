"""A cluster of Apache Kafka's nodes and ours that speaks SASL_SSL, between brokers and to its controller."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import barnabas
from tests.support import apache_kafka
from tests.support.apache_kafka import ApacheKafka, tool
from tests.support.certificates import KEPT, Certificates
from tests.support.ports import free_ports

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
AUTHORITY = Certificates(KEPT)
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
NODE = 'username="node" password="node-secret"'
BETWEEN_BROKERS = "SCRAM-SHA-512"
CREDENTIALS = (
    f"{BETWEEN_BROKERS}=[name=node,password=node-secret]",
    "SCRAM-SHA-256=[name=alice,password=alice-secret]",
)
SECURITY = {
    "listener.security.protocol.map": "NODES:SASL_SSL,CONTROLLER:SASL_SSL",
    **AUTHORITY.settings(),
    "listener.name.nodes.sasl.enabled.mechanisms": f"{BETWEEN_BROKERS},SCRAM-SHA-256",
    "listener.name.nodes.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
    f"listener.name.nodes.{BETWEEN_BROKERS.lower()}.sasl.jaas.config": f"{SCRAM} required {NODE};",
    "listener.name.controller.ssl.client.auth": "required",
    "sasl.mechanism.inter.broker.protocol": BETWEEN_BROKERS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:node",
}
AT_CONTROLLERS = {
    "PLAIN": f'{PLAIN} required {NODE} user_node="node-secret";',
    BETWEEN_BROKERS: f"{SCRAM} required {NODE};",
}
"""By mechanism the line of the controllers' listener."""
INTERNAL = {
    "offsets.topic.num.partitions": 2,
    "offsets.topic.replication.factor": 2,
    "transaction.state.log.num.partitions": 2,
    "transaction.state.log.replication.factor": 2,
    "transaction.state.log.min.isr": 2,
    "broker.heartbeat.interval.ms": 300,
    "group.initial.rebalance.delay.ms": 0,
}


def client_of(bootstrap: str, user: str = "alice", mechanism: str = "SCRAM-SHA-256") -> dict[str, Any]:
    """How librdkafka signs in."""
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
        "ssl.ca.location": str(AUTHORITY.certificate),
        "log_level": 0,
    }


class Nodes:
    """What is started is ended with the stack. The controller is node 1; it has the credentials. `mechanism` at its
    listener."""

    def __init__(self, folder: Path, stack: ExitStack, mechanism: str) -> None:
        self._at_controllers = {
            "listener.name.controller.sasl.enabled.mechanisms": mechanism,
            f"listener.name.controller.{mechanism.lower()}.sasl.jaas.config": AT_CONTROLLERS[mechanism],
            "sasl.mechanism.controller.protocol": mechanism,
        }
        self._folder = folder
        self._stack = stack
        self._ports: Iterator[int] = iter(free_ports(6))
        self._controller_port = next(self._ports)
        self.bootstrap = ""

    def _settings(self, node_id: int, roles: str, more: Mapping[str, object]) -> dict[str, object]:
        listeners = []
        if "broker" in roles:
            port = next(self._ports)
            listeners.append(f"NODES://127.0.0.1:{port}")
            self.bootstrap = f"{self.bootstrap},127.0.0.1:{port}".lstrip(",")
        if "controller" in roles:
            listeners.append(f"CONTROLLER://127.0.0.1:{self._controller_port}")
        return {
            "process.roles": roles,
            "node.id": node_id,
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self._controller_port}",
            **SECURITY,
            **self._at_controllers,
            **({"inter.broker.listener.name": "NODES", **INTERNAL} if "broker" in roles else {}),
            **more,
        }

    def _format(self, folder: Path, settings: Mapping[str, object]) -> Path:
        folder.mkdir(parents=True)
        file, data = folder / "format.properties", folder / "data"
        file.write_text("".join(f"{key}={value}\n" for key, value in {**settings, "log.dirs": data}.items()))
        of_controller: Sequence[str] = ()
        if "controller" in str(settings["process.roles"]):
            of_controller = [
                "--standalone",
                *(each for pair in CREDENTIALS for each in ("--add-scram", pair)),
            ]
        tool("storage", "format", "-t", CLUSTER_ID, *of_controller, "-c", file)
        return data

    def ours(self, node_id: int, roles: str, **more: object) -> barnabas.Broker:
        """`more` settings with `_` for `.`. Not started."""
        settings = self._settings(
            node_id, roles, {key.replace("_", "."): value for key, value in more.items()}
        )
        data = self._format(self._folder / str(node_id), settings)
        broker = barnabas.Broker(data=data, config=settings)
        self._stack.callback(broker.kill)
        return broker

    def kafka(self, node_id: int, roles: str) -> ApacheKafka:
        """A started broker of Kafka's."""
        settings = self._settings(node_id, roles, {})
        folder = self._folder / str(node_id)
        data = self._format(folder / "formatted", settings)
        return self._stack.enter_context(apache_kafka.node(folder / "run", {**settings, "log.dirs": data}))

"""The server.properties of a controller and three brokers, of Kafka's and of ours. They differ in ports, folders and
the session timeout."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.ports import free_ports

from .properties import PROPERTIES

CONTROLLER = 100
BROKERS = (1, 2, 3)
RACKS = {1: "a", 2: "b", 3: "a"}
CLUSTER = "cluster"
"""The properties of scripts for a cluster, and the beginning of other such names."""

_OF_ALL = """\
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT
default.replication.factor=3
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
share.coordinator.state.topic.replication.factor=3
share.coordinator.state.topic.min.isr=2
group.initial.rebalance.delay.ms=0
auto.leader.rebalance.enable=false
replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector
broker.heartbeat.interval.ms=200
replica.fetch.wait.max.ms=50
"""
"""Leaders move only when a script says so. A stopping broker is released after some heartbeats, and the low watermark
of a DeleteRecords is known after a fetch of each follower. Neither needs as long as with Kafka's defaults."""

_OF_CONTROLLER = """\
process.roles=controller
node.id={node_id}
controller.quorum.voters={node_id}@127.0.0.1:{port}
listeners=CONTROLLER://127.0.0.1:{port}
broker.session.timeout.ms={session_timeout_ms}
"""

_OF_BROKER = """\
process.roles=broker
node.id={node_id}
broker.rack={rack}
controller.quorum.voters={controller}@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},INTERNAL://127.0.0.1:{internal_port}
inter.broker.listener.name=INTERNAL
"""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the nodes of one cluster listen."""

    controller: int
    clients: dict[int, int]
    brokers: dict[int, int]

    def named(self) -> dict[str, int]:
        """Return the ports by the names that scripts and transcripts use."""
        return {
            "controller": self.controller,
            **{f"broker {node_id}": port for node_id, port in self.clients.items()},
            **{f"broker {node_id} inter-broker": port for node_id, port in self.brokers.items()},
        }


def new_ports() -> Ports:
    controller, *others = free_ports(1 + 2 * len(BROKERS))
    return Ports(
        controller,
        dict(zip(BROKERS, others[: len(BROKERS)], strict=True)),
        dict(zip(BROKERS, others[len(BROKERS) :], strict=True)),
    )


def is_cluster(properties: str) -> bool:
    """Return True if scripts with these properties are played to a cluster."""
    return properties.split()[0] == CLUSTER


def on_cluster(properties: str) -> str:
    """Return the name of a cluster's properties whose nodes also have those of a single broker."""
    return f"{CLUSTER} {properties}"


def node_settings(name: str, node_id: int, ports: Ports, session_timeout_ms: int) -> dict[str, str]:
    """Return all settings of a node except its folder. The name is `cluster`, or one from `on_cluster`."""
    if node_id == CONTROLLER:
        own = _OF_CONTROLLER.format(
            node_id=node_id, port=ports.controller, session_timeout_ms=session_timeout_ms
        )
    else:
        own = _OF_BROKER.format(
            node_id=node_id,
            rack=RACKS[node_id],
            controller=CONTROLLER,
            controller_port=ports.controller,
            port=ports.clients[node_id],
            internal_port=ports.brokers[node_id],
        )
    more = PROPERTIES[name.partition(" ")[2] or "plain"]
    return dict(line.split("=", 1) for line in (own + more + _OF_ALL).splitlines())

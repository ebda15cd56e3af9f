"""The controller and its brokers, and what the controller knows about the partitions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from broker.config.definitions import StartError
from broker.controller.image import ClusterImage
from broker.replicas.leader import Leader
from broker.replicas.partition import Partition
from tests.simulation.machine import Machine, World
from tests.simulation.virtual_scheduler import MEAN_WORK_S

CONTROLLER = "controller"
FIRST_BROKER_ID = 2
BROKERS = ("broker-2", "broker-3", "broker-4")
CONTROLLER_PORT = 9090
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
MIN_IN_SYNC = 2
SESSION_TIMEOUT_MS = 3_000
SLOW_WORK_S = 0.1

COMMON = (
    "controller.listener.names=CONTROLLER",
    f"controller.quorum.voters=1@127.0.0.1:{CONTROLLER_PORT}",
    f"min.insync.replicas={MIN_IN_SYNC}",
    f"broker.session.timeout.ms={SESSION_TIMEOUT_MS}",
    "metadata.log.segment.ms=500",
)
OF_SHORT_METADATA = (
    # so that a node that was away has to fetch a snapshot
    "metadata.log.max.record.bytes.between.snapshots=2000",
    "metadata.max.retention.bytes=3000",
)
OF_BROKERS = (
    "broker.heartbeat.interval.ms=500",
    f"default.replication.factor={len(BROKERS)}",
    f"offsets.topic.replication.factor={len(BROKERS)}",
    f"transaction.state.log.replication.factor={len(BROKERS)}",
    f"transaction.state.log.min.isr={MIN_IN_SYNC}",
    "offsets.topic.num.partitions=3",
    "transaction.state.log.num.partitions=3",
    # each broker compacts on its own, and then logs aren't equal any more
    "log.cleaner.enable=false",
)


JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="node" password="secret" user_node="secret";'
)
SECURED = (
    "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,NODES:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms=PLAIN",
    "sasl.mechanism.inter.broker.protocol=PLAIN",
    "sasl.mechanism.controller.protocol=PLAIN",
    f"listener.name.nodes.plain.sasl.jaas.config={JAAS}",
    f"listener.name.controller.plain.sasl.jaas.config={JAAS}",
    "connections.max.reauth.ms=2000",  # so that nodes sign in again and again
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:node;User:ANONYMOUS",
)
"""Nodes sign in to each other; clients don't."""
NODES_PORTS = 1_000
"""The distance from a broker's port for clients to its port for nodes."""


def listeners_of_secured(node_id: int) -> Sequence[str]:
    port = CONTROLLER_PORT + node_id
    return (
        f"listeners=PLAINTEXT://127.0.0.1:{port},NODES://127.0.0.1:{port + NODES_PORTS}",
        "inter.broker.listener.name=NODES",
    )


class Term(NamedTuple):
    """One broker's leadership of a partition in one run, as the broker sees it."""

    broker: str
    run: int
    leader_epoch: int


class Nodes:
    def __init__(
        self,
        world: World,
        settings: Sequence[str],
        luck: random.Random,
        *,
        log_dirs: int = 1,
        of_all: Sequence[str] = (),
        secured: bool = False,
    ) -> None:
        """`settings`: the brokers', `of_all`: those of brokers and controller. `log_dirs`: how many each broker has.
        `secured`: nodes sign in to each other."""
        if secured:
            of_all = [*of_all, *SECURED]
        variables = {"CLUSTER_ID": CLUSTER_ID}
        of_metadata = luck.choice(((), OF_SHORT_METADATA))
        self.world = world
        self.controller = Machine(
            world,
            CONTROLLER,
            CONTROLLER_PORT,
            [
                *COMMON,
                *of_metadata,
                *of_all,
                "process.roles=controller",
                "node.id=1",
                f"listeners=CONTROLLER://127.0.0.1:{CONTROLLER_PORT}",
                f"leader.imbalance.check.interval.seconds={luck.choice((2, 7, 300))}",
            ],
            variables=variables,
        )
        self.brokers = {
            name: Machine(
                world,
                name,
                CONTROLLER_PORT + node_id,
                [
                    *COMMON,
                    *of_metadata,
                    *of_all,
                    *OF_BROKERS,
                    "process.roles=broker",
                    f"node.id={node_id}",
                    *(listeners_of_secured(node_id) if secured else ()),
                    *settings,
                ],
                variables=variables,
                mean_work_s=luck.choice((MEAN_WORK_S, MEAN_WORK_S, SLOW_WORK_S)),
                log_dirs=log_dirs,
            )
            for node_id, name in enumerate(BROKERS, FIRST_BROKER_ID)
        }
        self._image: ClusterImage | None = None

    @property
    def all(self) -> dict[str, Machine]:
        return {CONTROLLER: self.controller, **self.brokers}

    @property
    def broker_ids(self) -> list[int]:
        return [*range(FIRST_BROKER_ID, FIRST_BROKER_ID + len(self.brokers))]

    def by_id(self, node_id: int) -> Machine | None:
        return self.brokers.get(f"broker-{node_id}")

    async def start(self, machine: Machine, *, die_at: int = -1) -> bool:
        """Like `Machine.start`. If the node can't start, such as a broker that finds no controller, it is off again."""
        try:
            return await machine.start(die_at=die_at)
        except StartError as error:
            machine.note(f"can't start: {error}")
            return False

    # --- the present state ----------------------------------------------------------------------------------

    @property
    def image(self) -> ClusterImage | None:
        """The committed metadata. While the controller is away, it stays the same."""
        if self.controller.node is not None:
            self._image = self.controller.node.metadata.image
        return self._image

    def is_full(self) -> bool:
        """Return True if all replicas of all partitions are in sync, and each partition has a leader."""
        image = self.image
        return image is not None and all(
            partition.leader >= 0 and {*partition.isr} == {*partition.replicas}
            for topic in image.topics.values()
            for partition in topic.partitions.values()
        )

    def partition(self, broker: str, topic: str, index: int) -> Partition | None:
        server = self.brokers[broker].server
        hosted = None if server is None else server.partitions.by_name.get(topic)
        return None if hosted is None else hosted.partitions.get(index)

    def term(self, broker: str, topic: str, index: int) -> Term | None:
        """Return None if the broker doesn't lead the partition, or another one leads it by now."""
        partition, image = self.partition(broker, topic, index), self.image
        if partition is None or image is None or not isinstance(partition.role, Leader):
            return None
        known = image.topics[topic].partitions[index]
        epoch = partition.role.leader_epoch
        if self.by_id(known.leader) is not self.brokers[broker] or known.leader_epoch != epoch:
            return None
        return Term(broker, self.brokers[broker].runs, epoch)

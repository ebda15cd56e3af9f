"""A cluster of ours that serves the clients, and faults of its nodes: one at a time, so that two of three remain."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import barnabas
from tests.clients.checker.plan import CONSUMER_GROUPS
from tests.support.waiting import until

if TYPE_CHECKING:
    from barnabas.cluster import ClusterNode
    from tests.clients.checker.workload import Workload

PATIENCE_S = 120.0
MEANWHILE = 15
"""Operations that are done while a node is away, as far as the others do without it."""
MEANWHILE_S = 5.0
"""A deaf leader goes on leading, and soon all clients wait for it."""

SETTINGS = {
    "broker.session.timeout.ms": 2_000,
    "broker.heartbeat.interval.ms": 300,
    "replica.lag.time.max.ms": 2_000,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.min.isr": 2,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 100,
    **CONSUMER_GROUPS,
}


class CheckedCluster:
    """`Served`, by three brokers."""

    def __init__(self, cluster: barnabas.Cluster) -> None:
        self._cluster = cluster

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    @property
    def log(self) -> str:
        """The nodes' output."""
        return self._cluster.log

    def befall(self, fault: str, chance: random.Random, work: Workload) -> None:
        """See `Served`. Returns once all replicas are in sync again."""
        what, whom = CLUSTER_FAULTS[fault]
        what(self, whom(self, chance, work), work)
        self._cluster.wait_until_in_sync(PATIENCE_S)

    # --- who ------------------------------------------------------------------------------------------------

    def leader(self, chance: random.Random, work: Workload) -> ClusterNode:
        return self._cluster.leader_of(*chance.choice(work.keys))

    def coordinator(self, chance: random.Random, work: Workload) -> ClusterNode:
        return self._cluster.coordinator_of(**chance.choice(work.coordinated()))

    def controller(self, chance: random.Random, work: Workload) -> ClusterNode:
        return self._cluster.controller

    # --- what -----------------------------------------------------------------------------------------------

    def kill(self, node: ClusterNode, work: Workload) -> None:
        node.kill()
        self._until_others_lead(node, work)
        node.start()

    def stop(self, node: ClusterNode, work: Workload) -> None:
        node.stop()
        work.go_on(MEANWHILE, MEANWHILE_S)
        node.start()

    def pause(self, node: ClusterNode, work: Workload) -> None:
        node.pause()
        self._until_others_lead(node, work)
        node.resume()

    def isolate(self, node: ClusterNode, work: Workload) -> None:
        node.isolate()
        self._until_others_lead(node, work)
        node.heal()

    def deafen(self, node: ClusterNode, work: Workload) -> None:
        node.isolate(incoming=True, outgoing=False)
        work.go_on(MEANWHILE, MEANWHILE_S)
        node.heal()

    def mute(self, node: ClusterNode, work: Workload) -> None:
        node.isolate(incoming=False, outgoing=True)
        self._until_others_lead(node, work)
        node.heal()

    def move(self, node: ClusterNode, work: Workload) -> None:
        for topic, partition in work.keys:
            if self._cluster.leader_of(topic, partition).node_id == node.node_id:
                others = [each for each in self._cluster if each.node_id != node.node_id]
                self._cluster.move_leader(topic, partition, others[partition % len(others)])

    def _until_others_lead(self, node: ClusterNode, work: Workload) -> None:
        """Wait until other nodes lead. Nobody takes over from a controller: clients go on without one."""
        if node is self._cluster.controller:
            work.go_on(MEANWHILE, MEANWHILE_S)
            return

        def others_lead() -> bool:
            try:
                return all(self._cluster.leader_of(*key).node_id != node.node_id for key in work.keys)
            except LookupError:  # nobody leads it for now
                return False

        until(others_lead, f"others lead what {node} led", PATIENCE_S)
        work.go_on(MEANWHILE, MEANWHILE_S)

    # --- afterwards -----------------------------------------------------------------------------------------

    def differing(self, keys: list[tuple[str, int]]) -> list[str]:
        """The partitions whose replicas' files aren't equal, coordinators' among them. Each has some bytes."""
        return [
            f"{topic}-{partition}"
            for topic, partition in [*keys, *self._coordinators]
            if not _is_equal([_log(node.data / f"{topic}-{partition}") for node in self._cluster])
        ]

    @property
    def _coordinators(self) -> list[tuple[str, int]]:
        """The partitions of the internal topics that hold records."""
        return [
            (topic, partition)
            for topic in ("__consumer_offsets", "__transaction_state")
            for partition in range(SETTINGS[f"{_PARTITIONS_OF[topic]}.num.partitions"])
            if any(_log(node.data / f"{topic}-{partition}") for node in self._cluster)
        ]


_PARTITIONS_OF = {"__consumer_offsets": "offsets.topic", "__transaction_state": "transaction.state.log"}


def _log(folder: Path) -> bytes:
    """Return an empty log if the file doesn't exist."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def _is_equal(logs: list[bytes]) -> bool:
    return len({*logs}) == 1 and bool(logs[0])


Whom = Callable[[CheckedCluster, random.Random, "Workload"], "ClusterNode"]
What = Callable[[CheckedCluster, "ClusterNode", "Workload"], None]

CLUSTER_FAULTS: dict[str, tuple[What, Whom]] = {
    "kill a leader": (CheckedCluster.kill, CheckedCluster.leader),
    "kill a coordinator": (CheckedCluster.kill, CheckedCluster.coordinator),
    "kill the controller": (CheckedCluster.kill, CheckedCluster.controller),
    "stop a leader": (CheckedCluster.stop, CheckedCluster.leader),
    "stop the controller": (CheckedCluster.stop, CheckedCluster.controller),
    "pause a leader": (CheckedCluster.pause, CheckedCluster.leader),
    "pause a coordinator": (CheckedCluster.pause, CheckedCluster.coordinator),
    "pause the controller": (CheckedCluster.pause, CheckedCluster.controller),
    "isolate a leader": (CheckedCluster.isolate, CheckedCluster.leader),
    "isolate a coordinator": (CheckedCluster.isolate, CheckedCluster.coordinator),
    "isolate the controller": (CheckedCluster.isolate, CheckedCluster.controller),
    "deafen a leader": (CheckedCluster.deafen, CheckedCluster.leader),
    "mute a leader": (CheckedCluster.mute, CheckedCluster.leader),
    "move what a leader leads": (CheckedCluster.move, CheckedCluster.leader),
}
"""What happens, and to whom."""

"""Moves replicas between their broker's log directories."""

from __future__ import annotations

import asyncio

from protocol.errors import Error
from protocol.messages.cluster_admin import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tests.simulation.cluster.cluster_client import ClusterClient
from tests.simulation.cluster.move_work import OF_COORDINATORS
from tests.simulation.cluster.nodes import Nodes
from tests.simulation.wire_client import NoAnswer
from tests.simulation.work import PLACES, Place, Work

MOST_MOVES = 30
VERSION = 2

MAY_BE = frozenset(
    {
        Error.NONE,
        Error.UNKNOWN_TOPIC_OR_PARTITION,  # the broker doesn't know the partition yet
        Error.REPLICA_NOT_AVAILABLE,  # it has no replica of it: reassignments move them
        Error.KAFKA_STORAGE_ERROR,  # the controller can't record that another move is given up
    }
)


class LogDirWork:
    def __init__(self, client: ClusterClient, work: Work, nodes: Nodes) -> None:
        self.client = client
        self.work = work
        self.nodes = nodes

    async def run(self) -> None:
        """Do nothing if the brokers have one directory each."""
        luck = self.client.luck
        brokers = self.nodes.brokers
        if all(len(machine.folders) == 1 for machine in brokers.values()):
            return
        for _ in range(luck.randint(0, MOST_MOVES)):
            await asyncio.sleep(luck.expovariate(1))
            place, broker = luck.choice([*PLACES, *OF_COORDINATORS]), luck.choice([*brokers])
            error = await self._move(place, broker, luck.choice(brokers[broker].folders))
            if error is None:
                continue
            if error not in MAY_BE:
                self.work.complain(f"{place} can't be moved at {broker}: {error!r}")
            self.work.count("moves between directories", error is Error.NONE)

    async def _move(self, place: Place, broker: str, path: str) -> Error | None:
        """Return the error, or None without an answer."""
        name, index = place
        topics = [AlterReplicaLogDirTopic(name=name, partitions=[index])]
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
        try:
            answer = await self.client.at(broker).ask(request, VERSION)
        except NoAnswer:
            return None
        return Error(answer.results[0].partitions[0].error_code)

"""Moves partitions: to other replicas, fewer or more of them, or in another order; and elects preferred leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from protocol.errors import Error
from protocol.messages.cluster_admin import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ElectLeadersTopic,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.simulation.wire_client import WireClient
from tests.simulation.work import PLACES, Place, Work

TIMEOUT_MS = 10_000
OF_COORDINATORS = [
    (name, index) for name in ("__consumer_offsets", "__transaction_state") for index in range(3)
]
LEAST_REPLICAS = 2

CANCELLED = frozenset(
    {
        Error.NONE,
        Error.NO_REASSIGNMENT_IN_PROGRESS,
        Error.INVALID_REPLICA_ASSIGNMENT,  # none of the previous replicas is in sync
    }
)
ELECTED = frozenset({Error.NONE, Error.ELECTION_NOT_NEEDED, Error.PREFERRED_LEADER_NOT_AVAILABLE})


class MoveWork:
    def __init__(self, client: WireClient, work: Work, broker_ids: Sequence[int]) -> None:
        self.client = client
        self.work = work
        self.broker_ids = broker_ids

    async def run(self, moves: int) -> None:
        """At the end, each partition has all brokers as replicas again."""
        luck = self.client.luck
        moved: set[Place] = set()
        for _ in range(moves):
            await asyncio.sleep(luck.expovariate(0.5))
            place = luck.choice([*PLACES, *OF_COORDINATORS])
            kind = luck.random()
            if kind < 0.2:
                await self._must("elect", await self._elect(place), ELECTED)
            elif kind < 0.35:
                await self._must("cancel", await self._reassign(place, None), CANCELLED)
            else:
                moved.add(place)
                number = luck.randint(LEAST_REPLICAS, len(self.broker_ids))
                replicas = luck.sample(self.broker_ids, number)
                await self._must("move", await self._reassign(place, replicas), frozenset({Error.NONE}))
            self.work.count("moves")
        for place in sorted(moved):
            replicas = luck.sample(self.broker_ids, len(self.broker_ids))
            await self._must("move back", await self._reassign(place, replicas), frozenset({Error.NONE}))

    async def _must(self, what: str, error: Error | None, expected: frozenset[Error]) -> None:
        if error not in expected and error is not Error.UNKNOWN_TOPIC_OR_PARTITION:  # not created yet
            self.work.complain(f"{self.client.name} can't {what}: {error!r}")

    async def _reassign(self, place: Place, replicas: list[int] | None) -> Error | None:
        """Reassign the partition. None cancels."""
        topic, index = place
        partition = ReassignablePartition(partition_index=index, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=topic, partitions=[partition])]
        )

        async def ask() -> Error:
            answer = await self.client.ask(request, 1)
            if answer.error_code:
                return Error(answer.error_code)
            return Error(answer.responses[0].partitions[0].error_code)

        return await self.client.insist(ask, tries=100)

    async def _elect(self, place: Place) -> Error | None:
        topic, index = place
        request = ElectLeadersRequest(
            election_type=0,
            topic_partitions=[ElectLeadersTopic(topic=topic, partitions=[index])],
            timeout_ms=TIMEOUT_MS,
        )

        async def ask() -> Error:
            answer = await self.client.ask(request, 2)
            if answer.error_code:
                return Error(answer.error_code)
            return Error(answer.replica_election_results[0].partition_result[0].error_code)

        return await self.client.insist(ask, tries=100)

"""Three brokers and their controller with clients at work, while nodes die, hang and lose contact; and what must always
be true."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any
from unittest.mock import patch

from broker import housekeeping
from broker.quorum import controller_server as controller_upkeep
from tests.simulation import checks
from tests.simulation.cluster import cluster_checks
from tests.simulation.cluster.cluster_client import ClusterClient
from tests.simulation.cluster.faults import Deaths, Faults
from tests.simulation.cluster.log_dir_work import LogDirWork
from tests.simulation.cluster.move_work import MoveWork
from tests.simulation.cluster.nodes import BROKERS, MIN_IN_SYNC, Nodes
from tests.simulation.cluster.topic_work import TopicWork
from tests.simulation.course import LONGEST_S, Amounts, Course, Result
from tests.simulation.groups import GroupWork
from tests.simulation.machine import Machine
from tests.simulation.members import SETTINGS
from tests.simulation.producers import TRANSACTION_TIMEOUT_MS
from tests.simulation.reader import Reader
from tests.simulation.settling import settle
from tests.simulation.shares.several_nodes import on_several_nodes
from tests.simulation.shares.share_work import share_settings
from tests.simulation.virtual_loop import VirtualLoop, run
from tests.simulation.work import PLACES, Place, Work

SLOW_BYTES_PER_S = 2_000
METADATA_CLEANING_MS = 2_000
"""Not the usual minute: no run is long."""


def simulate(seed: int, *, shares: bool = False, secured: bool = False) -> Result:
    """Play a seed. `shares`: with share groups. `secured`: nodes sign in to each other."""
    return run(lambda loop: ClusterSimulation(loop, seed, shares=shares, secured=secured).run())


class ClusterSimulation(Course):
    replication_factor = len(BROKERS)
    amounts = Amounts(batches=(20, 60), transactions=(8, 25), commits=(10, 40))

    def __init__(self, loop: VirtualLoop, seed: int, *, shares: bool = False, secured: bool = False) -> None:
        super().__init__(loop, seed, Work(is_refused_now_and_then=True))
        luck = self.luck
        self.deaths = luck.choice([*Deaths])
        settings = [
            *SETTINGS,
            f"group.consumer.assignment.interval.ms={luck.choice((0, 1000))}",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
            "log.flush.offset.checkpoint.interval.ms=3000",
            "replica.high.watermark.checkpoint.interval.ms=1000",
            f"replica.lag.time.max.ms={luck.choice((1500, 4000))}",
            f"transaction.partition.verification.enable={luck.choice(('true', 'false'))}",
        ]
        if self.deaths is Deaths.POWER_LOST_SYNCED:
            settings.append("log.flush.interval.messages=1")
        else:
            settings.append(f"log.flush.interval.messages={luck.choice((2, 7, 1000))}")
        if luck.random() < 0.5:
            settings.append(f"log.roll.ms={luck.choice((300, 1000, 4000))}")
            settings.append(f"log.index.interval.bytes={luck.choice((0, 300))}")
        of_shares: list[str] = []  # the controller checks a group's settings against its own
        if shares:
            of_shares = [
                *share_settings(self.world.luck("share settings"), partitions=3),
                f"share.coordinator.state.topic.replication.factor={self.replication_factor}",
                f"share.coordinator.state.topic.min.isr={MIN_IN_SYNC}",
            ]
        of_log_dirs = self.world.luck("log dirs")
        log_dirs = of_log_dirs.choice((1, 2))
        if of_log_dirs.random() < 0.7:  # slow moves, so that much happens in between
            settings.append(f"replica.alter.log.dirs.io.max.bytes.per.second={SLOW_BYTES_PER_S}")
        self.nodes = Nodes(self.world, settings, luck, log_dirs=log_dirs, of_all=of_shares, secured=secured)
        if shares:
            self.shares = on_several_nodes(self)
        self.faults = Faults(self.nodes, self.world.luck("faults"), self.deaths, self.work.counts, self._die)

    def client(self, name: str) -> ClusterClient:
        return ClusterClient(self.nodes, name, self.world.luck(name))

    def _group(self, name: str, ids: dict[str, bytes]) -> GroupWork:
        return GroupWork(self.work, name, PLACES, ids, may_have_two=True)

    def _readers(self) -> list[Reader]:
        uncommitted = [
            Reader(self.client(f"uncommitted-{i}"), self.work, place, committed=False)
            for i, place in enumerate(PLACES)
        ]
        return [*super()._readers(), *uncommitted]

    def _working(self) -> list[Coroutine[Any, Any, None]]:
        topics = TopicWork(self.client("topics"), self.work, self.replication_factor)
        moves = MoveWork(self.client("moves"), self.work, self.nodes.broker_ids)
        return [
            *super()._working(),
            topics.run(self.luck.randint(0, 10)),
            moves.run(self.luck.randint(0, 8)),
            LogDirWork(self.client("log dirs"), self.work, self.nodes).run(),
        ]

    async def run(self) -> Result:
        self.world.history.note("simulation", f"seed {self.world.seed}, {self.deaths.value}")
        with (
            patch.object(housekeeping, "METADATA_CLEANING_MS", METADATA_CLEANING_MS),
            patch.object(controller_upkeep, "METADATA_CLEANING_MS", METADATA_CLEANING_MS),
        ):
            await self.run_through(self._course())
        return self.result(self.deaths)

    async def _course(self) -> None:
        await self._start_all()
        await self.prepare({})
        await self.work_amid(self.faults.run())
        self.calm_down()
        self.world.history.note("simulation", "all is mended")
        for machine in self.nodes.all.values():
            assert machine.serves, f"{machine.name} doesn't serve"
        await cluster_checks.until_full(self)
        # everything left open runs into its timeout
        await asyncio.sleep(TRANSACTION_TIMEOUT_MS / 1000 + 5)
        if self.shares is not None:
            await self.shares.settle()
        await settle(self)
        if self.shares is not None:
            await self.shares.check_described()
        await self.end_groups()
        if self.shares is not None:
            await self.shares.check()
        await cluster_checks.until_equal(self)
        cluster_checks.check_replicas(self)
        committed = await checks.check_what_is_read(self)
        await self._check_rebuilt(committed)
        for machine in self.nodes.all.values():
            machine.die(power_lost=False)
            self.work.anomalies += [f"{machine.name} failed: {error!r}" for error in machine.failures]

    async def _check_rebuilt(self, committed: dict[Place, dict[int, bytes]]) -> None:
        """Check that brokers with nothing but their logs know and say the same."""
        for machine in self.nodes.brokers.values():
            machine.die(power_lost=False)
            checks.forget_what_is_rebuilt(machine)
        await self._start_all()
        await cluster_checks.until_full(self)
        await cluster_checks.until_equal(self)
        cluster_checks.check_replicas(self)
        if await checks.check_what_is_read(self) != committed:
            self.work.complain("what is read is another once indexes are rebuilt")

    async def _end_faults(self, failing: asyncio.Task[None]) -> None:
        self.faults.end()
        _, late = await asyncio.wait([failing], timeout=LONGEST_S)
        assert not late, "a node doesn't come back"

    def _die(self, machine: Machine, power_lost: bool) -> None:
        before = checks.written(machine)
        machine.die(power_lost=power_lost)
        self.work.anomalies += checks.what_is_lost(machine, before, power_lost=power_lost)

    async def start_again(self) -> None:
        for machine in self.nodes.all.values():
            machine.die(power_lost=False)
        await self._start_all()
        await cluster_checks.until_full(self)

    async def _start_all(self) -> None:
        machines = self.nodes.all.values()
        await asyncio.gather(*(machine.start() for machine in machines if not machine.is_up))

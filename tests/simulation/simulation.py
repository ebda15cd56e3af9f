"""One broker with clients at work, while its machine dies and comes back; and what must always be true."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from enum import Enum
from unittest.mock import patch

from broker.coordination import hosted_shards
from broker.coordination import hosted_shards as hosted_shard
from protocol.errors import Error, KafkaError
from tests.simulation import checks, long_requests, node_states
from tests.simulation.course import Course, Result
from tests.simulation.full_disk import is_full_now_and_then
from tests.simulation.machine import Machine
from tests.simulation.members import SETTINGS
from tests.simulation.producers import TRANSACTION_TIMEOUT_MS
from tests.simulation.settling import settle
from tests.simulation.shares.one_node import on_one_node
from tests.simulation.shares.share_work import share_settings
from tests.simulation.virtual_links import LONGEST_DELAY_S
from tests.simulation.virtual_loop import VirtualLoop, run
from tests.simulation.wire_client import WireClient
from tests.simulation.work import PLACES, Work

PORT = 9092


class Deaths(Enum):
    """How a machine dies, and so what to expect of it."""

    KILLED = "killed"
    """Nothing that was written is lost."""
    POWER_LOST_SYNCED = "power lost, each record synced"
    """With `flush.messages=1` nothing acknowledged is lost."""
    POWER_LOST = "power lost"
    """As with Kafka, unsynced data may be lost: logs keep their beginnings, and the broker comes back."""


def simulate(seed: int, *, shares: bool = False) -> Result:
    """Play a seed. `shares`: with share groups."""
    return run(lambda loop: Simulation(loop, seed, shares=shares).run())


class Simulation(Course):
    streams = 0.3

    def __init__(self, loop: VirtualLoop, seed: int, *, shares: bool = False) -> None:
        super().__init__(loop, seed, Work())
        self.deaths = self.luck.choice([*Deaths])
        self.work.may_lose = self.deaths is Deaths.POWER_LOST
        self._leader_epochs: node_states.LeaderEpochs = {}
        self._has_lost = False  # it has lost acknowledged data since its last start
        settings = [
            *SETTINGS,
            f"group.consumer.assignment.interval.ms={self.luck.choice((0, 1000))}",
            "offsets.topic.num.partitions=2",
            "transaction.state.log.num.partitions=2",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
            "log.flush.offset.checkpoint.interval.ms=3000",
            f"transaction.partition.verification.enable={self.luck.choice(('true', 'false'))}",
        ]
        if self.deaths is Deaths.POWER_LOST_SYNCED:
            settings.append("log.flush.interval.messages=1")
        else:
            settings.append(f"log.flush.interval.messages={self.luck.choice((2, 7, 1000))}")
        if self.luck.random() < 0.7:
            # small enough that reads use a closed segment's indexes after a power loss
            settings.append(f"log.roll.ms={self.luck.choice((300, 1000, 4000))}")
            settings.append(f"log.index.interval.bytes={self.luck.choice((0, 300))}")
        if self.luck.random() < 0.5:
            settings.append("log.flush.interval.ms=2000")
        settings += self._of_the_cleaner()
        if shares:
            settings += share_settings(self.world.luck("share settings"))
        self._topic_settings = self._of_topics()
        self.work.synced_topics |= {
            name for name, settings in self._topic_settings.items() if settings.get("flush.messages") == "1"
        }
        self._all_long = long_requests.are_long(self.world.luck("long requests"))
        self.work.is_refused_now_and_then = is_full_now_and_then(self.world.luck("full disk"))
        self.machine = Machine(
            self.world,
            "broker",
            PORT,
            settings,
            computes_beside=self._all_long,
            fills_up=self.work.is_refused_now_and_then,
        )
        if shares:
            self.shares = on_one_node(self, self.machine)

    def _of_the_cleaner(self) -> list[str]:
        """Return settings with which internal topics are compacted again and again, or as rarely as by default."""
        luck = self.world.luck("cleaner")
        if luck.random() < 0.3:
            return []
        return [
            f"log.cleaner.backoff.ms={luck.choice((0, 100, 700))}",
            f"log.cleaner.min.cleanable.ratio={luck.choice((0.0, 0.1, 0.5))}",
            f"log.cleaner.delete.retention.ms={luck.choice((0, 1000, 86400000))}",
            f"log.segment.delete.delay.ms={luck.choice((0, 1000, 60000))}",
        ]

    @contextlib.contextmanager
    def _loading(self) -> Iterator[None]:
        """Let coordinators load in one turn, or in so many that much happens in between."""
        luck = self.world.luck("loading")
        step, at_once = luck.choice([(hosted_shard.STEP_COST, hosted_shards.AT_ONCE), (1, 1), (10, 20)])
        with (
            patch.object(hosted_shard, "STEP_COST", step),
            patch.object(hosted_shards, "STEP_COST", step),
            patch.object(hosted_shards, "AT_ONCE", at_once),
        ):
            yield

    def _of_topics(self) -> dict[str, dict[str, str]]:
        """If not each record is synced by default, some topics sync each one, or now and then."""
        if self.deaths is Deaths.POWER_LOST_SYNCED:
            return {}
        luck = self.world.luck("topics")
        choices = ({}, {"flush.messages": "1"}, {"flush.messages": "4"}, {"flush.ms": "300"})
        return {topic: luck.choice(choices) for topic in dict.fromkeys(topic for topic, _ in PLACES)}

    def client(self, name: str) -> WireClient:
        return WireClient(self.world.network, name, PORT, self.world.luck(name))

    async def run(self) -> Result:
        self.world.history.note("simulation", f"seed {self.world.seed}, {self.deaths.value}")
        if self._all_long:
            self.world.history.note("simulation", "whatever is asked is long")
        if self.work.is_refused_now_and_then:
            self.world.history.note("simulation", "the disk is full now and then")
        with self._loading(), long_requests.all_long() if self._all_long else contextlib.nullcontext():
            await self.run_through(self._course())
        return self.result(self.deaths)

    async def _course(self) -> None:
        await self.machine.start()
        await self.prepare(self._topic_settings)
        if self.luck.random() < 0.3:
            await self.machine.stop()
            await self._start()
        await self.work_amid(self._crash_now_and_then())
        self.calm_down()
        self.machine.files.die_at = self.machine.files.die_at_sync = -1
        if not self.machine.serves:
            self._die()
            await self._come_back()
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
        await checks.check(self)
        self.work.count(
            "writes that a full disk refused", sum(disk.refused for disk in self.machine.full_disks)
        )
        failures = [error for error in self.machine.failures if not self._is_of_the_disk(error)]
        self.work.anomalies += [f"the broker failed: {error!r}" for error in failures]

    def _is_of_the_disk(self, error: BaseException) -> bool:
        """Return True for a stop that isn't clean because of a full disk."""
        is_storage = isinstance(error, KafkaError) and error.error is Error.KAFKA_STORAGE_ERROR
        return self.work.is_refused_now_and_then and is_storage

    # --- deaths ---------------------------------------------------------------------------------------------

    async def _crash_now_and_then(self) -> None:
        for _ in range(self.luck.randint(1, 4)):
            await asyncio.sleep(self.luck.uniform(0.5, 8))
            if self.luck.random() < 0.15:
                await self.machine.stop()
            else:
                await self._die_somewhere()
            await self._come_back()

    async def _die_somewhere(self) -> None:
        """Die between two turns of the loop, or during one, before an operation on a file."""
        machine = self.machine
        if self.luck.random() < 0.6:
            if self.luck.random() < 0.5:
                machine.files.die_at = machine.files.operations + self.luck.randint(1, 60)
            else:
                machine.files.die_at_sync = self.luck.randint(1, 6)
            deadline_s = self.loop.time() + 3
            while machine.is_up and self.loop.time() < deadline_s:
                await asyncio.sleep(0.01)
        self._die()

    def _die(self) -> None:
        self.work.count("deaths")
        power_lost = self.deaths is not Deaths.KILLED and self.luck.random() < 0.8
        before = checks.written(self.machine)
        self.machine.die(power_lost=power_lost)
        self._has_lost |= power_lost and self.work.may_lose
        self.work.anomalies += checks.what_is_lost(self.machine, before, power_lost=power_lost)

    async def _start(self, die_at: int = -1) -> bool:
        """Like `Machine.start`. Each run leads in later epochs than the ones before."""
        if self._has_lost:
            # what readers got may differ now, once no earlier answer is in flight any more
            await asyncio.sleep(LONGEST_DELAY_S)
            self._has_lost = False
            self.work.seen.clear()
            self.work.seen_uncommitted.clear()
        serves = await self.machine.start(die_at=die_at)
        if serves:
            epochs, complaints = node_states.leader_epochs(self.machine)
            for folder, epoch in epochs.items():
                if epoch <= self._leader_epochs.get(folder, -1):
                    complaints.append(f"{folder} is led in {epoch}, and was in {self._leader_epochs[folder]}")
            self.work.anomalies += complaints
            self._leader_epochs |= epochs
        return serves

    async def start_again(self) -> None:
        """Die and start without losing anything."""
        self.machine.die(power_lost=False)
        await self._start()

    async def _come_back(self) -> None:
        while True:
            await asyncio.sleep(self.luck.uniform(0.05, 2))
            die_at = self.luck.randint(1, 250) if self.luck.random() < 0.3 else -1
            if self.world.network.is_calm:
                die_at = -1
            if await self._start(die_at):
                if die_at < 0:
                    return
                await asyncio.sleep(self.luck.uniform(0, 2))
                if self.machine.is_up and self.luck.random() < 0.5:
                    self.machine.files.die_at = -1
                    return
            self._die()

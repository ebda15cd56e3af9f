"""Histories on a virtual clock, disk and network, of one node, and of three brokers and their controller."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from tests.simulation.cluster.nodes import BROKERS, FIRST_BROKER_ID
from tests.simulation.cluster.nodes import Nodes as Machines
from tests.simulation.machine import Machine, World
from tests.simulation.restarts.history import History, How, Restartable
from tests.simulation.restarts.nodes import Unanswered
from tests.simulation.virtual_loop import VirtualLoop, run
from tests.simulation.wire_client import NoAnswer, WireClient

PORT = 9092
NODE_ID = 1
LONG_MS = 1_800_000
WISHES = (3, 25)
"""How many requests come before each restart: from and to."""

SETTINGS = (
    "auto.create.topics.enable=false",
    "log.cleaner.enable=false",
    "group.initial.rebalance.delay.ms=0",
    *(
        f"group.{kind}.{which}session.timeout.ms={LONG_MS}"
        for kind in ("consumer", "share", "streams")
        for which in ("max.", "")
    ),
)
"""Nothing visible changes by itself as time goes on."""


def of_one_node(luck: random.Random) -> list[str]:
    return [
        *SETTINGS,
        "offsets.topic.num.partitions=2",
        "transaction.state.log.num.partitions=2",
        "share.coordinator.state.topic.num.partitions=2",
        f"share.coordinator.snapshot.update.records.per.snapshot={luck.choice((0, 3, 500))}",
        f"metadata.log.max.record.bytes.between.snapshots={luck.choice((500, 3000, 20971520))}",
        f"log.flush.interval.messages={luck.choice((1, 7, 1000))}",
    ]


def of_three(luck: random.Random) -> list[str]:
    return [
        # Otherwise the one replica that is left of several may be no eligible leader, as in Kafka: the replicas of a
        # topic's first partition bound min.insync.replicas, not the partition's own.
        "min.insync.replicas=1",
        "share.coordinator.state.topic.num.partitions=3",
        f"share.coordinator.state.topic.replication.factor={len(BROKERS)}",
        f"share.coordinator.snapshot.update.records.per.snapshot={luck.choice((0, 3, 500))}",
    ]


class Simulated(Restartable):
    """`machines` are the brokers' machines, by broker id."""

    def __init__(self, world: World, luck: random.Random, machines: dict[int, Machine]) -> None:
        super().__init__([*machines], luck, {each: machine.folders for each, machine in machines.items()})
        self.machines = machines
        self._world = world
        self._clients = {
            each: WireClient(world.network, f"client of {machine.name}", machine.port, luck)
            for each, machine in machines.items()
        }

    async def ask(self, request: Any, version: int, node_id: int | None = None) -> Any:
        try:
            return await self._clients[self.anyone if node_id is None else node_id].ask(request, version)
        except NoAnswer as error:
            raise Unanswered from error

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def now_ms(self) -> int:
        return self._world.clock.now_ms()

    async def restart(self, how: How, asked: Callable[[], Awaitable[object]] | None = None) -> None:
        if asked is not None:
            await self._ask_to_death(asked)
        await self.end_and_start(how)
        for client in self._clients.values():
            client.close()

    async def end_and_start(self, how: How) -> None:
        raise NotImplementedError

    async def _ask_to_death(self, asked: Callable[[], Awaitable[object]]) -> None:
        """Ask, and let any machine die before an operation on a file."""
        machine = self.luck.choice([*self.machines.values()])
        machine.files.die_at = machine.files.operations + self.luck.randint(1, 25)
        asking = asyncio.ensure_future(asked())
        while machine.is_up and not asking.done():
            await asyncio.sleep(0.001)
        machine.files.die_at = -1
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


class OneNode(Simulated):
    def __init__(self, world: World, luck: random.Random, settings: Sequence[str] = ()) -> None:
        self.machine = Machine(world, "broker", PORT, [*of_one_node(luck), *settings], log_dirs=2)
        super().__init__(world, luck, {NODE_ID: self.machine})

    async def end_and_start(self, how: How) -> None:
        machine = self.machine
        if how is How.STOPPED:
            await machine.stop()
        else:
            machine.die(power_lost=False)
        while not await machine.start(die_at=self.luck.randint(1, 200) if self.luck.random() < 0.1 else -1):
            machine.die(power_lost=False)
        machine.files.die_at = -1


class Three(Simulated):
    def __init__(self, world: World, luck: random.Random) -> None:
        log_dirs, of_all = luck.choice((1, 2)), of_three(luck)
        self.of_cluster = Machines(world, [], luck, log_dirs=log_dirs, of_all=[*SETTINGS, *of_all])
        super().__init__(world, luck, dict(enumerate(self.of_cluster.brokers.values(), FIRST_BROKER_ID)))

    async def start(self) -> None:
        """Start all machines that aren't up, at the same time."""
        machines = [each for each in self.of_cluster.all.values() if not each.is_up]
        await asyncio.gather(*(machine.start() for machine in machines))

    async def end_and_start(self, how: How) -> None:
        """End all machines, or one. Dead ones start, too."""
        machines = [*self.of_cluster.all.values()]
        if self.luck.random() < 0.5:
            machines = [self.luck.choice(machines)]
        for machine in reversed(machines):  # the controller ends last: brokers need it to leave
            if machine.is_up and how is How.STOPPED:
                await machine.stop()
            elif machine.is_up:
                machine.die(power_lost=False)
        for machine in self.of_cluster.all.values():
            if not machine.is_up and how is not How.STOPPED:
                machine.die(power_lost=False)
        await self.start()


async def _play(
    loop: VirtualLoop,
    seed: int,
    go: Callable[[History], Awaitable[None]],
    *,
    is_cluster: bool,
    settings: Sequence[str] = (),
) -> History:
    world = World(loop, seed)
    world.network.is_calm = True
    luck = world.luck("restarts")
    nodes: OneNode | Three
    if is_cluster:
        nodes = Three(world, luck)
        await nodes.start()
    else:
        nodes = OneNode(world, luck, settings)
        assert await nodes.machine.start()
    history = History(nodes, luck)
    try:
        await go(history)
    finally:
        machines = nodes.of_cluster.all.values() if isinstance(nodes, Three) else [nodes.machine]
        for machine in machines:
            machine.die(power_lost=False)
            history.anomalies += [f"{machine.name} failed: {error!r}" for error in machine.failures]
    return history


def play(seed: int, *, restarts: int = 4) -> History:
    go = partial(History.run, restarts=restarts, wishes=WISHES)
    return run(partial(_play, seed=seed, go=go, is_cluster=False))


def play_this(go: Callable[[History], Awaitable[None]], *settings: str, seed: int = 0) -> History:
    """Play this on one node, with these settings."""
    return run(partial(_play, seed=seed, go=go, is_cluster=False, settings=settings))


def play_cluster(seed: int, *, restarts: int = 4) -> History:
    go = partial(History.run, restarts=restarts, wishes=WISHES)
    return run(partial(_play, seed=seed, go=go, is_cluster=True))

"""Faults of nodes and links, one after the other and at the same time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from tests.simulation.cluster.nodes import BROKERS, CONTROLLER, Nodes
from tests.simulation.failing_disk import FailingDisk
from tests.simulation.machine import Machine
from tests.simulation.virtual_links import Link
from tests.simulation.virtual_transports import CLIENTS

if TYPE_CHECKING:
    from collections import Counter

HEALED_WITHIN_S = 60.0


class Deaths(Enum):
    """How a broker's machine dies, and so how many may die at a time."""

    KILLED = "killed"
    """Nothing that was written is lost, so any number may die."""
    POWER_LOST_SYNCED = "power lost, each record synced"
    """With `flush.messages=1` nothing that a replica has reported is lost, so any number may die."""
    POWER_LOST = "power lost, one after the other"
    """Unsynced data may be lost with one machine while the others have it. All replicas are in sync before the next one
    dies. (Kafka can't tell a killed broker from one that lost its power, so none is killed meanwhile either.)"""


class Faults:
    def __init__(
        self,
        nodes: Nodes,
        luck: random.Random,
        deaths: Deaths,
        counts: Counter[str],
        die: Callable[[Machine, bool], None],
    ) -> None:
        """`die(machine, True if its power is lost)`."""
        self._nodes = nodes
        self._luck = luck
        self._deaths = deaths
        self._counts = counts
        self._die = die
        self._is_over = False
        self._dying = {name: asyncio.Lock() for name in nodes.all}
        self._alone = asyncio.Lock()
        self._kinds: list[Callable[[], Coroutine[Any, Any, None]]] = [
            self._end_one,
            self._end_one,
            self._fail_a_disk,
            self._pause,
            self._cut_off,
            self._cut_off,
            self._slow_down,
            self._break_off,
        ]

    async def run(self) -> None:
        """Run until the end."""
        await asyncio.gather(*(self._one_after_the_other() for _ in range(self._luck.randint(1, 3))))

    def end(self) -> None:
        """Let present faults be the last. `run` returns once they are mended."""
        self._is_over = True

    async def _one_after_the_other(self) -> None:
        while not self._is_over:
            await asyncio.sleep(self._luck.uniform(0.3, 6))
            if not self._is_over:
                await self._luck.choice(self._kinds)()

    def _any(self) -> Machine:
        return self._nodes.all[self._luck.choice((CONTROLLER, *BROKERS))]

    # --- nodes ----------------------------------------------------------------------------------------------

    async def _end_one(self) -> None:
        await self._befall(self._any(), self._end_and_begin)

    async def _fail_a_disk(self) -> None:
        await self._befall(self._any(), self._fail_and_begin)

    async def _befall(self, machine: Machine, what: Callable[[Machine], Coroutine[Any, Any, None]]) -> None:
        """Run something that ends the machine's run. Nothing else ends it meanwhile, nor another machine's run if that
        would be too much."""
        async with self._dying[machine.name]:
            if machine is self._nodes.controller or self._deaths is not Deaths.POWER_LOST:
                await what(machine)
                return
            async with self._alone:
                if await self._until_full():
                    await what(machine)

    async def _until_full(self) -> bool:
        """Return True if all replicas are in sync, or get in sync in time."""
        deadline_s = self._nodes.world.loop.time() + HEALED_WITHIN_S
        while not self._nodes.is_full():
            if self._is_over or self._nodes.world.loop.time() > deadline_s:
                return False
            await asyncio.sleep(0.05)
        return True

    async def _end_and_begin(self, machine: Machine) -> None:
        luck = self._luck
        if luck.random() < 0.25 and machine.serves:
            await self._stop(machine)
        else:
            await self._die_somewhere(machine)
        await self._begin(machine)

    async def _fail_and_begin(self, machine: Machine) -> None:
        """Let its disk fail: it stops by itself, or goes on with what is left until somebody looks after it."""
        if not machine.serves:
            return
        luck, loop = self._luck, self._nodes.world.loop
        self._counts["disks that failed"] += 1
        folders = luck.choice((machine.folders, [luck.choice(machine.folders)]))
        machine.fail_disk(folders, FailingDisk(luck, folders))
        until_s = loop.time() + luck.choice((luck.uniform(0.05, 1), luck.uniform(1, 9)))
        while not machine.has_failed and loop.time() < until_s:
            await asyncio.sleep(0.05)
        self._counts["nodes that stopped for their disk"] += machine.has_failed
        if luck.random() < 0.5:  # what was refused once may succeed at the stop
            machine.files.set_fault_hook(None)
        await self._stop(machine)
        await self._begin(machine)

    async def _begin(self, machine: Machine) -> None:
        luck = self._luck
        while True:
            await asyncio.sleep(luck.choice((luck.uniform(0.05, 1), luck.uniform(1, 8))))
            die_at = luck.randint(1, 250) if luck.random() < 0.25 and self._may_die_again() else -1
            if await self._nodes.start(machine, die_at=die_at):
                machine.files.die_at = -1
                return
            self._kill(machine)

    def _may_die_again(self) -> bool:
        return not self._is_over and self._deaths is not Deaths.POWER_LOST

    async def _stop(self, machine: Machine) -> None:
        """Stop it cleanly, perhaps impatiently."""
        self._counts["nodes stopped"] += 1
        stopping = asyncio.ensure_future(machine.stop())
        await asyncio.wait([stopping], timeout=self._luck.choice((1.0, 20.0)))
        if not stopping.done():
            self._kill(machine)
            stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)

    async def _die_somewhere(self, machine: Machine) -> None:
        """Kill it between two turns of the loop, or during one, before an operation on a file."""
        loop = self._nodes.world.loop
        if self._luck.random() < 0.6 and machine.is_up:
            if self._luck.random() < 0.5:
                machine.files.die_at = machine.files.operations + self._luck.randint(1, 60)
            else:
                machine.files.die_at_sync = self._luck.randint(1, 6)
            deadline_s = loop.time() + 3
            while machine.is_up and loop.time() < deadline_s:
                await asyncio.sleep(0.01)
        self._kill(machine)

    def _kill(self, machine: Machine) -> None:
        power_lost = self._luck.random() < 0.8
        if machine is not self._nodes.controller and self._deaths is Deaths.KILLED:
            power_lost = False
        self._counts["nodes without power" if power_lost else "nodes killed"] += 1
        self._die(machine, power_lost)

    async def _pause(self) -> None:
        machine = self._any()
        self._counts["pauses"] += 1
        scheduler = machine.scheduler
        machine.note("is paused")
        scheduler.pause()
        await asyncio.sleep(self._luck.choice((self._luck.uniform(0.05, 1), self._luck.uniform(1, 9))))
        scheduler.resume()
        machine.note("goes on")

    # --- links ----------------------------------------------------------------------------------------------

    def _some_links(self) -> Sequence[Link]:
        """Return links from a node to some of the others, from these to it, or both."""
        luck = self._luck
        name = self._any().name
        others = [other for other in (CLIENTS, *self._nodes.all) if other != name]
        chosen = luck.choice((others, others[1:], others[:1], luck.sample(others, luck.randint(1, 2))))
        out = [Link(name, other) for other in chosen]
        into = [link.back for link in out]
        return luck.choice((out, into, out + into, out + into))

    async def _cut_off(self) -> None:
        links = self._some_links()
        self._counts["ways closed"] += 1
        self._note("closed", links)
        self._nodes.world.network.links.close(links)
        await asyncio.sleep(self._luck.choice((self._luck.uniform(0.1, 2), self._luck.uniform(2, 10))))
        self._nodes.world.network.links.open(links)
        self._note("open", links)

    async def _slow_down(self) -> None:
        links = self._some_links()
        self._counts["ways slow"] += 1
        self._note("slow", links)
        self._nodes.world.network.links.slow_down(links)
        await asyncio.sleep(self._luck.uniform(0.5, 8))
        self._nodes.world.network.links.speed_up(links)
        self._note("quick", links)

    async def _break_off(self) -> None:
        """Break some connections, again and again."""
        for _ in range(self._luck.randint(1, 8)):
            link = self._luck.choice(self._some_links())
            self._note("breaks", [link])
            self._counts["connections broken"] += self._nodes.world.network.break_between(*link)
            await asyncio.sleep(self._luck.uniform(0.01, 0.5))

    def _note(self, what: str, links: Sequence[Link]) -> None:
        ways = ", ".join(f"{link.source} to {link.target}" for link in links)
        self._nodes.world.history.note("network", f"{what}: {ways}")

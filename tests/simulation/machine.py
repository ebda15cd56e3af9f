"""A machine: a disk, and a broker that runs on it, dies and starts again."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tests.support.all_imported  # noqa: F401 (a node imports some of itself in turns: each run has the same ones)
from broker.config.broker_config import BrokerConfig
from broker.environment.environment import Environment
from broker.environment.scheduler import Chance
from broker.environment.threads import Computing, ComputingAtOnce
from broker.process.command_line import parse_command_line
from broker.quorum.controller_server import ControllerNode
from broker.server import Server
from broker.starting import start, start_controller
from protocol.errors import Error, KafkaError
from storage.files import FaultHook
from tests.simulation.full_disk import FullDisk
from tests.simulation.history import History
from tests.simulation.virtual_disk import VirtualDisk
from tests.simulation.virtual_files import MachineDied, VirtualFiles
from tests.simulation.virtual_loop import VirtualLoop
from tests.simulation.virtual_names import VirtualNames
from tests.simulation.virtual_network import NodeNetwork, VirtualNetwork
from tests.simulation.virtual_scheduler import (
    MEAN_WORK_S,
    NodeScheduler,
    VirtualClock,
    VirtualComputing,
    VirtualLanes,
)


class World:
    """What machines share."""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self.loop = loop
        self.seed = seed
        self.history = History(loop.time)
        self.network = VirtualNetwork(loop, self.luck("network"), self.history)
        self.clock = VirtualClock(loop)
        self.names = VirtualNames()

    def luck(self, of_what: str) -> random.Random:
        """Return a source of randomness for one purpose, so that its draws change nothing for others."""
        return random.Random(f"{self.seed} {of_what}")


class Machine:
    """`node` and its parts are those of the present run, or the last one."""

    node: Server | ControllerNode | None
    """None before it has started, and after it died."""
    files: VirtualFiles
    scheduler: NodeScheduler

    def __init__(
        self,
        world: World,
        name: str,
        port: int,
        settings: Sequence[str] = (),
        *,
        variables: Mapping[str, str] = MappingProxyType({}),
        mean_work_s: float = MEAN_WORK_S,
        computes_beside: bool = False,
        fills_up: bool = False,
        log_dirs: int = 1,
    ) -> None:
        """`variables`: the environment's. `mean_work_s`: the average time of its disk, which syncs in the background.
        `computes_beside`: long computing takes its time; otherwise it is done at once. `fills_up`: the disk is full now
        and then, while clients are served. `log_dirs`: how many, all on the one disk."""
        self.world = world
        self.name = name
        self.port = port
        self.runs = 0
        self.is_up = False
        self.serves = False
        self.failures: list[BaseException] = []
        self.folder = f"/disks/{name}"
        self.folders = [self.folder, *(f"{self.folder}-{number}" for number in range(2, log_dirs + 1))]
        """Its log directories."""
        self.disk = VirtualDisk()
        self._luck = world.luck(f"{name}'s disk")
        self._settings = settings
        self._variables = variables
        self._mean_work_s = mean_work_s
        self._died: asyncio.Future[None] | None = None
        self._computes_beside = computes_beside
        self._fills_up = fills_up
        self.full_disks: list[FullDisk] = []
        """One for each run."""
        self._failing: Sequence[str] = ()
        self._network: NodeNetwork
        for folder in self.folders:
            VirtualFiles(self.disk, world.history, world.clock.now_ms).make_directories(folder)
        self.disk.keep_all()

    @property
    def server(self) -> Server | None:
        """The broker, if it is one."""
        return self.node if isinstance(self.node, Server) else None

    def _mean_work(self) -> float:
        return MEAN_WORK_S if self.world.network.is_calm else self._mean_work_s

    def note(self, what: str) -> None:
        self.world.history.note(self.name, what)

    async def start(self, *, die_at: int = -1) -> bool:
        """Start, and return True if it got as far as serving clients. It dies before file operation number `die_at`.
        Raises what keeps it from starting."""
        self.runs += 1
        world = self.world
        self.note(f"starts, run {self.runs}")
        run = f"{self.name} {self.runs}"
        self.scheduler = NodeScheduler(world.loop)
        self.files = VirtualFiles(self.disk, world.history, world.clock.now_ms)
        self._network = world.network.of_node(self.scheduler, self.name)
        computing: Computing = ComputingAtOnce()
        if self._computes_beside:
            computing = VirtualComputing(
                self.scheduler, world.luck(f"{run} computing"), lambda: world.network.is_calm
            )
        environment = Environment(
            clock=world.clock,
            scheduler=self.scheduler,
            chance=Chance(world.luck(run).randbytes),
            files=self.files,
            background=VirtualLanes(self.scheduler, world.luck(f"{run} background"), self._mean_work),
            network=self._network,
            names=world.names,
            computing=computing,
        )
        arguments = ["--data", self.folder]
        if not any(each.startswith("listeners=") and "," in each for each in self._settings):
            arguments += ["--port", str(self.port)]  # several listeners can't have one port
        if len(self.folders) > 1:
            arguments += ["-o", "log.dirs=" + ",".join(self.folders)]
        for setting in self._settings:
            arguments += ["-o", setting]
        self.node = None
        self.is_up = True
        self._failing = ()
        died = self._died = world.loop.create_future()
        self.files.on_death = self._off
        self.files.die_at = die_at
        config = parse_command_line(arguments, self._variables).config
        starting = world.loop.create_task(_start(config, environment))
        await asyncio.wait((starting, died), return_when=asyncio.FIRST_COMPLETED)
        if died.done():
            # the start may wait for something that is never done any more
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return False
        self.node = await starting
        if self._fills_up:
            luck = world.luck(f"{run} full disk")
            self.full_disks.append(FullDisk(luck, world.loop.time, lambda: world.network.is_calm))
            self.files.set_fault_hook(self.full_disks[-1])
        self.note("serves")
        self.serves = self.is_up
        return self.serves

    async def until_loaded(self) -> None:
        """Wait until all coordinators have loaded."""
        assert self.server is not None
        while any(partition.is_being_loaded for partition in self.server.partitions.all()):
            await asyncio.sleep(0)

    async def until_synced(self) -> None:
        """Wait until all pending syncs are done and their waiters know, so that high watermarks have moved."""
        assert self.server is not None
        while any(partition.log.flush_wanted for partition in self.server.partitions.all()):
            await asyncio.sleep(0.001)

    def _off(self, *, power_lost: bool = False) -> None:
        if self._died is not None and not self._died.done():
            self._died.set_result(None)
        self.is_up = self.serves = False
        self.scheduler.dead = True
        self.files.dead = True
        self._network.die(power_lost=power_lost)

    def pause(self) -> None:
        """Give it no turn until it is resumed."""
        self.note("is paused")
        self.scheduler.pause()

    def resume(self) -> None:
        self.note("goes on")
        self.scheduler.resume()

    def fail_disk(self, folders: Sequence[str], hook: FaultHook) -> None:
        """Let its files ask the hook from now on, until the next start. The hook may refuse these of its log
        directories. The broker may stop for the first one, which also has the metadata, and goes on without others."""
        self.note(f"has a disk that fails: {', '.join(folders)}")
        self._failing = folders
        self.files.set_fault_hook(hook)

    @property
    def has_failed(self) -> bool:
        """True if it has to be stopped."""
        return self.node is not None and self.node.failure is not None

    def _note_failures(self, *, at_stop: bool = False) -> None:
        self.failures += self.scheduler.failures
        failure = None if self.node is None else self.node.failure
        if failure is not None and not self._is_for_its_disk(failure, at_stop=at_stop):
            self.failures.append(failure)

    def _is_for_its_disk(self, failure: BaseException, *, at_stop: bool) -> bool:
        """Return True if it may have stopped for this, or be unclean because of it."""
        if not any(f"{folder}/" in f"{failure}/" or f"{folder} " in f"{failure}" for folder in self._failing):
            return False
        if isinstance(failure, KafkaError):
            return at_stop and failure.error is Error.KAFKA_STORAGE_ERROR
        return isinstance(failure, OSError) and (at_stop or self.folder in self._failing)

    def die(self, *, power_lost: bool) -> None:
        """Die like a killed process, or like a machine without power. If it died at a file operation, do the rest."""
        self.note("loses its power" if power_lost else "is killed")
        self._note_failures()
        if self.is_up:
            self._off(power_lost=power_lost)
        self._let_passes_go()
        if power_lost:
            self.disk.lose_power(self._luck)
        else:
            self.disk.locked.clear()

    def _let_passes_go(self) -> None:
        """Let go of the cleaner's passes. A pass is a generator that tidies up when it is closed, but not on a machine
        that is off."""
        if self.server is not None:
            for cleaning in self.server.cleaner._under_way.values():
                steps: Any = getattr(cleaning._pass, "_steps", None)
                if steps is not None:
                    with contextlib.suppress(MachineDied):
                        steps.close()

    async def stop(self) -> None:
        self.note("stops")
        assert self.node is not None
        self.serves = False
        had_failed = self.has_failed
        await self.node.stop()
        self._note_failures(at_stop=not had_failed)
        if self._failing:
            self.disk.locked.clear()  # the process has ended, whatever the disk let it do
        self.is_up = False
        self.scheduler.dead = True
        self._network.end()
        self.note("has stopped")


async def _start(config: BrokerConfig, environment: Environment) -> Server | ControllerNode | None:
    """Return the node, or None if the machine died meanwhile."""
    try:
        if config.is_only_controller:
            return await start_controller(config, environment)
        return await start(config, environment)
    except MachineDied:
        return None

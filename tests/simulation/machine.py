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
        """Its own for each, so that what one draws changes nothing for the others."""
        return random.Random(f"{self.seed} {of_what}")


class Machine:
    """`node` and what it has are those of the present run, or the last."""

    node: Server | ControllerNode | None
    """None until it has started, and where it died meanwhile."""
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
        """`variables` of the environment. `mean_work_s`: how long its disk takes, which syncs in the background.
        `computes_beside`: what is long to compute takes its time, else it is done at once. `fills_up`: the disk is full
        now and then, while clients are served. `log_dirs`: how many, all on the one disk."""
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
        """Of a broker."""
        return self.node if isinstance(self.node, Server) else None

    def _mean_work(self) -> float:
        return MEAN_WORK_S if self.world.network.is_calm else self._mean_work_s

    def note(self, what: str) -> None:
        self.world.history.note(self.name, what)

    async def start(self, *, die_at: int = -1) -> bool:
        """Whether it got as far as to serve clients; it dies before the operation on files that `die_at` says. Raises
        what keeps it from starting."""
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
            arguments += ["--port", str(self.port)]  # which can't be for several
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
            # what the start waits for may be among what isn't done any more
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
        """All coordinators have read what there is to read."""
        assert self.server is not None
        while any(partition.is_being_loaded for partition in self.server.partitions.all()):
            await asyncio.sleep(0)

    async def until_synced(self) -> None:
        """What is begun to be synced is, and who waits for it knows: high watermarks are where they were to go."""
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
        """It has no turn until it is told to go on."""
        self.note("is paused")
        self.scheduler.pause()

    def resume(self) -> None:
        self.note("goes on")
        self.scheduler.resume()

    def fail_disk(self, folders: Sequence[str], hook: FaultHook) -> None:
        """Its files ask the hook from now on, until it is started again. These of its log directories it may refuse: it
        may stop for the first one, which has the metadata too, and goes on without others."""
        self.note(f"has a disk that fails: {', '.join(folders)}")
        self._failing = folders
        self.files.set_fault_hook(hook)

    @property
    def has_failed(self) -> bool:
        """Whether it has to be stopped."""
        return self.node is not None and self.node.failure is not None

    def _note_failures(self, *, at_stop: bool = False) -> None:
        self.failures += self.scheduler.failures
        failure = None if self.node is None else self.node.failure
        if failure is not None and not self._is_for_its_disk(failure, at_stop=at_stop):
            self.failures.append(failure)

    def _is_for_its_disk(self, failure: BaseException, *, at_stop: bool) -> bool:
        """Whether it may have stopped for this, or not be clean."""
        if not any(f"{folder}/" in f"{failure}/" or f"{folder} " in f"{failure}" for folder in self._failing):
            return False
        if isinstance(failure, KafkaError):
            return at_stop and failure.error is Error.KAFKA_STORAGE_ERROR
        return isinstance(failure, OSError) and (at_stop or self.folder in self._failing)

    def die(self, *, power_lost: bool) -> None:
        """At once, or what remains to be done where a file's operation was the last: a killed process, or a machine
        without power."""
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
        """A pass of the cleaner is a generator, which tidies up when it is let go of: not on a machine that is off."""
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
    """None where the machine died meanwhile."""
    try:
        if config.is_only_controller:
            return await start_controller(config, environment)
        return await start(config, environment)
    except MachineDied:
        return None

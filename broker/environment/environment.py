"""The environment as one object, and the real one."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

from broker.environment.network import Names, Network, SocketNetwork, SystemNames
from broker.environment.scheduler import Chance, Clock, LoopScheduler, OnLoop, Scheduler, SystemClock
from broker.environment.threads import (
    BackgroundThreads,
    Computing,
    ComputingAtOnce,
    ComputingThreads,
    Lanes,
    only_in_this_thread,
)
from broker.environment.workers import WorkerProcesses, Workers
from storage.disk_files import DiskFiles
from storage.files import Files


@dataclass(frozen=True, slots=True)
class Environment:
    """All that a node is given of the world."""

    clock: Clock
    scheduler: Scheduler
    chance: Chance
    files: Files
    background: Lanes
    network: Network
    names: Names
    workers: Workers | None = None
    """Processes beside the broker; None where all is done in this one."""
    computing: Computing = field(default_factory=ComputingAtOnce)

    @classmethod
    def of_this_machine(cls, clock: Clock | None = None, files: Files | None = None) -> Environment:
        """The machine's own, on the loop that runs; a test may put in a clock that it moves, and files that
        it makes fail, and which no other process has."""
        scheduler = LoopScheduler()
        return cls(
            clock=clock or SystemClock(),
            scheduler=scheduler,
            chance=Chance(os.urandom),
            files=files or DiskFiles(only_in_this_thread()),
            background=BackgroundThreads(scheduler),
            network=SocketNetwork(),
            names=SystemNames(),
            workers=WorkerProcesses() if files is None else None,
            computing=ComputingThreads(scheduler),
        )

    def with_threads_of(self, scheduler: OnLoop) -> Environment:
        """For a node whose delays go by this scheduler, or for the next node in this process: a node that ends stops
        its threads for good."""
        return replace(self, background=BackgroundThreads(scheduler), computing=ComputingThreads(scheduler))

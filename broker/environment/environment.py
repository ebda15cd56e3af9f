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
    """All that a node gets from the world around it."""

    clock: Clock
    scheduler: Scheduler
    chance: Chance
    files: Files
    background: Lanes
    network: Network
    names: Names
    workers: Workers | None = None
    """Processes beside the broker; None if this process does all the work."""
    computing: Computing = field(default_factory=ComputingAtOnce)

    @classmethod
    def of_this_machine(cls, clock: Clock | None = None, files: Files | None = None) -> Environment:
        """This machine's environment, on the running loop. A test may pass a clock that it moves, and files that it
        makes fail, which no other process can see."""
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
        """This environment with new threads, for a node with this scheduler, or for the next node in this process: a
        node that ends stops its threads for good."""
        return replace(self, background=BackgroundThreads(scheduler), computing=ComputingThreads(scheduler))

"""The environment as one object, and the real one; chance, in the forms in which Kafka has it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from broker.environment.network import Names, Network, SocketNetwork, SystemNames
from broker.environment.scheduler import Clock, LoopScheduler, Scheduler, SystemClock
from broker.environment.threads import (
    BackgroundThreads,
    Computing,
    ComputingAtOnce,
    ComputingThreads,
    Lanes,
    only_in_this_thread,
)
from broker.environment.workers import WorkerProcesses, Workers
from protocol.wire.primitives import uuid_to_text
from storage.disk_files import DiskFiles
from storage.files import Files


class Chance:
    """Draws from one source of random bytes: the machine's, or a test's that begins with a seed."""

    __slots__ = ("token_bytes",)

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        """`token_bytes(n)` draws n bytes."""
        self.token_bytes = token_bytes

    def token_hex(self, size: int) -> str:
        """Two hex digits for each of `size` bytes."""
        return self.token_bytes(size).hex()

    def folder_name(self) -> str:
        """32 hex digits: what a folder is told apart by that is moved, deleted or set aside."""
        return self.token_hex(16)

    def randrange(self, start: int, stop: int | None = None) -> int:
        """From `start` to below `stop`; from 0 to below `start` where only that is given. As `random.randrange`."""
        low, count = (0, start) if stop is None else (start, stop - start)
        if count <= 0:
            raise ValueError(f"nothing to draw from: {start}, {stop}")
        bits = (count - 1).bit_length()
        size = (bits + 7) // 8
        while True:
            # what lies above is drawn again rather than folded in: all are as likely
            drawn = int.from_bytes(self.token_bytes(size), "big") >> (size * 8 - bits)
            if drawn < count:
                return low + drawn

    def uuid(self) -> bytes:
        """16 bytes of version 4 whose text begins with no dash, since tools would take it for an option
        (Kafka: `Uuid.randomUuid`)."""
        while True:
            drawn = bytearray(self.token_bytes(16))
            drawn[6] = drawn[6] & 0x0F | 0x40
            drawn[8] = drawn[8] & 0x3F | 0x80
            found = bytes(drawn)
            if not uuid_to_text(found).startswith("-"):
                return found


# --- The environment as one object, and the real one ----------------------------------------------------------


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

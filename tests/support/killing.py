"""Kills a simulated process at any operation on its files, without ending the real one.

A killed process leaves behind what it had handed to the operating system: every finished operation, and nothing after
it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from storage.disk_files import _locked_paths
from tests.support.disk import files

WRITES = ("append", "write_whole")
"""Operations that may end half done."""


class Killed(BaseException):
    """Not an `Exception`: nothing in a killed process handles it."""


@dataclass
class Killer:
    """Counts operations, and kills the process at one of them. A torn write is killed in its middle."""

    at: int | None = None
    torn: bool = False
    operations: list[str] = field(default_factory=list)
    dead: bool = False
    name: str = ""

    def __call__(self, operation: str, path: str, size: int) -> int | None:
        if self.dead:
            raise Killed
        self.operations.append(operation)
        if len(self.operations) != self.at:
            return None
        self.dead = True
        self.name = f"{operation} {os.path.basename(path)}"
        if self.torn and operation in WRITES and size > 1:
            return size // 2
        raise Killed


def run(work: Callable[[], object], *, at: int | None = None, torn: bool = False) -> Killer:
    """Do the work in a simulated process that dies at operation number `at`, counted from 1."""
    killer = Killer(at, torn)
    files.set_fault_hook(killer)
    try:
        work()
    except Killed:
        pass
    except Exception:
        # The writer gets an error from a torn write, but doesn't live to see it.
        if not killer.dead:
            raise
    finally:
        files.set_fault_hook(None)
        let_go()
    return killer


def let_go() -> None:
    """Release descriptors and locks, as the kernel does for a process that is gone."""
    for file in list(files._open_files):
        files.close(file)
    for path in list(_locked_paths):
        os.close(_locked_paths.pop(path))

"""A broker that ends by SIGKILL at one of its operations on files: `python -m tests.crash.doomed_broker PLAN ARGS...`.

The plan is JSON: `record`, a file to which the name of every operation's point is appended; or `point`, `count` and
`torn`: die at the count-th operation of that point, in the middle of the write if torn. What happens by the clock
alone happens soon. For tests: nothing of this is in the broker.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from storage.disk_files import DiskFiles
from storage.files import FaultHook

SOON_MS = 100
AT_THE_STOP = " at the stop"

_phase = ""

Naming = Callable[[str, str], str]
"""The point's name, of an operation and its path."""


def point_of(operation: str, path: str) -> str:
    """What is done to which kind of file: `append topic/*.log`, `rename metadata/*.checkpoint.part at the stop`."""
    folder = os.path.basename(os.path.dirname(path))
    name = os.path.basename(path)
    room = "data"
    for candidate in (name, folder):
        if candidate.startswith("__cluster_metadata-"):
            room = "metadata"
        elif re.search(r"-\d+$|-delete$|-stray$", candidate):
            room = "topic"
        else:
            continue
        if candidate is name:
            name = "." + ("-delete" if name.endswith("-delete") else "")
        break
    else:
        if "checkpoint" not in name and not name.startswith((".", "meta")):
            name = "."
    name = re.sub(r"\d{6,}(-\d+)?", "*", name)
    return f"{operation} {room}/{name}{_phase}"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killer(point: str, count: int, torn: bool, name: Naming = point_of) -> FaultHook:
    left = count
    half_done = False

    def hook(operation: str, path: str, size: int) -> int | None:
        nonlocal left, half_done
        if half_done:
            die()
        if name(operation, path) == point:
            left -= 1
            if left == 0:
                if torn and size > 1:
                    half_done = True
                    return size // 2
                die()
        return None

    return hook


def recorder(path: str, name: Naming = point_of) -> FaultHook:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def hook(operation: str, path: str, size: int) -> int | None:
        os.write(descriptor, f"{name(operation, path)}\n".encode())
        return None

    return hook


def ask_before_each_operation(hook: FaultHook) -> None:
    """Of each node's files that this process makes from here on."""
    make = DiskFiles.__init__

    def make_with_hook(files: DiskFiles, *given: Any) -> None:
        make(files, *given)
        files.set_fault_hook(hook)

    DiskFiles.__init__ = make_with_hook  # type: ignore[method-assign]


def note_the_stop() -> None:
    from broker.server import Server

    stop = Server.stop

    async def noted(server: Server, *, leave: bool) -> None:
        global _phase
        _phase = AT_THE_STOP
        await stop(server, leave=leave)

    Server.stop = noted  # type: ignore[method-assign]


def main() -> int:
    plan = json.loads(sys.argv[1])
    sys.argv[1:2] = []
    if "record" in plan:
        ask_before_each_operation(recorder(plan["record"]))
    else:
        ask_before_each_operation(killer(plan["point"], plan["count"], plan["torn"]))
    from broker import housekeeping
    from broker.__main__ import main as run_broker

    assert hasattr(housekeeping, "METADATA_CLEANING_MS")
    housekeeping.METADATA_CLEANING_MS = SOON_MS
    note_the_stop()
    run: Callable[[], int] = run_broker
    return run()


if __name__ == "__main__":
    assert Path.cwd().joinpath("storage").is_dir()
    sys.exit(main())

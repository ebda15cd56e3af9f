"""Waiting for another process if there is nothing to block on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

POLL_S = 0.005

PATIENCE_S = 240.0
"""For things that normally happen at once. It is less than pytest's time for a test, so the failure names what it
waited for. It is more than the longest stall ever seen."""


def until(condition: Callable[[], object], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Return as soon as the condition holds. Raises AssertionError naming `what` if it never does."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"after {timeout_s:g} s still not: {what}"
        time.sleep(POLL_S)


def until_answered(ask: Callable[[], object], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Ask until nothing is raised: a broker that has just started, or learned of a topic, needs a moment.

    Raises AssertionError naming `what`, with the last error.
    """
    last: Exception | None = None

    def answered() -> bool:
        nonlocal last
        try:
            ask()
        except Exception as error:
            last = error
            return False
        return True

    try:
        until(answered, what, timeout_s)
    except AssertionError as late:
        raise AssertionError(f"{late} ({last})") from last


def process_is_gone(pid: int) -> bool:
    """Return True if no such process runs. A zombie counts as gone, too."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return Path("/proc/self").exists()

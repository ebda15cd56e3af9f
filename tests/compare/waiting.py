"""Waiting for what a script can't go on without."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_S = 0.002
PATIENCE_S = 60.0


class ScriptStuck(Exception):
    """The broker's answers leave the script no way to go on."""


def until(what: str, holds: Callable[[], bool], *, within_s: float = PATIENCE_S) -> None:
    deadline_s = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline_s:
            raise ScriptStuck(f"waited {within_s:g} s until {what}")
        time.sleep(POLL_S)

"""Waiting for something without which a script can't go on."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_S = 0.002
PATIENCE_S = 60.0


class ScriptStuck(Exception):
    """After the broker's answers, the script can't go on."""


def until(what: str, holds: Callable[[], bool], *, within_s: float = PATIENCE_S) -> None:
    deadline_s = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline_s:
            raise ScriptStuck(f"waited {within_s:g} s until {what}")
        time.sleep(POLL_S)

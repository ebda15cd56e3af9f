"""Coroutines of `protocol.waiting`, driven by a test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from protocol.waiting import Waiting


def wishes(waiting: Waiting[Any]) -> Iterator[Any]:
    """Each thing that it waits for, answered with None when the next one is asked for."""
    while True:
        try:
            wish = waiting.send(None)
        except StopIteration:
            return
        yield wish


def pauses(waiting: Waiting[Any]) -> int:
    """How often others may be served."""
    return sum(1 for _ in wishes(waiting))

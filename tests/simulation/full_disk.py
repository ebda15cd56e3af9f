"""A disk that is full now and then, for a moment: it writes nothing more, or only the beginning."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

WRITING = frozenset({"append", "create", "make_directory", "write_whole"})
PARTLY = frozenset({"append", "write_whole"})
"""These may write some bytes before they fail."""


def is_full_now_and_then(luck: random.Random) -> bool:
    return luck.random() < 0.2


class FullDisk:
    """The fault hook of one run's files (`Files.set_fault_hook`)."""

    def __init__(self, luck: random.Random, now_s: Callable[[], float], is_calm: Callable[[], bool]) -> None:
        """When all is calm, there is room."""
        self._luck = luck
        self._now_s = now_s
        self._is_calm = is_calm
        self.refused = 0
        """How many operations it refused."""
        self._full_from_s = self._full_to_s = now_s()
        self._next()

    def _next(self) -> None:
        self._full_from_s = self._full_to_s + self._luck.uniform(0.2, 3)
        self._full_to_s = self._full_from_s + self._luck.uniform(0.01, 1)

    def __call__(self, operation: str, path: str, size: int) -> int | None:
        if operation not in WRITING or self._is_calm():
            return None
        now_s = self._now_s()
        while now_s >= self._full_to_s:
            self._next()
        if now_s < self._full_from_s:
            return None
        self.refused += 1
        if operation in PARTLY and size and self._luck.random() < 0.4:
            return self._luck.randrange(size)
        raise OSError(errno.ENOSPC, "no space left on the virtual disk", path)

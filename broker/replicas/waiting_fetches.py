"""The fetches that wait at one partition."""

from __future__ import annotations

from typing import Protocol


class WaitingFetch(Protocol):
    """What a partition knows of a fetch that waits."""

    is_over: bool

    def recheck(self) -> None:
        """The partition moved. Raises nothing."""
        ...


class WaitingFetches(set[WaitingFetch]):
    """Woken whenever the partition's offsets, its role or its leader change, or it goes."""

    __slots__ = ()

    def wake(self) -> None:
        for fetch in [*self]:
            fetch.recheck()

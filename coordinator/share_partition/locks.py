"""Acquisition locks: until when what was acquired together stays with its member (Kafka: `AcquisitionLockTimerTask`).

One lock, with one timer, holds all offsets that were acquired at once, however many of them are told apart later on.
Kafka makes a timer for each then, all of them due at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from coordinator.share_partition.ports import ShareRuntime


class Lock:
    """Held by the states of offsets `first` to `last`, as long as any of them refers to it."""

    __slots__ = ("_holders", "_locks", "first_offset", "has_expired", "last_offset")

    def __init__(self, locks: Locks, first_offset: int, last_offset: int) -> None:
        self._locks = locks
        self._holders = 0
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.has_expired = False

    def hold(self) -> Lock:
        """One more state refers to it."""
        self._holders += 1
        return self

    def drop(self) -> None:
        """One state refers to it no more; without any there is nothing to wait for."""
        self._holders -= 1
        if not self._holders:
            self._locks.forget(self)


class Locks:
    """All locks of one share partition. `expired` is called with each whose time is over."""

    def __init__(self, runtime: ShareRuntime, expired: Callable[[Lock], None]) -> None:
        self._runtime = runtime
        self._expired = expired
        self._running: dict[Lock, None] = {}

    def __len__(self) -> int:
        return len(self._running)

    def take(self, first_offset: int, last_offset: int, duration_ms: int) -> Lock:
        """A lock of these offsets, whose time begins now. Nobody holds it yet."""
        lock = Lock(self, first_offset, last_offset)
        self._running[lock] = None
        self._runtime.schedule(lock, duration_ms, partial(self._expire, lock))
        return lock

    def forget(self, lock: Lock) -> None:
        """Nothing happens where its time is over."""
        if lock in self._running:
            self._running.pop(lock, None)
            self._runtime.cancel(lock)

    def go_on_expiring(self, lock: Lock) -> None:
        """Call `expired` with it once more, in a turn of its own: it was much."""
        self._running[lock] = None
        self._runtime.schedule(lock, 0, partial(self._expire, lock))

    def end(self) -> None:
        """None of them expires any more."""
        self._expired = _nothing_is_held
        for lock in self._running:
            self._runtime.cancel(lock)
        self._running.clear()

    def _expire(self, lock: Lock) -> None:
        self._running.pop(lock, None)
        lock.has_expired = True
        self._expired(lock)


def _nothing_is_held(lock: Lock) -> None:
    """Its share partition is gone."""

"""Timers by key, as a queue that somebody else's clock moves on.

A group's members push their session timers back all the time: that only writes the new deadline into the timer, and
the queue looks again when the old one comes up.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable

FORGOTTEN_BEFORE_SWEEP = 256


def _never() -> bool:
    return False


class _Timer:
    __slots__ = ("callback", "deadline_ms", "queued_ms")

    def __init__(self, deadline_ms: int, callback: Callable[[], None]) -> None:
        self.deadline_ms = deadline_ms
        self.queued_ms = deadline_ms  # where in the queue it stands, never after its deadline
        self.callback: Callable[[], None] | None = callback


class TimerQueue:
    """`now_ms()` is any clock that doesn't go back. Timers due at the same time fire in the order of scheduling."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._timers: dict[Hashable, _Timer] = {}
        self._queue: list[tuple[int, int, Hashable, _Timer]] = []
        self._sequence = 0
        self._forgotten = 0

    def __len__(self) -> int:
        return len(self._timers)

    def schedule(self, key: Hashable, delay_ms: int, callback: Callable[[], None]) -> bool:
        """Call back after the delay, in milliseconds; a timer of the same key is replaced.

        Whether `next_ms` may be another one now: a timer that is put off stays where it stands in the queue.
        """
        deadline_ms = self._now_ms() + delay_ms
        timer = self._timers.get(key)
        if timer is not None:
            if timer.queued_ms <= deadline_ms:
                timer.deadline_ms = deadline_ms
                timer.callback = callback
                return False
            self._forget(timer)
        timer = self._timers[key] = _Timer(deadline_ms, callback)
        self._push(key, timer)
        return True

    def cancel(self, key: Hashable) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            self._forget(timer)

    def cancel_where(self, matches: Callable[[Hashable], bool]) -> None:
        for key in [key for key in self._timers if matches(key)]:
            self.cancel(key)

    @property
    def next_ms(self) -> int | None:
        """When to look again: the next timer isn't due before. None where there is none."""
        queue = self._queue
        while queue and queue[0][3].callback is None:
            heapq.heappop(queue)
            self._forgotten -= 1
        return queue[0][0] if queue else None

    def fire_due(self, is_over: Callable[[], bool] = _never) -> None:
        """Call back whatever is due, as long as the turn isn't over; an exception leaves the rest for later.

        What is scheduled meanwhile waits for the next call, even if it is due at once: timers that bring each other
        about would keep everybody else waiting.
        """
        last = self._sequence
        while (next_ms := self.next_ms) is not None and next_ms <= self._now_ms():
            _, sequence, key, timer = self._queue[0]
            if sequence > last:
                return
            heapq.heappop(self._queue)
            if timer.deadline_ms > self._now_ms():  # put off
                timer.queued_ms = timer.deadline_ms
                self._push(key, timer)
                continue
            del self._timers[key]
            assert timer.callback is not None  # `next_ms` has dropped those that were cancelled
            timer.callback()
            if is_over():
                return

    def _push(self, key: Hashable, timer: _Timer) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (timer.queued_ms, self._sequence, key, timer))

    def _forget(self, timer: _Timer) -> None:
        timer.callback = None
        self._forgotten += 1
        if self._forgotten > FORGOTTEN_BEFORE_SWEEP + len(self._timers):
            self._queue = [entry for entry in self._queue if entry[3].callback is not None]
            heapq.heapify(self._queue)
            self._forgotten = 0

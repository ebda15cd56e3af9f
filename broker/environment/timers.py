"""Timers of the coordinators on the loop. The server's clock drives them, so that a test can move time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable

from broker.environment.clock import Clock
from broker.environment.scheduler import Scheduled, Scheduler
from broker.environment.watchdog import LONGEST_HOLD_S, TURN_S, Watchdog
from coordinator.timer_queue import TimerQueue
from protocol.errors import stops_the_broker

log = logging.getLogger("barnabas.coordination")


class LoopTimers:
    """A queue of timers that the loop looks at when the next one is due; `failed` learns of broken invariants."""

    def __init__(
        self,
        clock: Clock,
        scheduler: Scheduler,
        failed: Callable[[BaseException], None],
        watchdog: Watchdog | None = None,
    ) -> None:
        self._clock = clock
        self._watchdog = watchdog
        self._monotonic_s = clock.monotonic_s if watchdog is None else watchdog.monotonic_s
        self._call_later = scheduler.call_later
        self._failed = failed
        self._queue = TimerQueue(self._now_ms)
        self._handle: Scheduled | None = None
        self._handle_ms = 0
        self._firing = False
        self._stopped = False

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)

    def schedule(self, key: Hashable, delay_ms: int, callback: Callable[[], None]) -> None:
        if self._queue.schedule(key, delay_ms, callback):  # a session that goes on changes nothing
            self._look_again()

    def cancel(self, key: Hashable) -> None:
        self._queue.cancel(key)

    def cancel_where(self, matches: Callable[[Hashable], bool]) -> None:
        self._queue.cancel_where(matches)

    def stop(self) -> None:
        self._stopped = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def fire_due(self) -> None:
        """Call back whatever is due by the clock; where that is much, the rest in later turns. A failure of one is
        logged, and stops none of the others."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._firing = True
        began_s = self._monotonic_s()

        def is_over() -> bool:
            return self._monotonic_s() - began_s > TURN_S

        try:
            while True:
                try:
                    self._queue.fire_due(is_over)
                except Exception as error:
                    log.exception("a timer failed")
                    if stops_the_broker(error):
                        self._failed(error)
                        return
                    if is_over():
                        break
                else:
                    break
        finally:
            self._firing = False
        if self._watchdog is not None:
            took_s = self._monotonic_s() - began_s
            if took_s > LONGEST_HOLD_S:
                self._watchdog.held("A timer", "", took_s)
        self._look_again()

    def _look_again(self) -> None:
        next_ms = self._queue.next_ms
        if next_ms is None or self._stopped or self._firing:
            return
        if self._handle is not None:
            if self._handle_ms <= next_ms:
                return
            self._handle.cancel()
        self._handle_ms = next_ms
        # One millisecond more than the whole ones that are left: the clock's are cut off.
        delay_ms = next_ms - self._now_ms()
        self._handle = self._call_later(max(delay_ms + 1, 0) / 1000 if delay_ms > 0 else 0, self.fire_due)

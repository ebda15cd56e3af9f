"""Tasks that come again and again, each at its own interval."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from protocol.errors import KafkaError

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduled, Scheduler

log = logging.getLogger("barnabas.housekeeping")


class Periodic:
    """What the disk refuses, or the controller, is logged, and tried again when it is due again."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._periodic: dict[str, tuple[float, Callable[[], None]]] = {}
        """After how many seconds each is due again, and what is then called."""
        self._timers: dict[str, Scheduled] = {}

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._periodic.clear()

    def _every(
        self, name: str, interval_ms: int, task: Callable[[], None], first_ms: int | None = None
    ) -> None:
        def due() -> None:
            self._timers.pop(name, None)
            self._schedule()
            try:
                task()
            except (OSError, KafkaError) as error:
                log.error("%s: %s", name, error)

        delay_ms = interval_ms if first_ms is None else first_ms
        self._timers[name] = self._scheduler.call_later(max(delay_ms, 0) / 1000, due)
        if interval_ms > 0:  # else once, as Kafka's scheduler
            self._periodic[name] = interval_ms / 1000, due

    def _schedule(self) -> None:
        """What has no timer gets one: what is due now, and what there was too little memory for when it was."""
        for name, (interval_s, due) in self._periodic.items():
            if name not in self._timers:
                with suppress(MemoryError):  # whichever is due next tries it again
                    self._timers[name] = self._scheduler.call_later(interval_s, due)

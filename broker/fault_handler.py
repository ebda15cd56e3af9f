"""Ending the node because of a broken invariant, wherever it shows (Kafka: `FaultHandler`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from protocol.errors import KafkaError, stops_the_broker

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduler

log = logging.getLogger("barnabas.server")


class FaultHandler:
    """Receives uncaught errors from the scheduler, until `forget`.

    `failure` is the first one. `stopped` is set when the node has to stop, and when it has stopped.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.failure: BaseException | None = None
        self.stopped = asyncio.Event()
        self.forget: Callable[[], None] = scheduler.tell_failures(self._uncaught)

    def stop_on_failure(self, failure: BaseException) -> None:
        """Stop without marking the folders clean, so that the next start checks everything."""
        if self.failure is None:
            self.failure = failure
            log.critical("stopping, since going on would be wrong: %s", failure)
            self.stopped.set()

    def _uncaught(self, error: BaseException, of_a_callback: bool) -> None:
        """Handle an uncaught error. Our callbacks are timers and ends of background work. Broken connections
        and requests of clients that have gone come here, too, but aren't failures."""
        of_ours = of_a_callback and not isinstance(error, OSError | KafkaError | MemoryError)
        if of_ours or stops_the_broker(error):
            self.stop_on_failure(error)

    def failed_to_stop(self, what: str, error: Exception) -> None:
        """Note a failure of the stop, which keeps the folders from being marked clean."""
        log.error("%s: %s", what, error, exc_info=not isinstance(error, OSError | KafkaError))
        if self.failure is None:
            self.failure = error

    def end(self, unclean: Sequence[Exception]) -> None:
        """Note that the node has stopped. `unclean` holds the errors that prevented a clean end."""
        if unclean and self.failure is None:
            self.failure = unclean[0]
        self.forget()
        self.stopped.set()


async def either(*events: asyncio.Event) -> None:
    """Return once one of the events is set."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()


class Milestone:
    """Something that a start or a stop waits for, unless the node has to stop first."""

    def __init__(self, faults: FaultHandler) -> None:
        self._faults = faults
        self._is_reached = asyncio.Event()

    def reached(self) -> None:
        """Note that it is reached. It may have been before."""
        self._is_reached.set()

    async def wait(self) -> None:
        """Wait for it. Raises the error that the node has to stop for."""
        await either(self._is_reached, self._faults.stopped)
        if not self._is_reached.is_set():
            assert self._faults.failure is not None
            raise self._faults.failure

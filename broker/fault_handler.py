"""What ends a node: a broken invariant, wherever it shows (Kafka: `FaultHandler`)."""

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
    """Told by the scheduler of what nobody catches, from now until `forget`.

    `failure`: the first one there was. `stopped` is set where the node has to stop, and when it has.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.failure: BaseException | None = None
        self.stopped = asyncio.Event()
        self.forget: Callable[[], None] = scheduler.tell_failures(self._uncaught)

    def stop_on_failure(self, failure: BaseException) -> None:
        """Go down without marking the folders clean, so that the next start checks everything."""
        if self.failure is None:
            self.failure = failure
            log.critical("stopping, since going on would be wrong: %s", failure)
            self.stopped.set()

    def _uncaught(self, error: BaseException, of_a_callback: bool) -> None:
        """A callback of ours is a timer or the end of background work. Connections that break off, and requests whose
        client has gone, come here too, and are no failures."""
        of_ours = of_a_callback and not isinstance(error, OSError | KafkaError | MemoryError)
        if of_ours or stops_the_broker(error):
            self.stop_on_failure(error)

    def failed_to_stop(self, what: str, error: Exception) -> None:
        """It keeps the folders from being marked clean."""
        log.error("%s: %s", what, error, exc_info=not isinstance(error, OSError | KafkaError))
        if self.failure is None:
            self.failure = error

    def end(self, unclean: Sequence[Exception]) -> None:
        """The node has stopped. `unclean` is what stood in the way of a clean end."""
        if unclean and self.failure is None:
            self.failure = unclean[0]
        self.forget()
        self.stopped.set()


async def either(*events: asyncio.Event) -> None:
    """Returns once one of them is set."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()


class Milestone:
    """What a start or a stop waits for, unless the node has to stop before."""

    def __init__(self, faults: FaultHandler) -> None:
        self._faults = faults
        self._is_reached = asyncio.Event()

    def reached(self) -> None:
        """It is: now, or some time ago."""
        self._is_reached.set()

    async def wait(self) -> None:
        """Raises what the node has to stop for."""
        await either(self._is_reached, self._faults.stopped)
        if not self._is_reached.is_set():
            assert self._faults.failure is not None
            raise self._faults.failure

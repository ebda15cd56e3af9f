"""Work that must not hold up the loop (syncing, deleting), in one thread of its own.

The port is `storage.background.Background`; one thread keeps the order and is as fast as the disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from broker.broken_invariant import stops_the_broker
from storage.background import run_in_turn

log = logging.getLogger("barnabas.background")

Work = Callable[[], None]
Then = Callable[[Exception | None], None]

AT_ONCE = 16


def run_all(works: Sequence[Work]) -> list[Exception | None]:
    """Does all of the work in several threads and waits for it, in the way of `storage.background.RunAll`: a journal
    takes what is synced at the same time as one."""
    if len(works) < AT_ONCE:
        return run_in_turn(works)
    from concurrent.futures import ThreadPoolExecutor

    shares = [works[first::AT_ONCE] for first in range(AT_ONCE)]
    failures: list[Exception | None] = [None] * len(works)
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="syncing") as executor:
        for first, of_share in enumerate(executor.map(run_in_turn, shares)):
            failures[first::AT_ONCE] = of_share
    return failures


class BackgroundThread:
    """Runs work in a thread and tells its end on the loop. Made where the loop runs; the thread starts with the
    first work."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._executor: object | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._stopping = False

    def __call__(self, work: Work, then: Then, /, *, delay_ms: int = 0) -> None:
        if delay_ms <= 0:
            self._start(work, then)
        elif not self._stopping:
            timer: asyncio.TimerHandle

            def due() -> None:
                self._timers.discard(timer)
                self._start(work, then)

            timer = self._loop.call_later(delay_ms / 1000, due)
            self._timers.add(timer)

    def _start(self, work: Work, then: Then) -> None:
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="background")
        future = self._loop.run_in_executor(self._executor, work)  # type: ignore[arg-type]
        self._waiting.add(future)

        def done(finished: asyncio.Future[None]) -> None:
            self._waiting.discard(finished)
            error = finished.exception()
            if error is not None and not isinstance(error, Exception):
                raise error
            if error is not None:
                log.error("work in the background failed: %s", error)
            then(error)
            if error is not None and stops_the_broker(error):
                raise error  # to the loop's exception handler, as what `then` raises

        future.add_done_callback(done)

    async def finish(self) -> None:
        """Wait for what was started; drop what still waits for its delay (it is found again at the next start)."""
        self._stopping = True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        while self._waiting:
            await asyncio.wait([*self._waiting])
        if self._executor is not None:
            self._executor.shutdown(wait=True)  # type: ignore[attr-defined]

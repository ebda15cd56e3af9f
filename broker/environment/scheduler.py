"""Time and chance of a node: the time (`Clock`), callbacks (`Scheduler`), a log of work that takes too long
(`Watchdog`), the coordinators' timers, and random numbers (`Chance`).

All are ports, so that a test can move time. A scheduler, rather than the loop itself, lets several nodes in one process
each hear of their own failures, and lets a test drop all pending work of a node, as a killed process does. Everything
below the broker gets the clock as an argument. No clock here measures computations in threads beside the loop:
`threads` counts the processor's time.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from protocol.errors import stops_the_broker
from protocol.waiting import Later
from protocol.wire.primitives import uuid_to_text

# --- Timers by key, in a queue that any clock can drive -------------------------------------------------------
#
# A group's members put off their session timers all the time. That only writes the new deadline into the timer;
# the queue looks at it when the old deadline comes.

FORGOTTEN_BEFORE_SWEEP = 256


def _never() -> bool:
    return False


class _Timer:
    __slots__ = ("callback", "deadline_ms", "queued_ms")

    def __init__(self, deadline_ms: int, callback: Callable[[], None]) -> None:
        self.deadline_ms = deadline_ms
        self.queued_ms = deadline_ms  # its place in the queue, never after its deadline
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
        """Call back after the delay, in milliseconds. This replaces a timer with the same key.

        Returns True if `next_ms` may have changed: a timer that is put off keeps its place in the queue.
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
        """When to look again: the next timer isn't due before. None if there is no timer."""
        queue = self._queue
        while queue and queue[0][3].callback is None:
            heapq.heappop(queue)
            self._forgotten -= 1
        return queue[0][0] if queue else None

    def fire_due(self, is_over: Callable[[], bool] = _never) -> None:
        """Call back all due timers until the turn is over. After an exception the rest is left for later.

        Timers that are scheduled meanwhile wait for the next call, even if they are due at once: otherwise timers that
        set each other could hold up the loop.
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
            assert timer.callback is not None  # `next_ms` has dropped cancelled timers
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


# --------------------------------------------------------------------------------------------------------------

watchdog_log = logging.getLogger("barnabas.watchdog")
log = logging.getLogger("barnabas.coordination")


class Clock(Protocol):
    """Wall time for records, monotonic time for durations."""

    def now_ms(self) -> int:
        """Wall-clock time, milliseconds since the epoch."""
        ...

    def time_ns(self) -> int:
        """Wall-clock time in nanoseconds, without a Python call around the system's function."""
        ...

    def monotonic_s(self) -> float:
        """Seconds on a clock that never goes back."""
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ("monotonic_s", "time_ns")

    def __init__(self) -> None:
        # The function itself: each request calls it at least twice, and a Python call around it costs more than it
        # does.
        self.monotonic_s = time.monotonic
        self.time_ns = time.time_ns

    def now_ms(self) -> int:
        return self.time_ns() // 1_000_000


def processor_time_s() -> float:
    """How long the processor has worked for this thread. Only metrics use it."""
    return time.thread_time()


# --- Chance, in the forms that Kafka uses -------------------------------------------------------------------


class Chance:
    """Draws from one source of random bytes: the machine's, or that of a test with a seed."""

    __slots__ = ("token_bytes",)

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        """`token_bytes(n)` draws n bytes."""
        self.token_bytes = token_bytes

    def token_hex(self, size: int) -> str:
        """Two hex digits for each of `size` bytes."""
        return self.token_bytes(size).hex()

    def folder_name(self) -> str:
        """32 hex digits that make the name of a moved, deleted or set-aside folder unique."""
        return self.token_hex(16)

    def randrange(self, start: int, stop: int | None = None) -> int:
        """A number from `start` to below `stop`, or from 0 to below `start` if that is alone. As `random.randrange`."""
        low, count = (0, start) if stop is None else (start, stop - start)
        if count <= 0:
            raise ValueError(f"nothing to draw from: {start}, {stop}")
        bits = (count - 1).bit_length()
        size = (bits + 7) // 8
        while True:
            # numbers above are drawn again rather than folded in, so that all are equally likely
            drawn = int.from_bytes(self.token_bytes(size), "big") >> (size * 8 - bits)
            if drawn < count:
                return low + drawn

    def uuid(self) -> bytes:
        """A UUID of version 4, 16 bytes, whose text doesn't begin with a dash, since tools would take that for an
        option (Kafka: `Uuid.randomUuid`)."""
        while True:
            drawn = bytearray(self.token_bytes(16))
            drawn[6] = drawn[6] & 0x0F | 0x40
            drawn[8] = drawn[8] & 0x3F | 0x80
            found = bytes(drawn)
            if not uuid_to_text(found).startswith("-"):
                return found


# --- Callbacks on the loop, soon or after a while -----------------------------------------------------------


class Scheduled(Protocol):
    """A callback that is scheduled."""

    def cancel(self) -> None: ...


TaskFailed = Callable[[BaseException, bool], None]
"""Called with an exception that nothing caught, and whether it ended a callback of the broker. Errors of broken
connections, and of requests whose client has gone, come here, too."""


class Scheduler(Protocol):
    """Callbacks in the order of their time. Code that calls a method often binds it once."""

    def time(self) -> float:
        """Seconds on the clock of the delays. It never goes back."""
        ...

    def call_soon(self, callback: Callable[..., object], /, *args: Any) -> Scheduled:
        """Call back after this call, and before any timer."""
        ...

    def call_later(self, delay_s: float, callback: Callable[..., object], /, *args: Any) -> Scheduled: ...

    def tell_failures(self, failed: TaskFailed) -> Callable[[], None]:
        """Report failures to `failed` from now on. Calling the returned function ends that."""
        ...


class OnLoop(Scheduler, Protocol):
    """The scheduler of a loop, as threads use it to call back."""

    def guard(self, callback: Callable[..., object], /, *args: Any) -> None:
        """Call back for the loop. A failure is reported like that of a timer."""
        ...


class LoopScheduler:
    """The scheduler of the loop that runs where this is made.

    A failed callback is reported to its own node, even if other nodes share the loop. Other failures, of transports or
    tasks, are reported to every node: each would rather stop than go on wrongly.
    """

    __slots__ = ("_failed", "_loop", "time")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._failed: TaskFailed | None = None
        self.time: Callable[[], float] = self._loop.time

    def call_soon(self, callback: Callable[..., object], /, *args: Any) -> Scheduled:
        return self._loop.call_soon(self.guard, callback, *args)

    def call_later(self, delay_s: float, callback: Callable[..., object], /, *args: Any) -> Scheduled:
        return self._loop.call_later(delay_s, self.guard, callback, *args)

    def guard(self, callback: Callable[..., object], /, *args: Any) -> None:
        """Call back for the loop. A failure is reported, or raised if there is nobody to report it to."""
        try:
            callback(*args)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if self._failed is None:
                raise
            _tell(self._loop, {"message": f"{callback!r} failed", "exception": error}, [self._failed], True)

    def tell_failures(self, failed: TaskFailed) -> Callable[[], None]:
        """See `Scheduler`. The loop still logs failures by itself."""
        of_loop = self._loop.get_exception_handler()
        if not isinstance(of_loop, _OfLoop):
            of_loop = _OfLoop(of_loop)
            self._loop.set_exception_handler(of_loop)
        of_loop.told.append(failed)
        self._failed = failed
        return partial(self._forget, of_loop, failed)

    def _forget(self, of_loop: _OfLoop, failed: TaskFailed) -> None:
        self._failed = None
        if failed in of_loop.told:
            of_loop.told.remove(failed)
            if not of_loop.told:
                self._loop.set_exception_handler(of_loop.previous)


class _OfLoop:
    """The exception handler of a loop while there are nodes on it."""

    def __init__(self, previous: Any) -> None:
        self.previous = previous
        self.told: list[TaskFailed] = []

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        _tell(loop, context, [*self.told], "handle" in context)


def _tell(
    loop: asyncio.AbstractEventLoop, context: dict[str, Any], told: Sequence[TaskFailed], of_a_callback: bool
) -> None:
    """Log and report an exception. `context` is that of a loop's exception handler."""
    loop.default_exception_handler(context)
    error = context.get("exception")
    if error is not None and not isinstance(error, asyncio.CancelledError):
        for failed in told:
            failed(error, of_a_callback)


# --- Waits of the node's own coroutines, which answer no request ------------------------------------------------


def passed(scheduler: Scheduler, delay_s: float) -> Later[None]:
    """A Later that replies once so much time has passed. Abandoning it cancels the timer."""
    over: Later[None] = Later()
    over.on_abandon = scheduler.call_later(delay_s, over.reply, None).cancel
    return over


class Waker:
    """Lets one coroutine wait for a while, or until it is woken."""

    __slots__ = ("_over", "_scheduler", "_timer")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._over: Later[None] | None = None
        self._timer: Scheduled | None = None

    async def wait(self, delay_s: float | None) -> None:
        """Wait for `delay_s`; None means until it is woken."""
        over: Later[None] = Later()
        self._over = over
        if delay_s is not None:
            self._timer = self._scheduler.call_later(delay_s, self._due)
        await over

    async def turn(self) -> None:
        """Let others be served."""
        over: Later[None] = Later()
        self._over = over
        self._timer = self._scheduler.call_soon(self._due)
        await over

    def wake(self) -> None:
        """Have the waiting coroutine go on, within this call."""
        over = self._take()
        if over is not None:
            over.reply(None)

    def stop(self) -> None:
        """End the waiting coroutine."""
        over = self._take()
        if over is not None:
            over.abandon()

    def _due(self) -> None:
        self._timer = None
        self.wake()

    def _take(self) -> Later[None] | None:
        over, self._over = self._over, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return over


# --- A log of work that holds the loop for long, since everything else waits meanwhile ----------------------
#
#     Produce v9 of 127.0.0.1:40118 client rdkafka held up everybody for 81 ms
#
# Frequent kinds of work are logged once in a while, with a count.


LONGEST_HOLD_S = 0.05
"""Work that holds the loop for longer in one turn is logged."""

TURN_S = 0.01
"""How long a turn may take. Then others are served first, even if there is more to do."""

IN_A_ROW_S = 0.002
"""How long requests of one connection are served in a row, and batches of one Produce appended, before others get their
turn. A connection that is alone at its listener gets `TURN_S`."""

QUIET_S = 10.0
"""The time between two lines about the same kind of work."""


class _Told(NamedTuple):
    """The last line about a kind of work, and what hasn't been logged since."""

    told_s: float
    unsaid: int = 0
    longest_s: float = 0.0


class Watchdog:
    """Logs work that took long. There are few kinds of work (APIs, timers), so there are few lines."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self.monotonic_s = monotonic_s
        self._told: dict[str, _Told] = {}

    def held(self, kind: str, who: object, took_s: float) -> None:
        """Log that work held the loop for longer than `LONGEST_HOLD_S`. `who` is only part of the text."""
        now_s = self.monotonic_s()
        told = self._told.get(kind)
        if told is not None and now_s - told.told_s < QUIET_S:
            longest_s = max(told.longest_s, took_s)
            self._told[kind] = _Told(told.told_s, told.unsaid + 1, longest_s)
            return
        self._told[kind] = _Told(now_s)
        before = ""
        if told is not None and told.unsaid:
            before = (
                f"; {told.unsaid} others of its kind did before, for up to {told.longest_s * 1000:.0f} ms"
            )
        watchdog_log.warning("%s%s held up everybody for %.0f ms%s", kind, who, took_s * 1000, before)


# --- Timers of the coordinators on the loop -----------------------------------------------------------------


class LoopTimers:
    """A queue of timers that the loop looks at when the next one is due. `failed` gets broken invariants."""

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
        if self._queue.schedule(key, delay_ms, callback):  # a session that is renewed changes nothing
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
        """Call back all timers that are due by the clock. If they take long, the rest comes in later turns. A failure
        is logged, and doesn't stop the others."""
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
        # One millisecond more than the remaining whole ones, since the clock's fractions are cut off.
        delay_ms = next_ms - self._now_ms()
        self._handle = self._call_later(max(delay_ms + 1, 0) / 1000 if delay_ms > 0 else 0, self.fire_due)

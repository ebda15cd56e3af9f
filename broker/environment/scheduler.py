"""Time and chance as a node has them: what time it is (`Clock`), when things happen (`Scheduler`), who takes too much
time (`Watchdog`), the coordinators' timers, and what is drawn (`Chance`).

All are ports, so that a test can move time. The scheduler is one rather than the loop itself, so that several nodes
of one process each learn of their own failures, and so that a test may drop all that a node still had to do, as a
killed process does. Everything below the broker gets the clock as an argument. What a thread beside the loop has
computed is no matter of any clock: `threads` counts the processor's time.
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

# --- Timers by key, as a queue that somebody else's clock moves on --------------------------------------------
#
# A group's members push their session timers back all the time: that only writes the new deadline into the
# timer, and the queue looks again when the old one comes up.

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


# --------------------------------------------------------------------------------------------------------------

watchdog_log = logging.getLogger("barnabas.watchdog")
log = logging.getLogger("barnabas.coordination")


class Clock(Protocol):
    """Wall time for what records say, monotonic time for how long something took."""

    def now_ms(self) -> int:
        """Wall-clock time, milliseconds since the epoch."""
        ...

    def time_ns(self) -> int:
        """The same in nanoseconds, without a call of ours around it."""
        ...

    def monotonic_s(self) -> float:
        """Seconds on a clock that never goes back."""
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ("monotonic_s", "time_ns")

    def __init__(self) -> None:
        # The function itself: a request asks twice and more, and a call of ours around it costs more than the clock.
        self.monotonic_s = time.monotonic
        self.time_ns = time.time_ns

    def now_ms(self) -> int:
        return self.time_ns() // 1_000_000


def processor_time_s() -> float:
    """How long the processor has worked for this thread. It decides nothing: metrics tell of it."""
    return time.thread_time()


# --- Chance, in the forms in which Kafka has it -------------------------------------------------------------


class Chance:
    """Draws from one source of random bytes: the machine's, or a test's that begins with a seed."""

    __slots__ = ("token_bytes",)

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        """`token_bytes(n)` draws n bytes."""
        self.token_bytes = token_bytes

    def token_hex(self, size: int) -> str:
        """Two hex digits for each of `size` bytes."""
        return self.token_bytes(size).hex()

    def folder_name(self) -> str:
        """32 hex digits: what a folder is told apart by that is moved, deleted or set aside."""
        return self.token_hex(16)

    def randrange(self, start: int, stop: int | None = None) -> int:
        """From `start` to below `stop`; from 0 to below `start` where only that is given. As `random.randrange`."""
        low, count = (0, start) if stop is None else (start, stop - start)
        if count <= 0:
            raise ValueError(f"nothing to draw from: {start}, {stop}")
        bits = (count - 1).bit_length()
        size = (bits + 7) // 8
        while True:
            # what lies above is drawn again rather than folded in: all are as likely
            drawn = int.from_bytes(self.token_bytes(size), "big") >> (size * 8 - bits)
            if drawn < count:
                return low + drawn

    def uuid(self) -> bytes:
        """16 bytes of version 4 whose text begins with no dash, since tools would take it for an option
        (Kafka: `Uuid.randomUuid`)."""
        while True:
            drawn = bytearray(self.token_bytes(16))
            drawn[6] = drawn[6] & 0x0F | 0x40
            drawn[8] = drawn[8] & 0x3F | 0x80
            found = bytes(drawn)
            if not uuid_to_text(found).startswith("-"):
                return found


# --- Callbacks on the loop, soon or after a while -----------------------------------------------------------


class Scheduled(Protocol):
    """A callback that is to come."""

    def cancel(self) -> None: ...


TaskFailed = Callable[[BaseException, bool], None]
"""Told of an exception that nobody caught, and whether a callback of ours ended with it. Connections that break off,
and requests whose client has gone, come here too."""


class Scheduler(Protocol):
    """Callbacks in the order of their time. Whoever calls often binds the method once."""

    def time(self) -> float:
        """Seconds on the clock that delays are counted by; it never goes back."""
        ...

    def call_soon(self, callback: Callable[..., object], /, *args: Any) -> Scheduled:
        """Not within this call, and before any timer."""
        ...

    def call_later(self, delay_s: float, callback: Callable[..., object], /, *args: Any) -> Scheduled: ...

    def tell_failures(self, failed: TaskFailed) -> Callable[[], None]:
        """Who is told from now on; the call that is returned ends it."""
        ...


class OnLoop(Scheduler, Protocol):
    """One of a loop, for threads that tell it something."""

    def guard(self, callback: Callable[..., object], /, *args: Any) -> None:
        """Call it, for the loop: its failure is told as that of a timer."""
        ...


class LoopScheduler:
    """The loop that runs where this is made.

    What a callback fails with is told to the node that it is of, whoever else has the loop. What comes to the loop by
    other ways, a transport's or a task's, is told to every node: each of them would rather stop than go on wrongly.
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
        """Call it, for the loop: its failure is told here. Where nobody is told, it is raised."""
        try:
            callback(*args)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if self._failed is None:
                raise
            _tell(self._loop, {"message": f"{callback!r} failed", "exception": error}, [self._failed], True)

    def tell_failures(self, failed: TaskFailed) -> Callable[[], None]:
        """The loop goes on as well with what it does of itself: logging them."""
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
    """A loop's exception handler while there are nodes on it."""

    def __init__(self, previous: Any) -> None:
        self.previous = previous
        self.told: list[TaskFailed] = []

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        _tell(loop, context, [*self.told], "handle" in context)


def _tell(
    loop: asyncio.AbstractEventLoop, context: dict[str, Any], told: Sequence[TaskFailed], of_a_callback: bool
) -> None:
    """`context` as of a loop's exception handler. It is logged, too."""
    loop.default_exception_handler(context)
    error = context.get("exception")
    if error is not None and not isinstance(error, asyncio.CancelledError):
        for failed in told:
            failed(error, of_a_callback)


# --- What a coroutine of the node's own waits for, when it is nobody's answer ---------------------------------


def passed(scheduler: Scheduler, delay_s: float) -> Later[None]:
    """Once so much time has passed. Whoever gives it up abandons it."""
    over: Later[None] = Later()
    over.on_abandon = scheduler.call_later(delay_s, over.reply, None).cancel
    return over


class Waker:
    """One coroutine waits until a while is over, or somebody wakes it."""

    __slots__ = ("_over", "_scheduler", "_timer")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._over: Later[None] | None = None
        self._timer: Scheduled | None = None

    async def wait(self, delay_s: float | None) -> None:
        """None: until it is woken."""
        over: Later[None] = Later()
        self._over = over
        if delay_s is not None:
            self._timer = self._scheduler.call_later(delay_s, self._due)
        await over

    async def turn(self) -> None:
        """Others are served."""
        over: Later[None] = Later()
        self._over = over
        self._timer = self._scheduler.call_soon(self._due)
        await over

    def wake(self) -> None:
        """Who waits goes on in this call."""
        over = self._take()
        if over is not None:
            over.reply(None)

    def stop(self) -> None:
        """Who waits doesn't go on any more."""
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


# --- Who holds the loop for long is logged, since everybody else waits meanwhile ----------------------------
#
#     Produce v9 of 127.0.0.1:40118 client rdkafka held up everybody for 81 ms
#
# What comes often is told once in a while, with how often it came.


LONGEST_HOLD_S = 0.05
"""Of the loop, in one turn: who takes longer is logged."""

TURN_S = 0.01
"""From here on a turn ends where there is more to do, and others are served first."""

IN_A_ROW_S = 0.002
"""For so long requests of one connection are served one behind the other, and batches of one Produce appended, before
others are let in; of one that is alone with its listener, for `TURN_S`."""

QUIET_S = 10.0
"""Between two lines about the same kind of work."""


class _Told(NamedTuple):
    """What was said of a kind of work, and what wasn't since."""

    told_s: float
    unsaid: int = 0
    longest_s: float = 0.0


class Watchdog:
    """Told of what took long. The kinds of work are few (APIs, timers), and so are the lines."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self.monotonic_s = monotonic_s
        self._told: dict[str, _Told] = {}

    def held(self, kind: str, who: object, took_s: float) -> None:
        """The loop was held for longer than `LONGEST_HOLD_S`. `who` is part of the text alone."""
        now_s = self.monotonic_s()
        told = self._told.get(kind)
        if told is not None and now_s - told.told_s < QUIET_S:
            longest_s = max(told.longest_s, took_s)
            self._told[kind] = _Told(told.told_s, told.unsaid + 1, longest_s)
            return
        self._told[kind] = _Told(now_s)
        before = ""
        if told is not None and told.unsaid:
            before = f", and {told.unsaid} of the kind did before, for up to {told.longest_s * 1000:.0f} ms"
        watchdog_log.warning("%s%s held up everybody for %.0f ms%s", kind, who, took_s * 1000, before)


# --- Timers of the coordinators on the loop -----------------------------------------------------------------


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

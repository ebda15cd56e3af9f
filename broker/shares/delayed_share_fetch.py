"""The ShareFetch that waits (Kafka: `DelayedShareFetch`).

It waits at the partitions, whose appends and commits wake it, and at the share partitions: their state is loaded, a
lock ends, records are given back, the start moves, another fetch has read. As in Kafka it acquires only once there is
as much as it asks for, or its time is over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.network.later import Later

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduled, Scheduler
    from broker.network.turns import RequestSteps, Turns
    from broker.shares.share_fetching import Acquirable, Answers, ShareReading

MOST_RECHECKED_IN_PASSING = 20
"""Share partitions of a fetch that is looked after in the turn of whoever moves one of them: a producer, perhaps, whose
every append would look at all of them."""


class DelayedShareFetch:
    """`reply` is told the answers, in the call that makes this or later, or `fail` why there are none. Neither is
    called once it was abandoned."""

    __slots__ = (
        "_fail",
        "_is_rechecking",
        "_next_turn",
        "_reading",
        "_reply",
        "_timer",
        "_turns",
        "is_over",
    )

    def __init__(
        self,
        reading: ShareReading,
        scheduler: Scheduler,
        turns: Turns,
        reply: Callable[[Answers], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._reading = reading
        self._reply = reply
        self._fail = fail
        self._turns = turns
        self._timer: Scheduled | None = None
        self._next_turn: Later[None] | None = None
        self._is_rechecking = False
        self.is_over = False
        reading.changed = self.recheck
        self._recheck()
        if self.is_over:
            return
        if reading.parameters.max_wait_ms <= 0:
            self._time_is_over()
            return
        self._timer = scheduler.call_later(reading.parameters.max_wait_ms / 1000, self._time_is_over)
        for led in reading.wanted:
            led.waiting.add(self, 0)
            led.partition.waiting.add(self, 0)

    def recheck(self, place: int = 0) -> None:
        """Called whenever any of what it waits for moved: answer if there is enough now. It raises nothing: who moved
        the partition, a producer perhaps, has no part in what goes wrong here."""
        if self.is_over or self._is_rechecking:
            return
        if self._timer is None or len(self._reading.wanted) <= MOST_RECHECKED_IN_PASSING:
            self._recheck()
        elif self._next_turn is None:
            recheck = self._turns.answer(self._recheck_in_its_turn())
            assert isinstance(recheck, Later)
            self._next_turn = recheck

    def _recheck_in_its_turn(self) -> RequestSteps[None]:
        """Of many that wait for one record each has a turn: others are served in between."""
        yield None
        self._next_turn = None
        self._recheck()

    def _recheck(self) -> None:
        self._is_rechecking = True
        try:
            if self._reading.is_hopeless:
                held: Acquirable | None = []
            else:
                held = self._reading.is_enough()
            if held is not None:
                self._complete(held)
        except Exception as error:
            self.abandon()
            self._fail(error)
        finally:
            self._is_rechecking = False

    def _time_is_over(self) -> None:
        """Acquire whatever there is."""
        if self.is_over:
            return
        try:
            self._complete(self._reading.hold())
        except Exception as error:
            self.abandon()
            self._fail(error)

    def abandon(self) -> None:
        """It doesn't wait any more: it is answered, or its client has gone."""
        self.is_over = True
        self._reading.changed = None  # no cycle is to stay
        if self._timer is not None:
            self._timer.cancel()
        if self._next_turn is not None:
            self._next_turn.abandon()
        for led in self._reading.wanted:
            led.waiting.discard(self)
            led.partition.waiting.discard(self)

    def _complete(self, held: Acquirable) -> None:
        self.abandon()
        self._reply(self._reading.acquire(held) if held else {})

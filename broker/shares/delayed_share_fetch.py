"""The ShareFetch that waits (Kafka: `DelayedShareFetch`).

It waits at the partitions, whose appends and commits wake it, and at the share partitions: their state is loaded, a
lock ends, records are given back, the start moves, another fetch has read. As in Kafka it acquires only once there is
as much as it asks for, or its time is over.

One of many share partitions looks after them, and acquires, in turns of the loop, others being served in between. What
moves meanwhile has it look once more. Of one group one such fetch looks at a time: two that hold what the other one
wants would have each other look again and again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.network.later import Later
from broker.network.turns import in_line
from broker.shares.share_fetching import MOST_ACQUIRED_IN_PASSING
from protocol.waiting import at_once, step, turn

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduled, Scheduler
    from broker.network.turns import Lines, Turns
    from broker.shares.share_fetching import Acquirable, Answers, ShareReading

MOST_RECHECKED_IN_PASSING = 20
"""Share partitions of a fetch that is looked after in the turn of whoever moves one of them: a producer, perhaps, whose
every append would look at all of them."""


class DelayedShareFetch:
    """`reply` is told the answers, in the call that makes this or later, or `fail` why there are none. Neither is
    called once it was abandoned."""

    __slots__ = (
        "_fail",
        "_has_moved",
        "_is_long",
        "_is_rechecking",
        "_is_time_over",
        "_lines",
        "_next_turn",
        "_reading",
        "_reply",
        "_timer",
        "_turns",
        "_waits",
        "is_over",
    )

    def __init__(
        self,
        reading: ShareReading,
        scheduler: Scheduler,
        turns: Turns,
        lines: Lines[str],
        reply: Callable[[Answers], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`lines`: of each group, the fetches that look in turns."""
        self._reading = reading
        self._reply = reply
        self._fail = fail
        self._turns = turns
        self._lines = lines
        self._timer: Scheduled | None = None
        self._next_turn: Later[None] | None = None
        self._is_long = len(reading.wanted) > MOST_ACQUIRED_IN_PASSING
        self._is_rechecking = False
        self._has_moved = False
        self._waits = True
        self.is_over = False
        max_wait_ms = reading.parameters.max_wait_ms
        self._is_time_over = max_wait_ms <= 0
        reading.changed = self.recheck
        if self._is_long:
            self.recheck()
        else:
            self._recheck()
        if not self._waits:
            return
        if not self._is_time_over:
            self._timer = scheduler.call_later(max_wait_ms / 1000, self._time_over)
        for led in reading.wanted:
            led.waiting.add(self, 0)
            led.partition.waiting.add(self, 0)

    def recheck(self, place: int = 0) -> None:
        """Called whenever any of what it waits for moved: answer if there is enough now. It raises nothing: who moved
        the partition, a producer perhaps, has no part in what goes wrong here."""
        if not self._waits or self._is_rechecking:
            return
        if self._is_long or len(self._reading.wanted) > MOST_RECHECKED_IN_PASSING:
            self._has_moved = True
            if self._next_turn is None:
                recheck = self._turns.answer(self._recheck_in_its_turn())
                if isinstance(recheck, Later):
                    self._next_turn = recheck
        else:
            self._recheck()

    async def _recheck_in_its_turn(self) -> None:
        """Of many that wait for one record each has a turn, or some: others are served in between."""
        await turn()
        group_id = self._reading.parameters.group_id
        while self._waits and self._has_moved:
            if self._is_long:
                await in_line(self._lines, group_id, self._look_in_turns())
            else:
                self._recheck()
        self._next_turn = None

    def _recheck(self) -> None:
        self._has_moved = False
        self._is_rechecking = True
        try:
            at_once(self._look())
        except Exception as error:
            self._go_wrong(error)
        finally:
            self._is_rechecking = False

    async def _look_in_turns(self) -> None:
        """What it wakes itself, as it lets go, has it not look once more: else it might do so for ever."""
        self._has_moved = False
        steps = self._look()
        try:
            while True:
                self._is_rechecking = True
                try:
                    if step(steps):
                        return
                finally:
                    self._is_rechecking = False
                await turn()
        except Exception as error:
            self._go_wrong(error)
        finally:
            steps.close()

    def _go_wrong(self, error: Exception) -> None:
        self.is_over = True
        self._wait_no_more()
        self._fail(error)

    async def _look(self) -> None:
        """Answer if there is enough, or if the time is over with whatever there is."""
        reading = self._reading
        held: Acquirable | None = []
        if not reading.is_hopeless:
            held = await (reading.hold() if self._is_time_over else reading.is_enough())
        if held is None:
            return
        self._wait_no_more()
        answers: Answers = {}
        if held:
            answers = await reading.acquire(held)
        self.is_over = True
        self._reply(answers)

    def _time_over(self) -> None:
        self._is_time_over = True
        self._timer = None
        if self._is_long:
            self.recheck()
        elif self._waits:
            self._recheck()

    def _wait_no_more(self) -> None:
        self._waits = False
        self._reading.changed = None  # no cycle is to stay
        if self._timer is not None:
            self._timer.cancel()
        for led in self._reading.wanted:
            led.waiting.discard(self)
            led.partition.waiting.discard(self)

    def abandon(self) -> None:
        """Its client has gone: what it holds others may have."""
        self.is_over = True
        self._wait_no_more()
        next_turn, self._next_turn = self._next_turn, None
        if next_turn is not None:
            next_turn.abandon()

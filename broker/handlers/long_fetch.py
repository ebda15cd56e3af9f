"""A Fetch of so many partitions that it is read in turns of the loop, or at least looked after so while it waits.

What moves one of its partitions only says so: that many of them are read for it is no affair of a producer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from broker.network.later import Later
from broker.network.turns import PER_TURN, in_turns, portions
from broker.replicas.delayed_fetch import Readable
from broker.replicas.fetching import Reading
from protocol.errors import KafkaError
from protocol.records.batch import CorruptRecordError
from protocol.waiting import turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.environment.scheduler import Scheduler
    from broker.network.turns import Turns
    from broker.replicas.fetch_targets import FetchTarget
    from broker.replicas.fetching import FetchParameters
    from broker.replicas.partition import Partition
    from broker.replicas.partitions import Partitions

log = logging.getLogger("barnabas.fetch")

MOST_READ_IN_PASSING = 20
"""Partitions of a Fetch that waits and is read in the turn of whoever moves one of them: many may wait for that one."""


async def read_in_turns(
    partitions: Partitions,
    parameters: FetchParameters,
    targets: Sequence[FetchTarget],
    may_read: Callable[[str], bool],
) -> Reading:
    """All that there is."""
    whole = Reading(partitions, parameters, [], may_read)
    for some in portions(targets):
        part = Reading(partitions, parameters, [*some], may_read, whole)
        whole.add(part)
        await turn()
    return whole


class LongFetch:
    """One that waits."""

    def __init__(self, reading: Reading, scheduler: Scheduler, turns: Turns) -> None:
        self.is_over = False
        """Of its wait, whatever there is to read."""
        self._reading = reading
        self._scheduler = scheduler
        self._turns = turns
        self._moved: dict[int, None] = {}
        self._told: Later[None] | None = None

    async def wait(self) -> None:
        """Until there is enough, or its time is over; then what is read is what there is by then."""
        reading = self._reading
        reading.forget()
        timer = self._scheduler.call_later(reading.parameters.max_wait_ms / 1000, self._end)
        every = range(len(reading.waited_for))
        try:
            await in_turns(every, self._begin_to_wait)
            readable = Readable(reading)
            is_enough = await self._is_enough_with(readable, every)
            while not (self.is_over or is_enough):
                if not self._moved:
                    self._told = Later()
                    await self._told
                moved, self._moved = self._moved, {}
                is_enough = await self._is_enough_with(readable, [*moved])
                if is_enough and not self.is_over:
                    is_enough = await self._is_enough_with(readable, every)
        finally:
            self.is_over = True
            timer.cancel()
            # also where the client has hung up, and this is to end now
            self._turns.carry_out(in_turns(reading.waited_for, _wait_no_more(self)), _failed)
        await reading.read_in_parts(PER_TURN)

    def recheck(self, place: int) -> None:
        """One of the partitions moved."""
        if not self.is_over:
            self._moved[place] = None
            self._wake()

    def _wake(self) -> None:
        told, self._told = self._told, None
        if told is not None:
            told.reply(None)

    def _end(self) -> None:
        self.is_over = True
        self._wake()

    def _begin_to_wait(self, places: Iterable[int]) -> None:
        found = self._reading.waited_for
        for place in places:
            found[place][1].waiting.add(self, place)

    async def _is_enough_with(self, readable: Readable, places: Sequence[int]) -> bool:
        is_enough = False
        for some in portions(places):
            try:
                is_enough = readable.is_enough_with(some)
            except (KafkaError, OSError, CorruptRecordError):
                return True  # reading finds the same fault, and says it with its partition
            if len(some) == PER_TURN:
                await turn()
        return is_enough


def _wait_no_more(fetch: LongFetch) -> Callable[[Iterable[tuple[FetchTarget, Partition]]], None]:
    def discard(found: Iterable[tuple[FetchTarget, Partition]]) -> None:
        for _, partition in found:
            partition.waiting.discard(fetch)

    return discard


def _failed(error: BaseException) -> None:
    log.error("what waited for a fetch may be left behind", exc_info=error)

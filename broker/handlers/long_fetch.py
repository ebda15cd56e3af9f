"""A Fetch of so many partitions that it is read in turns of the loop, and looked after so while it waits.

What moves one of its partitions only says so: that many others of them are looked at for it is no affair of a producer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.network.later import Later
from broker.network.turns import PER_TURN, portions
from broker.replicas.delayed_fetch import bytes_to_read
from broker.replicas.fetching import FetchParameters, Reading
from protocol.errors import KafkaError
from protocol.records.batch import CorruptRecordError

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduler
    from broker.network.turns import RequestSteps
    from broker.replicas.fetch_sessions import FetchPlan
    from broker.replicas.partitions import Partitions


class LongFetch:
    """One of a consumer."""

    def __init__(
        self,
        partitions: Partitions,
        parameters: FetchParameters,
        plan: FetchPlan,
        may_read: Callable[[str], bool],
        scheduler: Scheduler,
    ) -> None:
        self.parameters = parameters
        self.plan = plan
        self.is_over = False
        """Of its wait, whatever there is to read."""
        self._partitions = partitions
        self._may_read = may_read
        self._scheduler = scheduler
        self._reading = Reading(partitions, parameters, [], may_read)
        self._has_moved = False
        self._told: Later[None] | None = None

    def read(self) -> RequestSteps[Reading]:
        """All that there is."""
        whole = self._reading
        for targets in portions(self.plan.targets):
            part = Reading(self._partitions, self.parameters, [*targets], self._may_read, whole)
            whole.add(part)
            yield None
        return whole

    def wait(self) -> RequestSteps[None]:
        """Until there is enough, or its time is over; then what was read is what there is by then."""
        reading = self._reading
        reading.forget()
        timer = self._scheduler.call_later(self.parameters.max_wait_ms / 1000, self._end)
        try:
            for some in portions(reading.found):
                for _, partition in some:
                    partition.waiting.add(self)
                yield None
            while not (self.is_over or (yield from self._is_enough())):
                if not self._has_moved:
                    self._told = Later()
                    yield self._told
                self._has_moved = False
        finally:
            self.is_over = True
            timer.cancel()
            for _, partition in reading.found:
                partition.waiting.discard(self)
        yield from reading.read_in_parts(PER_TURN)

    def recheck(self) -> None:
        """One of the partitions moved."""
        self._has_moved = True
        told, self._told = self._told, None
        if told is not None:
            told.reply(None)

    def _end(self) -> None:
        self.is_over = True
        self.recheck()

    def _is_enough(self) -> RequestSteps[bool]:
        available = 0
        for some in portions(self._reading.found):
            try:
                available += bytes_to_read(self.parameters, some)
            except (KafkaError, OSError, CorruptRecordError):
                return True  # reading finds the same fault, and says it with its partition
            if available >= self.parameters.min_bytes:
                return True
            yield None
        return False

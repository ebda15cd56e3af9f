"""The Fetch that waits (Kafka: `DelayedFetch`).

A fetch that finds too little registers itself at its partitions. Whatever moves one of them (its high watermark, its
last stable offset, a leader change, its deletion) wakes it; it measures what is there of that one and, once all
together is enough, reads everything anew. Its time limit does the same whatever there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from broker.replicas.leader import Leader
from protocol.errors import KafkaError
from protocol.records.batch import CorruptRecordError
from storage.log.reads import ENOUGH_BYTES

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduler
    from broker.replicas.fetch_targets import FetchTarget
    from broker.replicas.fetching import FetchParameters, Reading, Results
    from broker.replicas.partition import Partition


class DelayedFetch:
    """A fetch that waits: `reply` is told the results once there is enough or its time is over, or `fail` why there
    are none. Neither is called once it was abandoned."""

    __slots__ = ("_fail", "_readable", "_reading", "_reply", "_timer", "is_over")

    def __init__(
        self,
        reading: Reading,
        scheduler: Scheduler,
        reply: Callable[[Results], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._reading = reading
        self._reply = reply
        self._fail = fail
        self.is_over = False
        found = reading.waited_for
        reading.forget()
        self._readable = Readable(reading) if len(found) > 1 else None  # of one there is nothing to sum up
        self._timer = scheduler.call_later(reading.parameters.max_wait_ms / 1000, self._complete)
        try:
            for place, (_, partition) in enumerate(found):
                partition.waiting.add(self, place)
        except MemoryError:
            self.abandon()
            raise
        self.recheck()

    def recheck(self, place: int | None = None) -> None:
        """Called whenever one of the partitions moved, or any may have: answer if there is enough now.

        It raises nothing: who moved the partition, a producer perhaps, has no part in what goes wrong here.
        """
        if self.is_over:
            return
        reading, readable = self._reading, self._readable
        try:
            if readable is None:
                [(target, partition)] = reading.waited_for
                parameters = reading.parameters
                is_enough = bytes_to_read(parameters, target, partition) >= parameters.min_bytes
            else:
                every = range(len(reading.waited_for))
                is_enough = readable.is_enough_with(every if place is None else (place,))
                if is_enough and place is not None:
                    is_enough = readable.is_enough_with(every)
        except (KafkaError, OSError, CorruptRecordError):
            is_enough = True  # reading finds the same fault, and says it with its partition
        except Exception as error:
            self.abandon()
            self._fail(error)
            return
        if is_enough:
            self._complete()

    def abandon(self) -> None:
        """It doesn't wait any more: it is answered, or its client has gone."""
        self.is_over = True
        self._timer.cancel()
        for _, partition in self._reading.waited_for:
            partition.waiting.discard(self)

    def _complete(self) -> None:
        if self.is_over:
            return
        self.abandon()
        try:
            self._reading.read()
        except Exception as error:
            self._fail(error)
        else:
            self._reply(self._reading.results)


class Readable:
    """How much there is to read of each partition that a fetch waits for, as it was when that last moved, and in all.

    A partition that loses what it had (its records are deleted) doesn't say so. Where there seems to be enough,
    measuring all of them anew tells.
    """

    __slots__ = ("_found", "_of_each", "_parameters", "_sum")

    def __init__(self, reading: Reading) -> None:
        self._parameters = reading.parameters
        self._found = reading.waited_for
        self._of_each = [0] * len(reading.waited_for)
        self._sum = 0

    def is_enough_with(self, places: Iterable[int]) -> bool:
        """Whether there is enough, once these are measured anew. Raises as `bytes_to_read`."""
        parameters, found, of_each = self._parameters, self._found, self._of_each
        for place in places:
            now = bytes_to_read(parameters, *found[place])
            self._sum += now - of_each[place]
            of_each[place] = now
        return self._sum >= parameters.min_bytes


def bytes_to_read(parameters: FetchParameters, target: FetchTarget, partition: Partition) -> int:
    """How much there is to read of a partition, ENOUGH_BYTES where there is something to be said besides.

    Raises KafkaError, OSError, CorruptRecordError: reading finds the same fault.
    """
    epoch = target.current_leader_epoch
    if partition.is_gone or (epoch >= 0 and epoch != partition.role.leader_epoch):
        return ENOUGH_BYTES
    if parameters.only_leader and not isinstance(partition.role, Leader):
        return ENOUGH_BYTES
    bound = parameters.bound(partition)
    offset = target.fetch_offset
    if offset >= bound:
        return ENOUGH_BYTES if offset > bound and offset > partition.log.log_end_offset else 0
    bytes_there = partition.log.available_bytes(offset, bound)
    if bytes_there == ENOUGH_BYTES:
        return (
            ENOUGH_BYTES  # the offset lies in an older segment: such a fetch waits only while it is throttled
        )
    return min(bytes_there, target.partition_max_bytes)

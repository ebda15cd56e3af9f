"""The Fetch that waits (Kafka: `DelayedFetch`).

A fetch that finds too little registers itself at its partitions. Whatever moves one of them (its high watermark, its
last stable offset, a leader change, its deletion) wakes it; it measures what is there and, once that is enough, reads
everything anew. Its time limit does the same whatever there is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker.replicas.leader import Leader
from protocol.errors import KafkaError
from protocol.records.batch import CorruptRecordError
from storage.log.reads import ENOUGH_BYTES

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduler
    from broker.replicas.fetch_sessions import FetchTarget
    from broker.replicas.fetching import FetchParameters, Reading, Results
    from broker.replicas.partition import Partition


class DelayedFetch:
    """A fetch that waits: `reply` is told the results once there is enough or its time is over, or `fail` why there
    are none. Neither is called once it was abandoned."""

    __slots__ = ("_fail", "_reading", "_reply", "_timer", "is_over")

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
        for _, partition in reading.found:
            partition.waiting.add(self)
        reading.forget()
        self._timer = scheduler.call_later(reading.parameters.max_wait_ms / 1000, self._complete)
        self.recheck()

    def recheck(self) -> None:
        """Called whenever one of the partitions moved: answer if there is enough now.

        It raises nothing: who moved the partition, a producer perhaps, has no part in what goes wrong here.
        """
        if self.is_over:
            return
        try:
            parameters = self._reading.parameters
            is_enough = bytes_to_read(parameters, self._reading.found) >= parameters.min_bytes
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
        for _, partition in self._reading.found:
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


def bytes_to_read(parameters: FetchParameters, found: Sequence[tuple[FetchTarget, Partition]]) -> int:
    """How much there is to read, ENOUGH_BYTES where there is something to be said besides.

    Raises KafkaError, OSError, CorruptRecordError: reading finds the same fault.
    """
    available = 0
    for target, partition in found:
        if partition.is_gone or not partition.leader_epoch_passes(target.current_leader_epoch):
            return ENOUGH_BYTES
        if parameters.only_leader and not isinstance(partition.role, Leader):
            return ENOUGH_BYTES
        bound = parameters.bound(partition)
        if target.fetch_offset > bound and target.fetch_offset > partition.log.log_end_offset:
            return ENOUGH_BYTES
        if target.fetch_offset < bound:
            bytes_there = partition.log.available_bytes(target.fetch_offset, bound)
            if bytes_there == ENOUGH_BYTES:
                return ENOUGH_BYTES  # the offset lies in an older segment: such a fetch never waits
            available += min(bytes_there, target.partition_max_bytes)
    return available

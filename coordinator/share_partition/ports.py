"""The ports of a share partition, besides its durable state (`coordinator.persister`), and its results."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, Protocol


class ShareRuntime(Protocol):
    """Timers; a part of `coordinator.ports.Runtime`."""

    def schedule(self, key: Hashable, delay_ms: int, callback: Callable[[], None]) -> None:
        """Call back once the delay has passed, unless cancelled. A timer of the same key is replaced."""
        ...

    def cancel(self, key: Hashable) -> None:
        """Forget the timer of this key, if there is one."""
        ...


class ShareSettings(NamedTuple):
    """A share group's settings, or the broker's if it has none of its own. They are read at each use."""

    record_lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    partition_max_record_locks: int = 2000
    renew_acknowledge_enable: bool = True
    auto_offset_reset: str = "latest"
    """latest, earliest, or by_duration:PnDTnHnMn.nS."""
    read_committed: bool = False
    dead_letter_topic: str = ""
    """The topic for rejected records, and for those delivered too often; empty for none."""


REJECTED = "Offset rejected by client."
EXHAUSTED = "Offset delivery count exceeded the threshold."


class DeadLetter(NamedTuple):
    """Consecutive offsets that are ARCHIVING, and the reason (Kafka: `ShareGroupDLQRecordParameter`)."""

    first_offset: int
    last_offset: int
    delivery_count: int
    cause: str
    """REJECTED or EXHAUSTED, as written to the dead letter queue."""


Bury = Callable[[Sequence[DeadLetter], Callable[[DeadLetter], None]], None]
"""Writes dead letters to their queue. The second argument is called once with each, in the same call or
later, when it is there or given up."""


def bury_nothing(letters: Sequence[DeadLetter], done: Callable[[DeadLetter], None]) -> None:
    """For groups without a dead letter queue: give them up."""
    for letter in letters:
        done(letter)


class FetchedBatch(NamedTuple):
    """One record batch that was read for an acquisition."""

    base_offset: int
    last_offset: int
    producer_id: int = -1
    is_transactional: bool = False
    is_abort_marker: bool = False


class AbortedFrom(NamedTuple):
    """An aborted transaction: a producer, and where its records begin, as readers of committed records get it
    from the log."""

    producer_id: int
    first_offset: int


class AcquiredRecords(NamedTuple):
    """Consecutive offsets that were handed out, as answers list them."""

    first_offset: int
    last_offset: int
    delivery_count: int

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.last_offset - self.first_offset + 1

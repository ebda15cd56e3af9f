"""What a share partition is given beside its durable state (`coordinator.persister`), and what it hands out."""

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
    """A share group's settings, or the broker's where it has none of its own. Asked for at each use."""

    record_lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    partition_max_record_locks: int = 2000
    renew_acknowledge_enable: bool = True
    auto_offset_reset: str = "latest"
    """latest, earliest, or by_duration:PnDTnHnMn.nS."""
    read_committed: bool = False
    dead_letter_topic: str = ""
    """What is rejected, or was delivered too often, goes there; empty: nowhere."""


REJECTED = "Offset rejected by client."
EXHAUSTED = "Offset delivery count exceeded the threshold."


class DeadLetter(NamedTuple):
    """Offsets in a row that are ARCHIVING, and what for (Kafka: `ShareGroupDLQRecordParameter`)."""

    first_offset: int
    last_offset: int
    delivery_count: int
    cause: str
    """REJECTED or EXHAUSTED, as the dead letter queue has it."""


Bury = Callable[[Sequence[DeadLetter], Callable[[DeadLetter], None]], None]
"""Has them written to the dead letter queue. The second argument is called once with each, in the same call or later:
it is there, or given up."""


def bury_nothing(letters: Sequence[DeadLetter], done: Callable[[DeadLetter], None]) -> None:
    """Without a dead letter queue: they are given up."""
    for letter in letters:
        done(letter)


class FetchedBatch(NamedTuple):
    """One record batch of what was read for an acquisition."""

    base_offset: int
    last_offset: int
    producer_id: int = -1
    is_transactional: bool = False
    is_abort_marker: bool = False


class AbortedFrom(NamedTuple):
    """From where on a producer's records were taken back, as the log tells readers of committed records."""

    producer_id: int
    first_offset: int


class AcquiredRecords(NamedTuple):
    """Offsets in a row that were handed out, as answers list them."""

    first_offset: int
    last_offset: int
    delivery_count: int

    @property
    def size(self) -> int:
        """How many offsets."""
        return self.last_offset - self.first_offset + 1

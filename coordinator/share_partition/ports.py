"""What a share partition is given: its durable state, timers, the group's settings."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, Protocol

from protocol.errors import KafkaError

NO_START_OFFSET = -1
"""The start in a state that was initialized, and never written to since."""

WhenDone = Callable[[KafkaError | None], None]
"""Called exactly once, with None or with what a client is told."""


class StateBatch(NamedTuple):
    """Offsets in a row that are in one state, as they are written and read (Kafka: `PersisterStateBatch`)."""

    first_offset: int
    last_offset: int
    delivery_state: int
    """A `RecordState`."""
    delivery_count: int


class ShareState(NamedTuple):
    """What is durable of a share partition (Kafka: `PartitionAllData`)."""

    state_epoch: int
    start_offset: int
    """NO_START_OFFSET: where to begin is the reader's to say."""
    batches: Sequence[StateBatch]
    """In the order of offsets, none over another."""


class Persister(Protocol):
    """The way to the share coordinator (Kafka: `Persister`).

    Each call is answered exactly once, in the same call or later, and never raises KafkaError: whatever goes wrong is
    an answer, with the code that the coordinator gave. What comes from one share partition is carried out in its order.
    """

    def read(
        self,
        group_id: str,
        topic_id: bytes,
        partition: int,
        leader_epoch: int,
        then: Callable[[ShareState | KafkaError], None],
    ) -> None:
        """What is durable. The coordinator refuses earlier leader epochs from now on."""
        ...

    def write(
        self,
        group_id: str,
        topic_id: bytes,
        partition: int,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
        then: WhenDone,
    ) -> None:
        """Make these batches durable, with the start and the number of records behind it that are done with.

        Refused with FENCED_STATE_EPOCH or FENCED_LEADER_EPOCH where somebody knows better by now.
        """
        ...


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

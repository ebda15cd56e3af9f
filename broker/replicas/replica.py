"""Another node's copy of a partition, as far as its leader knows it (Kafka: `Replica`, `ReplicaState`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.controller.image import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.log.partition_log import PartitionLog


UNKNOWN_OFFSET = -1
NO_BROKER_EPOCH = -1  # of a follower that says none, or hasn't fetched


class Replica:
    """How far its log is. It has caught up at the time of a fetch that asked for all that the leader had by then, or
    by the fetch before."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "fetched_ms",
        "has_fetched",
        "leader_end_offset",
        "log_end_offset",
        "log_start_offset",
        "node_id",
    )

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.leader_end_offset = 0
        """Where the leader's log ended when it fetched last."""
        self.fetched_ms = 0
        self.caught_up_ms = 0
        self.broker_epoch = NO_BROKER_EPOCH
        self.has_fetched = False

    def begin_epoch(
        self, now_ms: int, leader_end_offset: int, *, is_new_leader: bool, is_in_sync: bool
    ) -> None:
        """A leader epoch begins. To a new leader it has said nothing yet. Who is in sync has all of its time again to
        catch up; who isn't holds up nothing until it fetches."""
        since_ms = now_ms if is_in_sync else 0
        self.caught_up_ms = since_ms
        if is_new_leader:
            self.log_end_offset = self.log_start_offset = self.leader_end_offset = UNKNOWN_OFFSET
            self.fetched_ms = 0
            self.broker_epoch = NO_BROKER_EPOCH
            self.has_fetched = False
        else:
            self.leader_end_offset = leader_end_offset
            self.fetched_ms = since_ms

    def fetched(
        self,
        log_end_offset: int,
        log_start_offset: int,
        broker_epoch: int,
        *,
        leader_end_offset: int,
        now_ms: int,
    ) -> None:
        """It has all below `log_end_offset`, which it asks for."""
        if log_end_offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif log_end_offset >= self.leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.log_end_offset, self.log_start_offset = log_end_offset, log_start_offset
        self.leader_end_offset = max(leader_end_offset, self.leader_end_offset)
        self.fetched_ms = now_ms
        self.broker_epoch = broker_epoch
        self.has_fetched = True

    def is_caught_up(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Whether it has all that the leader has, or had it within that time."""
        return self.log_end_offset == leader_end_offset or now_ms - self.caught_up_ms <= max_lag_ms


# --------------------------------------------------------------------------------------------------------------
# A partition of which this node has a copy, and that another node leads, or nobody (Kafka: `Partition` of a follower).

NO_LEADER_EPOCH = -1


class Follower:
    """The role of a partition that isn't led here."""

    __slots__ = ("_fetches", "_log_start_moved", "is_over", "leader_epoch", "leader_id", "log")

    def __init__(
        self,
        log: PartitionLog,
        fetches: WaitingFetches,
        leader_id: int = NO_LEADER,
        leader_epoch: int = NO_LEADER_EPOCH,
        log_start_moved: Callable[[], object] = lambda: None,
    ) -> None:
        """`leader_id` is NO_LEADER where nobody leads it. `log_start_moved` is told that the leader's has."""
        self.log = log
        self._fetches = fetches
        self._log_start_moved = log_start_moved
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.is_over = False
        """Whether the partition has another role by now: what its leader still answers isn't taken."""

    def learn_log_start(self, of_leader: int) -> None:
        """What the leader has deleted goes here as well, as far as it is known to be committed."""
        log = self.log
        if of_leader > log.log_start_offset:
            log.delete_records_before(min(of_leader, log.high_watermark))
            self._log_start_moved()

    def learn_high_watermark(self, of_leader: int) -> None:
        """What the leader has committed is committed here as well, as far as this log has it. It never goes back."""
        log = self.log
        log.update_high_watermark(max(log.high_watermark, min(of_leader, log.log_end_offset)))
        if self._fetches:
            self._fetches.wake()


# --- The fetches that wait at one partition -------------------------------------------------------------------


class WaitingFetch(Protocol):
    """What a partition knows of a fetch that waits."""

    def recheck(self, place: int) -> None:
        """The partition moved that is at this place among those of the fetch. Raises nothing."""
        ...


class WaitingFetches(dict[WaitingFetch, int]):
    """Woken whenever the partition's offsets, its role or its leader change, or it goes: in the order in which they
    came, so that a run can be repeated. An empty dict is a third of an empty set, and most partitions are idle."""

    __slots__ = ()

    def add(self, fetch: WaitingFetch, place: int) -> None:
        """`place`: what the fetch knows the partition by."""
        self[fetch] = place

    def discard(self, fetch: WaitingFetch) -> None:
        """It waits no more, if it did."""
        self.pop(fetch, None)

    def wake(self) -> None:
        for fetch, place in [*self.items()]:
            fetch.recheck(place)

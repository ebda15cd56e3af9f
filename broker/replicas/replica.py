"""Another node's copy of a partition, as its leader knows it (Kafka: `Replica`, `ReplicaState`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.controller.image import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.log.partition_log import PartitionLog


UNKNOWN_OFFSET = -1
NO_BROKER_EPOCH = -1  # of a follower that names none, or hasn't fetched


class Replica:
    """How far a replica's log is.

    If a fetch asks for everything that the leader has, the replica is caught up as of that fetch. If it asks for
    everything that the leader had at the fetch before, the replica was caught up as of that one.
    """

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
        """The leader's log end offset at the replica's last fetch."""
        self.fetched_ms = 0
        self.caught_up_ms = 0
        self.broker_epoch = NO_BROKER_EPOCH
        self.has_fetched = False

    def begin_epoch(
        self, now_ms: int, leader_end_offset: int, *, is_new_leader: bool, is_in_sync: bool
    ) -> None:
        """Begin a leader epoch. A new leader knows nothing of its replicas. Those in sync get the full time
        again to catch up; others hold nothing back until they fetch."""
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
        """Note a fetch: the replica has everything below `log_end_offset`, from where it fetches."""
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
        """True if it has everything that the leader has, or had so within the last `max_lag_ms`."""
        return self.log_end_offset == leader_end_offset or now_ms - self.caught_up_ms <= max_lag_ms


# --------------------------------------------------------------------------------------------------------------
# A partition with a copy on this node that another node leads, or nobody (Kafka: `Partition` of a follower).

NO_LEADER_EPOCH = -1


class Follower:
    """The role of a partition that this node doesn't lead."""

    __slots__ = ("_fetches", "_log_start_moved", "is_over", "leader_epoch", "leader_id", "log")

    def __init__(
        self,
        log: PartitionLog,
        fetches: WaitingFetches,
        leader_id: int = NO_LEADER,
        leader_epoch: int = NO_LEADER_EPOCH,
        log_start_moved: Callable[[], object] = lambda: None,
    ) -> None:
        """`leader_id` is NO_LEADER if there is none. `log_start_moved` is called when the log start follows
        the leader's."""
        self.log = log
        self._fetches = fetches
        self._log_start_moved = log_start_moved
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.is_over = False
        """True if the partition has another role by now. Then later answers of the leader have no effect."""

    def learn_log_start(self, of_leader: int) -> None:
        """Delete what the leader has deleted, as far as it is known to be committed."""
        log = self.log
        if of_leader > log.log_start_offset:
            log.delete_records_before(min(of_leader, log.high_watermark))
            self._log_start_moved()

    def learn_high_watermark(self, of_leader: int) -> None:
        """Commit what the leader has committed, as far as this log has it. It never goes back."""
        log = self.log
        log.update_high_watermark(max(log.high_watermark, min(of_leader, log.log_end_offset)))
        if self._fetches:
            self._fetches.wake()


# --- The fetches that wait at a partition -------------------------------------------------------------------


class WaitingFetch(Protocol):
    """A waiting fetch, as a partition sees it."""

    def recheck(self, place: int) -> None:
        """Note that a partition moved. `place` is its place in the fetch. Raises nothing."""
        ...


class WaitingFetches(dict[WaitingFetch, int]):
    """Fetches to wake whenever the partition's offsets, its role or its leader change, or it goes away.

    They wake in the order in which they came, so runs are repeatable. An empty dict takes a third of the
    memory of an empty set, and most partitions are idle.
    """

    __slots__ = ()

    def add(self, fetch: WaitingFetch, place: int) -> None:
        """Add a fetch. `place` is the partition's place in that fetch."""
        self[fetch] = place

    def discard(self, fetch: WaitingFetch) -> None:
        """Remove a fetch, if it is there."""
        self.pop(fetch, None)

    def wake(self) -> None:
        for fetch, place in [*self.items()]:
            fetch.recheck(place)

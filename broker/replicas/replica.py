"""Another node's copy of a partition, as far as its leader knows it (Kafka: `Replica`, `ReplicaState`)."""

from __future__ import annotations

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

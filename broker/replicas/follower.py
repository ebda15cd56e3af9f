"""A partition of which this node has a copy, and that another node leads, or nobody (Kafka: `Partition` of a
follower)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.image import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.replicas.fetch_wakeups import WaitingFetches
    from storage.log.partition_log import PartitionLog

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

"""One partition that is fetched of its leader: how that stands, how it is asked for, and what its answer costs."""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING

from protocol.messages.fetch import EpochEndOffset, FetchPartition, PartitionData

if TYPE_CHECKING:
    from broker.replicas.replica import Follower
    from storage.log.partition_log import PartitionLog

log = logging.getLogger("barnabas.replicas")

OF_ITS_START, OF_ITS_END = -2, -1  # as timestamps of ListOffsets

_APPEND_COST, _BYTES_PER_COST = 10, 4096
_FILES_COST, _EPOCH_COST, _CUT_COST = 100, 40, 100
"""For its first records a log's files are made, for those of another epoch one is rewritten, for a cut some."""


class FollowState(Enum):
    """Of one partition."""

    FETCHING = "it is in the next Fetch"
    OUT_OF_RANGE = "its end isn't in the leader's log: where that ends and begins is asked for"
    PAUSED = "for a while"
    SYNCING = "until the disk has it as it was cut off"
    FAILED = "until there is another leader epoch: nothing more can come of this one"


class Followed:
    """In one epoch of its leader."""

    __slots__ = ("agrees", "lag", "name", "paused_until_s", "role", "state", "wanted")

    def __init__(self, name: str, role: Follower) -> None:
        self.name = name
        self.role = role
        self.state = FollowState.FETCHING
        self.paused_until_s = 0.0
        self.lag: int | None = None
        """Behind what was committed when records came last; None: nothing has come yet."""
        self.agrees = False
        """Whether its leader has said, in this epoch, that both logs are one up to the end of this one."""
        self.wanted = OF_ITS_END
        """Which end of the leader's log is asked for, where it is out of range."""

    @property
    def log(self) -> PartitionLog:
        return self.role.log

    @property
    def is_present(self) -> bool:
        """Whether its partition has this role still, and its disk hasn't refused for good."""
        role = self.role
        return not role.is_over and role.log.failure is None

    def awaits(self, asked: FetchPartition) -> bool:
        """Whether an answer to this is for the epoch and the end that it has now. The metadata may have given the
        partition another role a moment before whoever fetches it learns of that."""
        role = self.role
        return (
            self.state is FollowState.FETCHING
            and not role.is_over
            and (role.leader_epoch, role.log.log_end_offset)
            == (asked.current_leader_epoch, asked.fetch_offset)
        )

    def goes_on_as(self, role: Follower) -> bool:
        """Whether it is of the same epoch, and the same log: then who is in sync is all that may have changed (Kafka:
        `isNewLeaderEpoch` of `ReplicaManager.applyLocalFollowersDelta`)."""
        mine = self.role
        return (mine.leader_id, mine.leader_epoch) == (
            role.leader_id,
            role.leader_epoch,
        ) and mine.log is role.log

    def asked_for(self, index: int, max_bytes: int) -> FetchPartition:
        """From where its log ends now."""
        logged = self.log
        return FetchPartition(
            partition=index,
            current_leader_epoch=self.role.leader_epoch,
            fetch_offset=logged.log_end_offset,
            last_fetched_epoch=logged.leader_epochs.last,
            log_start_offset=logged.log_start_offset,
            partition_max_bytes=max_bytes,
        )

    def parting_offset(self, of_leader: EpochEndOffset) -> int:
        """Up to where its log is the leader's, as far as leader epochs tell. `of_leader`: where the epoch ends there
        that this log ends with, or the last one before (Kafka: `AbstractFetcherThread.getOffsetTruncationState`)."""
        logged = self.log
        epoch, end_offset = logged.leader_epochs.end_offset_for(of_leader.epoch, logged.log_end_offset)
        if epoch < 0:  # nothing here is as old
            return min(of_leader.end_offset, logged.log_end_offset)
        return end_offset if epoch != of_leader.epoch else min(end_offset, of_leader.end_offset)

    def learn_agreement(self, leader_start: int) -> None:
        """Its leader has found no parting of the logs, and its own begins there. It knows its last epochs alone: one
        that begins right behind this log tells nothing of it."""
        logged = self.log
        if leader_start < logged.log_end_offset and logged.leader_epochs.last >= 0:
            self.agrees = True

    def cut_off(self, offset: int, now_ms: int) -> None:
        """Its log, where its leader's parts from it. Raises as `PartitionLog.truncate_to`."""
        logged = self.log
        before, committed = logged.log_end_offset, logged.high_watermark
        logged.truncate_to(offset, now_ms)
        if offset < before:
            tell = log.warning if offset < committed else log.info
            name = f"{self.name}-{logged.partition}"
            tell("%s is cut off at offset %d of %d, as its leader's is", name, offset, before)

    def cost_of(self, data: PartitionData) -> int:
        """Of taking over what was answered, in what it costs where there is nothing new: some µs."""
        if not data.records:
            return 1 if data.diverging_epoch is None else _CUT_COST
        cost = _APPEND_COST + len(data.records) // _BYTES_PER_COST
        logged = self.log
        if not logged.log_end_offset:
            return cost + _FILES_COST
        return cost if logged.leader_epochs.latest == self.role.leader_epoch else cost + _EPOCH_COST

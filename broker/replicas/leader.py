"""A partition that this node leads (Kafka: `Partition` of a leader, `Replica`).

The leader knows the replicas and where each one's log ends, and from that, what is committed: all below the high
watermark. Who depends on that waits with `Leader.when_committed`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from coordinator.commit_waiters import CommitWaiter, CommitWaiters, Failed
from coordinator.ports import WhenCommitted
from protocol.errors import Error, KafkaError
from storage.log.log_config import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from broker.replicas.fetch_wakeups import WaitingFetches
    from storage.log.partition_log import PartitionLog

UNKNOWN_OFFSET = -1
_NO_OTHERS: Mapping[int, Replica] = {}


@lru_cache(maxsize=128)
def _in_sync(isr: tuple[int, ...]) -> frozenset[int]:
    """One set for all partitions that have the same replicas in sync: there are few of them, and many partitions."""
    return frozenset(isr)


class Replica:
    """Another node's copy, as far as the leader knows it (Kafka: `Replica`)."""

    __slots__ = ("log_end_offset", "log_start_offset", "node_id")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.forget()

    def forget(self) -> None:
        """What it said to an earlier leader doesn't count."""
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET


class Leader:
    """The role of a partition that is led here, from its first leader epoch here to the last one in a row."""

    __slots__ = (
        "_commits_alone",
        "_failed",
        "_fetches",
        "_is_resigned",
        "_syncs_by_messages",
        "_waiters",
        "_waits_for_sync",
        "is_under_min_isr",
        "isr",
        "leader_epoch",
        "leader_epoch_start_offset",
        "leader_id",
        "log",
        "others",
        "replica_count",
    )

    def __init__(self, node_id: int, log: PartitionLog, fetches: WaitingFetches, failed: Failed) -> None:
        """`fetches` are those that wait at the partition; `failed` learns of a broken invariant of somebody who
        waited for a commit."""
        self.leader_id = node_id
        self.leader_epoch = -1
        self.leader_epoch_start_offset = 0
        """Where the log ended when the epoch began."""
        self.log = log
        self.isr = _in_sync((node_id,))
        """The ids of the replicas in sync, as the controller knows them; the leader's is one."""
        self.others = _NO_OTHERS
        """The other replicas by id."""
        self.replica_count = 1
        self.is_under_min_isr = False
        """Whether too few are in sync: then nothing is committed, and nothing appended with acks=all."""
        self._fetches = fetches
        self._failed = failed
        self._waiters: CommitWaiters | None = None  # until somebody has to wait
        self._syncs_by_messages = self._waits_for_sync = self._is_resigned = False
        self._commits_alone = True  # so that a node that has no others pays nothing for the rule

    def lead(self, leader_epoch: int, replicas: Sequence[int], isr: Iterable[int]) -> None:
        """Take over what the metadata says (Kafka: `Partition.makeLeader`).

        A new leader epoch begins at the log end: that is known at once, and written with the first record
        (`storage.log.leader_epochs`). What the other replicas said before doesn't count then.
        """
        is_new = leader_epoch != self.leader_epoch
        if is_new:
            self.log.assign_leader_epoch(leader_epoch)
            self.leader_epoch = leader_epoch
            self.leader_epoch_start_offset = self.log.log_end_offset
        if len(replicas) > 1 or self.others:
            self.others = {
                node_id: self.others.get(node_id) or Replica(node_id)
                for node_id in replicas
                if node_id != self.leader_id
            }
            if is_new:
                for replica in self.others.values():
                    replica.forget()
        self.replica_count = len(replicas)
        self.isr = _in_sync(tuple(isr))
        self.configured()
        self.advance()

    def configured(self) -> None:
        """A setting of the topic changed, or the replicas."""
        in_sync = len(self.isr)
        self.is_under_min_isr = in_sync < self.min_isr
        self._syncs_by_messages = self.log.config.flush_messages != LONG_MAX
        self._commits_alone = (
            in_sync == 1
            and self.leader_id in self.isr
            and not self.is_under_min_isr
            and not self._syncs_by_messages
        )

    @property
    def min_isr(self) -> int:
        """`min.insync.replicas`, at most as many as there are replicas (Kafka: `effectiveMinIsr`)."""
        return min(self.log.config.min_insync_replicas, self.replica_count)

    @property
    def high_watermark_lags(self) -> bool:
        """Whether less is known to be committed than the leader before may have said: what it led to must be committed
        anew under this epoch before its high watermark means anything (KIP-207)."""
        return self.log.high_watermark < self.leader_epoch_start_offset

    # --- what is committed ----------------------------------------------------------------------------------

    def when_committed(self, offset: int, then: WhenCommitted) -> CommitWaiter | None:
        """`then(None)` once all below the offset is committed: in this call where it is already, else in the one that
        moves the high watermark there.

        `then(error)` where that isn't going to happen here: NOT_LEADER_OR_FOLLOWER where leadership is lost or the
        partition deleted, KAFKA_STORAGE_ERROR where its disk failed. Each is told once, in the order of offsets.
        What is returned can be given to `wait_no_more`; None where `then` was told.
        """
        waiters = self._waiters
        if waiters is None:
            if offset <= self.log.high_watermark:
                then(None)
                return None
            waiters = self._waiters = CommitWaiters(self._failed)
        return waiters.wait(offset, self.log.high_watermark, then)

    def wait_no_more(self, waiter: CommitWaiter) -> None:
        """`waiter` is what `when_committed` returned."""
        if self._waiters is not None:
            self._waiters.cancel(waiter)

    def advance(self) -> None:
        """After an append, or anything else that may move the high watermark: move it as far as the replicas in sync
        allow, then tell who waits (Kafka: `Partition.maybeIncrementLeaderHW`). Nothing happens once it has resigned."""
        if self._is_resigned:
            return  # the log is a follower's: what is committed, its leader says
        log = self.log
        offset = log.log_end_offset if self._commits_alone else self._committed_offset()
        log.update_high_watermark(offset)
        waiters = self._waiters
        if waiters is not None and waiters.heap:
            waiters.tell_committed(log.high_watermark)
        if self._fetches:
            self._fetches.wake()

    def _committed_offset(self) -> int:
        """The smallest log end of the replicas in sync. It never goes back, and stands still while they are too few
        (KIP-966): what fewer have could be lost, though it was acknowledged."""
        high_watermark = self.log.high_watermark
        if self.is_under_min_isr:
            return high_watermark
        ends = [self.others[node_id].log_end_offset for node_id in self.isr if node_id in self.others]
        ends.append(self._synced_end() if self._syncs_by_messages else self.log.log_end_offset)
        return max(high_watermark, min(ends))

    def _synced_end(self) -> int:
        """Where the leader's own log counts to: with `flush.messages` reached, that many are on the disk before anybody
        reads them or hears of them, as in Kafka, whose append syncs them."""
        log = self.log
        if not (log.flush_is_due and log.flush_wanted):
            return log.log_end_offset
        if not self._waits_for_sync:
            self._waits_for_sync = True
            log.when_flushed(log.log_end_offset, self._synced)
        return log.recovery_point

    def _synced(self, failure: Exception | None) -> None:
        """`failure` may be that of a log which isn't the partition's any more: the one of now is asked."""
        self._waits_for_sync = False
        log = self.log
        if failure is not None and (log.failure is not None or log.closed):
            self._tell_lost(KafkaError(Error.KAFKA_STORAGE_ERROR, str(failure)))
        elif not log.closed:  # else another log takes its place, and `Partition.replace_log` advances
            self.advance()

    def follower_fetched(self, node_id: int, log_end_offset: int, log_start_offset: int) -> None:
        """Another replica has all below `log_end_offset` (Kafka: `Partition.updateFollowerFetchState`)."""
        replica = self.others[node_id]
        replica.log_end_offset = log_end_offset
        replica.log_start_offset = log_start_offset
        self.advance()

    def resign(self, error: KafkaError) -> None:
        """The node doesn't lead the partition any more: who waits for a commit is told why."""
        self._is_resigned = True
        self._tell_lost(error)

    def _tell_lost(self, error: KafkaError) -> None:
        # made even where nobody waits: whoever comes from here on is told the same
        if self._waiters is None:
            self._waiters = CommitWaiters(self._failed)
        self._waiters.tell_lost(error)

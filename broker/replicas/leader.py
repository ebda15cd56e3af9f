"""A partition that this node leads (Kafka: `Partition` of a leader, `Replica`).

The leader knows the replicas and where each one's log ends. From that it knows what is committed: everything
below the high watermark. `Leader.when_committed` waits for it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from broker.replicas.replica import NO_BROKER_EPOCH
from coordinator.commit_waiters import CommitWaiter, CommitWaiters, Failed
from coordinator.ports import WhenCommitted
from protocol.errors import Error, KafkaError
from storage.log.log_config import LONG_MAX
from storage.log.log_state import CLIENT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from broker.replicas.in_sync_replicas import LedReplicas, PartitionKey, Replication
    from broker.replicas.replica import WaitingFetches
    from protocol.records.batch import BatchHeader, EndTransactionMarker
    from storage.log.log_state import AppendOrigin, AppendResult
    from storage.log.partition_log import PartitionLog
    from storage.producer_state import VerificationGuard


@lru_cache(maxsize=128)
def _in_sync(isr: tuple[int, ...]) -> frozenset[int]:
    """Share one set among all partitions with the same ISR: there are many partitions, but few ISRs."""
    return frozenset(isr)


class Leader:
    """The role of a partition while this node leads it, possibly over several leader epochs."""

    __slots__ = (
        "_commits_alone",
        "_deletions",
        "_failed",
        "_fetches",
        "_is_resigned",
        "_lags",
        "_syncs_by_messages",
        "_waiters",
        "_waits_for_sync",
        "is_under_min_isr",
        "isr",
        "leader_epoch",
        "leader_epoch_start_offset",
        "leader_id",
        "log",
        "replica_count",
        "replicas",
    )

    def __init__(self, node_id: int, log: PartitionLog, fetches: WaitingFetches, failed: Failed) -> None:
        """`fetches` are those that wait at the partition. `failed` gets a broken invariant that a callback
        for a commit raised."""
        self.leader_id = node_id
        self.leader_epoch = -1
        self.leader_epoch_start_offset = 0
        """The log end offset when the epoch began."""
        self.log = log
        self.isr = _in_sync((node_id,))
        """The ids of the ISR, as the controller knows it. The leader is one of them."""
        self.replicas: LedReplicas | None = None
        """The other replicas (`begin_replication`). None if there have never been any."""
        self.replica_count = 1
        self.is_under_min_isr = False
        """True if too few replicas are in sync. Then nothing is committed, and nothing appended with
        acks=all."""
        self._fetches = fetches
        self._failed = failed
        self._waiters: CommitWaiters | None = None  # None until someone has to wait
        self._deletions: tuple[Callable[[], None], ...] = ()
        self._syncs_by_messages = self._waits_for_sync = self._is_resigned = self._lags = False
        self._commits_alone = True  # so that a node without other replicas pays nothing for the rule

    def begin_replication(self, key: PartitionKey, common: Replication) -> None:
        """Prepare for replicas on other nodes. Does nothing if that was done."""
        if self.replicas is None:
            from broker.replicas.in_sync_replicas import LedReplicas

            self.replicas = LedReplicas(self.leader_id, key, common, self._isr_altered)

    def lead(
        self, leader_epoch: int, partition_epoch: int, replicas: Sequence[int], isr: Sequence[int]
    ) -> None:
        """Apply the metadata, unless an answer of the controller is newer (Kafka: `Partition.makeLeader`).

        A new leader epoch begins at the log end. It counts at once, and is written with the first record
        (`storage.log.leader_epochs`).
        """
        others = self.replicas
        if others is not None:
            end_offset, is_new_leader = self.log.log_end_offset, self.leader_epoch < 0
            if not others.follow(
                leader_epoch, partition_epoch, replicas, isr, end_offset, is_new_leader=is_new_leader
            ):
                return
        if leader_epoch != self.leader_epoch:
            self.log.assign_leader_epoch(leader_epoch)
            self.leader_epoch = leader_epoch
            self.leader_epoch_start_offset = self.log.log_end_offset
        self.replica_count = len(replicas)
        self._take_isr(isr)

    def _isr_altered(self) -> None:
        """Apply the controller's answer, which is ahead of the metadata."""
        if self.replicas is not None:
            self._take_isr(self.replicas.in_sync.isr)

    def _take_isr(self, isr: Collection[int]) -> None:
        self.isr = _in_sync(tuple(isr))
        self.configured()
        self.advance()

    def configured(self) -> None:
        """Apply changed settings of the topic, or changed replicas."""
        in_sync = len(self.isr)
        self.is_under_min_isr = in_sync < self.min_isr
        self._syncs_by_messages = self.log.config.flush_messages != LONG_MAX
        self._commits_alone = (
            self.replicas is None
            and in_sync == 1
            and self.leader_id in self.isr
            and not self.is_under_min_isr
            and not self._syncs_by_messages
        )

    @property
    def min_isr(self) -> int:
        """`min.insync.replicas`, but at most the number of replicas (Kafka: `effectiveMinIsr`)."""
        return min(self.log.config.min_insync_replicas, self.replica_count)

    @property
    def is_under_min_after_append(self) -> bool:
        """True if too few replicas had what was just committed. As in Kafka's maximal ISR, a replica that is
        about to join counts."""
        others = self.replicas
        return self.is_under_min_isr if others is None else len(others.in_sync.maximal_isr) < self.min_isr

    @property
    def high_watermark_lags(self) -> bool:
        """True if less is known to be committed than the previous leader may have reported. Its records have
        to be committed again in this epoch before its high watermark means anything (KIP-207)."""
        return self.log.high_watermark < self.leader_epoch_start_offset

    # --- appending ------------------------------------------------------------------------------------------

    def check_in_sync(self) -> None:
        """Check before an append with acks=all. Raises KafkaError (NOT_ENOUGH_REPLICAS) if too few replicas
        are in sync."""
        if self.is_under_min_isr:
            raise KafkaError(Error.NOT_ENOUGH_REPLICAS)

    def append(
        self,
        batch: bytearray | memoryview,
        now_ms: int,
        origin: AppendOrigin = CLIENT,
        header: BatchHeader | None = None,
        guard: VerificationGuard | None = None,
        marker: EndTransactionMarker | None = None,
    ) -> AppendResult:
        """Append a batch in the leader's epoch, and advance the high watermark (Kafka:
        `Partition.appendRecordsToLeader`).

        See `PartitionLog.append` for the parameters and errors. If it raises, nothing was written.
        """
        appended = self.log.append(
            batch,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            origin=origin,
            header=header,
            guard=guard,
            marker=marker,
        )
        if not appended.duplicate:
            if self._commits_alone and not self._fetches and self._waiters is None and not self._is_resigned:
                log = self.log  # the usual case: nobody waits
                if not log.producers.unreplicated:
                    log.high_watermark = log.log_end_offset
                    return appended
            try:
                self.advance()
            except MemoryError:
                # The batch is written, and nobody may take it for lost: `catch_up` advances.
                self._lags = True
        return appended

    def catch_up(self) -> None:
        """Advance if an append couldn't do so, or not fully, for lack of memory."""
        if self.is_behind:
            self.advance()
            self._lags = False

    @property
    def is_behind(self) -> bool:
        """True if `catch_up` may find something to do."""
        return self._lags or self.log.high_watermark < self.log.log_end_offset

    # --- committing -----------------------------------------------------------------------------------------

    def when_committed(self, offset: int, then: WhenCommitted) -> CommitWaiter | None:
        """Call `then(None)` once everything below the offset is committed: in this call if it already is,
        otherwise in the call that moves the high watermark there.

        Call `then(error)` if that won't happen here: NOT_LEADER_OR_FOLLOWER if leadership is lost or the
        partition deleted, KAFKA_STORAGE_ERROR if its disk failed. Each callback is called once, in the order
        of offsets.

        Returns a waiter for `wait_no_more`, or None if `then` was called.
        """
        waiters = self._waiters
        if waiters is None:
            if offset <= self.log.high_watermark:
                then(None)
                return None
            waiters = self._waiters = CommitWaiters(self._failed)
        return waiters.wait(offset, self.log.high_watermark, then)

    def wait_no_more(self, waiter: CommitWaiter) -> None:
        """Cancel a waiter that `when_committed` returned."""
        if self._waiters is not None:
            self._waiters.cancel(waiter)

    def advance(self) -> None:
        """Move the high watermark as far as the replicas in sync allow, and notify those who wait (Kafka:
        `Partition.maybeIncrementLeaderHW`). Call this after appends, and after anything else that may move
        it. After the leader has resigned, it does nothing."""
        if self._is_resigned:
            return  # the log belongs to a follower, whose leader decides what is committed
        log = self.log
        log.update_high_watermark(log.log_end_offset if self._commits_alone else self._committed_offset())
        waiters = self._waiters
        if waiters is not None and waiters.heap:
            waiters.tell_committed(log.high_watermark)
        if self._fetches:
            self._fetches.wake()

    def _committed_offset(self) -> int:
        """Return the smallest log end of the replicas in sync.

        It never goes back. It doesn't move while too few are in sync (KIP-966): what fewer replicas have
        could be lost, although it was acknowledged.
        """
        high_watermark = self.log.high_watermark
        if self.is_under_min_isr:
            return high_watermark
        end_offset = self._synced_end() if self._syncs_by_messages else self.log.log_end_offset
        others = self.replicas
        if others is not None:
            end_offset = others.committed_offset(end_offset, self.log.log_end_offset)
        return max(high_watermark, end_offset)

    def _synced_end(self) -> int:
        """Return up to where the leader's own log counts. Once `flush.messages` is reached, records have to
        be on the disk before anyone reads them or learns of them. In Kafka, the append syncs them."""
        log = self.log
        if not (log.flush_is_due and log.flush_wanted):
            return log.log_end_offset
        if not self._waits_for_sync:
            self._waits_for_sync = True
            try:
                log.when_flushed(log.log_end_offset, self._synced)
            except MemoryError:
                self._waits_for_sync = False
                raise
        return log.recovery_point

    def _synced(self, failure: Exception | None) -> None:
        """Handle the end of a sync. `failure` may concern a log that the partition no longer has, so check
        the current one."""
        self._waits_for_sync = False
        log = self.log
        if failure is not None and (log.failure is not None or log.closed):
            self._tell_lost(KafkaError(Error.KAFKA_STORAGE_ERROR, str(failure)))
        elif not log.closed:  # otherwise another log takes its place, and `Partition.replace_log` advances
            self.advance()

    def has_replica(self, node_id: int) -> bool:
        """True if another node has a replica."""
        return self.replicas is not None and node_id in self.replicas.others

    def follower_fetched(
        self, node_id: int, log_end_offset: int, log_start_offset: int, broker_epoch: int = NO_BROKER_EPOCH
    ) -> None:
        """Note that another replica has everything below `log_end_offset` (Kafka:
        `Partition.updateFollowerFetchState`).

        Raises KafkaError (NOT_LEADER_OR_FOLLOWER) if the fetch came from an earlier run of its broker.
        """
        others = self.replicas
        assert others is not None
        log = self.log
        has_moved = others.fetched(
            node_id, log_end_offset, log_start_offset, broker_epoch, leader_end_offset=log.log_end_offset
        )
        others.expand(node_id, max(log.high_watermark, self.leader_epoch_start_offset))
        if has_moved:
            self.advance()
        self.recheck_deletions()

    @property
    def low_watermark(self) -> int:
        """The lowest log start of the replicas on live brokers. See `Partition.low_watermark`."""
        start, others = self.log.log_start_offset, self.replicas
        return start if others is None else others.low_watermark(start)

    def await_deletion(self, recheck: Callable[[], None]) -> None:
        """Call `recheck` whenever a replica may have followed a deletion, and when this leader resigns."""
        self._deletions = (*self._deletions, recheck)

    def end_deletion(self, recheck: Callable[[], None]) -> None:
        """Stop calling `recheck`. Does nothing if it isn't registered."""
        self._deletions = tuple(each for each in self._deletions if each != recheck)

    def recheck_deletions(self) -> None:
        """Call all rechecks: a log may begin later, or not count any more."""
        for recheck in self._deletions:
            recheck()

    def shrink_isr(self) -> None:
        """Ask the controller to remove replicas that have lagged for too long."""
        if self.replicas is not None and not self._is_resigned:
            self.replicas.shrink(self.log.log_end_offset)

    def resign(self, error: KafkaError) -> None:
        """Stop leading the partition. Those who wait for a commit get the error."""
        self._is_resigned = True
        self._tell_lost(error)
        self.recheck_deletions()

    def _tell_lost(self, error: KafkaError) -> None:
        # created even if nobody waits, so that later callers get the same error
        if self._waiters is None:
            self._waiters = CommitWaiters(self._failed)
        self._waiters.tell_lost(error)

"""A partition that this node leads (Kafka: `Partition` of a leader, `Replica`).

The leader knows the replicas and where each one's log ends, and from that, what is committed: all below the high
watermark. Who depends on that waits with `Leader.when_committed`.
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

    from broker.replicas.in_sync_replicas import PartitionKey, Replication
    from broker.replicas.led_replicas import LedReplicas
    from broker.replicas.replica import WaitingFetches
    from protocol.records.batch import BatchHeader, EndTransactionMarker
    from storage.log.log_state import AppendOrigin, AppendResult
    from storage.log.partition_log import PartitionLog
    from storage.producer_state import VerificationGuard


@lru_cache(maxsize=128)
def _in_sync(isr: tuple[int, ...]) -> frozenset[int]:
    """One set for all partitions that have the same replicas in sync: there are few of them, and many partitions."""
    return frozenset(isr)


class Leader:
    """The role of a partition for as long as it is led here, be it over several leader epochs."""

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
        """`fetches` are those that wait at the partition; `failed` learns of a broken invariant of somebody who
        waited for a commit."""
        self.leader_id = node_id
        self.leader_epoch = -1
        self.leader_epoch_start_offset = 0
        """Where the log ended when the epoch began."""
        self.log = log
        self.isr = _in_sync((node_id,))
        """The ids of the replicas in sync, as the controller knows them; the leader's is one."""
        self.replicas: LedReplicas | None = None
        """The other ones (`begin_replication`); None as long as there have been none."""
        self.replica_count = 1
        self.is_under_min_isr = False
        """Whether too few are in sync: then nothing is committed, and nothing appended with acks=all."""
        self._fetches = fetches
        self._failed = failed
        self._waiters: CommitWaiters | None = None  # until somebody has to wait
        self._deletions: tuple[Callable[[], None], ...] = ()
        self._syncs_by_messages = self._waits_for_sync = self._is_resigned = self._lags = False
        self._commits_alone = True  # so that a node that has no others pays nothing for the rule

    def begin_replication(self, key: PartitionKey, common: Replication) -> None:
        """Other nodes are about to have replicas. Nothing happens where some have."""
        if self.replicas is None:
            from broker.replicas.led_replicas import LedReplicas

            self.replicas = LedReplicas(self.leader_id, key, common, self._isr_altered)

    def lead(
        self, leader_epoch: int, partition_epoch: int, replicas: Sequence[int], isr: Sequence[int]
    ) -> None:
        """Take over what the metadata says, unless the controller has answered more by now (Kafka:
        `Partition.makeLeader`).

        A new leader epoch begins at the log end: that is known at once, and written with the first record
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
        """The controller has answered, ahead of the metadata."""
        if self.replicas is not None:
            self._take_isr(self.replicas.in_sync.isr)

    def _take_isr(self, isr: Collection[int]) -> None:
        self.isr = _in_sync(tuple(isr))
        self.configured()
        self.advance()

    def configured(self) -> None:
        """A setting of the topic changed, or the replicas."""
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
        """`min.insync.replicas`, at most as many as there are replicas (Kafka: `effectiveMinIsr`)."""
        return min(self.log.config.min_insync_replicas, self.replica_count)

    @property
    def is_under_min_after_append(self) -> bool:
        """Whether too few had what was committed just now. A replica that is about to join the ISR counts, as in
        Kafka's maximal ISR."""
        others = self.replicas
        return self.is_under_min_isr if others is None else len(others.in_sync.maximal_isr) < self.min_isr

    @property
    def high_watermark_lags(self) -> bool:
        """Whether less is known to be committed than the leader before may have said: what it led to must be committed
        anew under this epoch before its high watermark means anything (KIP-207)."""
        return self.log.high_watermark < self.leader_epoch_start_offset

    # --- what is appended -----------------------------------------------------------------------------------

    def check_in_sync(self) -> None:
        """Before what needs acks=all: raises KafkaError (NOT_ENOUGH_REPLICAS) where too few are in sync."""
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
        """Append a batch in the leader's epoch, and let the high watermark follow (Kafka:
        `Partition.appendRecordsToLeader`). See `PartitionLog.append` for the parameters and what it raises:
        nothing is written then."""
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
                log = self.log  # as most often: nobody waits
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
        """Advance where too little memory kept it from being done, or from being done whole, with an append."""
        if self.is_behind:
            self.advance()
            self._lags = False

    @property
    def is_behind(self) -> bool:
        """Whether `catch_up` may find anything to do."""
        return self._lags or self.log.high_watermark < self.log.log_end_offset

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
        log.update_high_watermark(log.log_end_offset if self._commits_alone else self._committed_offset())
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
        end_offset = self._synced_end() if self._syncs_by_messages else self.log.log_end_offset
        others = self.replicas
        if others is not None:
            end_offset = others.committed_offset(end_offset, self.log.log_end_offset)
        return max(high_watermark, end_offset)

    def _synced_end(self) -> int:
        """Where the leader's own log counts to: with `flush.messages` reached, that many are on the disk before anybody
        reads them or hears of them, as in Kafka, whose append syncs them."""
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
        """`failure` may be that of a log which isn't the partition's any more: the one of now is asked."""
        self._waits_for_sync = False
        log = self.log
        if failure is not None and (log.failure is not None or log.closed):
            self._tell_lost(KafkaError(Error.KAFKA_STORAGE_ERROR, str(failure)))
        elif not log.closed:  # else another log takes its place, and `Partition.replace_log` advances
            self.advance()

    def has_replica(self, node_id: int) -> bool:
        """Whether another node has one."""
        return self.replicas is not None and node_id in self.replicas.others

    def follower_fetched(
        self, node_id: int, log_end_offset: int, log_start_offset: int, broker_epoch: int = NO_BROKER_EPOCH
    ) -> None:
        """Another replica has all below `log_end_offset` (Kafka: `Partition.updateFollowerFetchState`).

        Raises KafkaError (NOT_LEADER_OR_FOLLOWER) where that was an earlier run of its broker.
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
        """The lowest start of the logs of the replicas whose brokers are alive. See `Partition.low_watermark`."""
        start, others = self.log.log_start_offset, self.replicas
        return start if others is None else others.low_watermark(start)

    def await_deletion(self, recheck: Callable[[], None]) -> None:
        """It is called whenever a replica may have followed, and where this one leads no more."""
        self._deletions = (*self._deletions, recheck)

    def end_deletion(self, recheck: Callable[[], None]) -> None:
        """Nothing where it isn't awaited."""
        self._deletions = tuple(each for each in self._deletions if each != recheck)

    def recheck_deletions(self) -> None:
        """A log may begin later, or count no more."""
        for recheck in self._deletions:
            recheck()

    def shrink_isr(self) -> None:
        """Ask the controller to let those leave who have lagged for too long."""
        if self.replicas is not None and not self._is_resigned:
            self.replicas.shrink(self.log.log_end_offset)

    def resign(self, error: KafkaError) -> None:
        """The node doesn't lead the partition any more: who waits for a commit is told why."""
        self._is_resigned = True
        self._tell_lost(error)
        self.recheck_deletions()

    def _tell_lost(self, error: KafkaError) -> None:
        # made even where nobody waits: whoever comes from here on is told the same
        if self._waiters is None:
            self._waiters = CommitWaiters(self._failed)
        self._waiters.tell_lost(error)

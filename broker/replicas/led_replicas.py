"""The other replicas of a partition that this node leads: how far each one is, and which are in sync.

A replica joins the ISR once it has fetched all that may be committed. It leaves once it has lagged for
`replica.lag.time.max.ms`. The leader requests both, and the controller decides.

Source: `Partition` (updateFollowerFetchState, maybeExpandIsr, maybeShrinkIsr, maybeIncrementLeaderHW,
getOutOfSyncReplicas, submitAlterPartition); KIP-497, KIP-841, KIP-903.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker.replicas.in_sync_replicas import InSyncReplicas, IsrOutcome, LeaderAndIsr, WantedIsr
from broker.replicas.replica import NO_BROKER_EPOCH, Replica
from protocol.errors import Error, KafkaError
from protocol.waiting import carry_on

if TYPE_CHECKING:
    from broker.replicas.in_sync_replicas import PartitionKey, Replication
    from protocol.waiting import Later

log = logging.getLogger("barnabas.partitions")


class LedReplicas:
    """The other replicas of one partition while this node leads it, possibly over several leader epochs."""

    __slots__ = ("_common", "_key", "_moved", "in_sync", "leader_id", "others")

    def __init__(
        self, leader_id: int, key: PartitionKey, common: Replication, moved: Callable[[], None]
    ) -> None:
        """`moved` is called when the controller has changed the ISR, and the high watermark may follow."""
        self.leader_id = leader_id
        self.others: dict[int, Replica] = {}
        """By broker id."""
        self.in_sync = InSyncReplicas(self._epoch_of)
        self._key = key
        self._common = common
        self._moved = moved

    def _epoch_of(self, broker_id: int) -> int:
        if broker_id == self.leader_id:
            return self._common.own_epoch()
        replica = self.others.get(broker_id)
        return NO_BROKER_EPOCH if replica is None else replica.broker_epoch

    # --- following the metadata -----------------------------------------------------------------------------

    def follow(
        self,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        leader_end_offset: int,
        *,
        is_new_leader: bool,
    ) -> bool:
        """Apply the metadata. Returns False if an answer of the controller is ahead of it."""
        is_new_epoch = leader_epoch > self.in_sync.leader_epoch
        if not self.in_sync.follow(leader_epoch, partition_epoch, isr):
            return False
        self.others = {
            broker_id: self.others.get(broker_id) or Replica(broker_id)
            for broker_id in replicas
            if broker_id != self.leader_id
        }
        if is_new_epoch:
            now_ms = self._common.now_ms()
            for broker_id, replica in self.others.items():
                is_in_sync = broker_id in isr
                replica.begin_epoch(
                    now_ms, leader_end_offset, is_new_leader=is_new_leader, is_in_sync=is_in_sync
                )
        return True

    # --- committing -----------------------------------------------------------------------------------------

    def committed_offset(self, own_offset: int, leader_end_offset: int) -> int:
        """Return the smallest log end of the leader (`own_offset`), the maximal ISR, and replicas about to
        join. The latter count so that the high watermark doesn't run away from a replica that has almost
        caught up."""
        smallest, maximal_isr = own_offset, self.in_sync.maximal_isr
        for broker_id, replica in self.others.items():
            if replica.log_end_offset < smallest and (
                broker_id in maximal_isr or self._is_about_to_come(replica, leader_end_offset)
            ):
                smallest = replica.log_end_offset
        return smallest

    def _is_about_to_come(self, replica: Replica, leader_end_offset: int) -> bool:
        common = self._common
        return replica.is_caught_up(
            leader_end_offset, common.now_ms(), common.max_lag_ms()
        ) and self._may_be_in_sync(replica)

    def _may_be_in_sync(self, replica: Replica) -> bool:
        """True if the replica's broker is alive, and its current run has fetched."""
        broker = self._common.image.brokers.get(replica.node_id)
        return (
            replica.has_fetched
            and broker is not None
            and broker.is_active
            and replica.broker_epoch in (NO_BROKER_EPOCH, broker.broker_epoch)
        )

    def low_watermark(self, own_start: int) -> int:
        """Return the lowest log start of the leader and the replicas on live brokers."""
        brokers = self._common.image.brokers
        alive = (
            replica.log_start_offset
            for broker_id, replica in self.others.items()
            if (broker := brokers.get(broker_id)) is not None and not broker.fenced
        )
        return min((own_start, *alive))

    # --- joining and leaving --------------------------------------------------------------------------------

    def fetched(
        self,
        broker_id: int,
        log_end_offset: int,
        log_start_offset: int,
        broker_epoch: int,
        *,
        leader_end_offset: int,
    ) -> bool:
        """Note a fetch. Returns True if the replica's log end has moved: the high watermark may follow, and
        it may join the ISR.

        Raises KafkaError (NOT_LEADER_OR_FOLLOWER) if a later run of its broker is alive: what an earlier run
        fetched may be lost.
        """
        replica = self.others[broker_id]
        broker = self._common.image.brokers.get(broker_id)
        if broker is not None and not broker.fenced and NO_BROKER_EPOCH != broker_epoch < broker.broker_epoch:
            raise KafkaError(
                Error.NOT_LEADER_OR_FOLLOWER,
                f"broker {broker_id} fetches with epoch {broker_epoch}, but is registered with {broker.broker_epoch}",
            )
        before = replica.log_end_offset
        replica.fetched(
            log_end_offset,
            log_start_offset,
            broker_epoch,
            leader_end_offset=leader_end_offset,
            now_ms=self._common.now_ms(),
        )
        return log_end_offset != before

    def expand(self, broker_id: int, needed_offset: int) -> None:
        """Ask for the replica to join if it has everything below `needed_offset`: what is committed, and what
        was there when the leader epoch began."""
        replica = self.others[broker_id]
        if (
            broker_id not in self.in_sync.isr
            and replica.log_end_offset >= needed_offset
            and self._may_be_in_sync(replica)
        ):
            self._ask(self.in_sync.expand(broker_id))

    def shrink(self, end_offset: int) -> None:
        """Ask for replicas to leave that have lagged for too long behind the leader's `end_offset`."""
        now_ms, max_lag_ms = self._common.now_ms(), self._common.max_lag_ms()
        lagging = [
            broker_id
            for broker_id in self.in_sync.isr
            if broker_id != self.leader_id
            and not self._is_caught_up(broker_id, end_offset, now_ms, max_lag_ms)
        ]
        if lagging:
            self._ask(self.in_sync.shrink(lagging))

    def _is_caught_up(self, broker_id: int, end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        replica = self.others.get(broker_id)
        return replica is not None and replica.is_caught_up(end_offset, now_ms, max_lag_ms)

    def _ask(self, wanted: WantedIsr | None) -> None:
        if wanted is not None:
            try:
                altered = self._common.alter(self._key, wanted)
            except MemoryError:  # it can be requested again: the high watermark doesn't wait for an answer
                self.in_sync.not_asked(wanted)
                raise
            carry_on(self._follow_answer(wanted, altered))

    async def _follow_answer(self, wanted: WantedIsr, altered: Later[LeaderAndIsr]) -> None:
        answer: LeaderAndIsr | KafkaError
        try:
            answer = await altered
        except KafkaError as refusal:
            answer = refusal
        state = self.in_sync.state
        outcome = self.in_sync.answered(wanted, answer)
        self._common.changes.count(state, outcome)
        if outcome is IsrOutcome.AGAIN:
            log.warning("requesting a change of the ISR again: %s", answer)
            self._ask(wanted)
        elif outcome is IsrOutcome.COMMITTED:
            self._moved()

"""Which replicas of a partition that this node leads are in sync, and how far each one is.

A replica joins the ISR once it has fetched all that may be committed. It leaves once it has lagged for
`replica.lag.time.max.ms`. The leader requests both, and the controller decides (`LedReplicas`, below).

    COMMITTED → EXPANDING or SHRINKING → COMMITTED

A leader requests one change at a time. The metadata log ends a change, whatever the answer says later. While
the outcome is unknown, the stricter of both states counts. A replica that may have joined can hold back the
high watermark, and so can one that may have left. `leader.py` advances the high watermark.

Source: `CommittedPartitionState`, `PendingExpandIsr`, `PendingShrinkIsr`; `Partition` (updateFollowerFetchState,
maybeExpandIsr, maybeShrinkIsr, maybeIncrementLeaderHW, getOutOfSyncReplicas, prepareIsrExpand, prepareIsrShrink,
submitAlterPartition, handleAlterPartitionUpdate, handleAlterPartitionError); KIP-497, KIP-841, KIP-903.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from broker.replicas.replica import NO_BROKER_EPOCH, Replica
from protocol.errors import Error, KafkaError
from protocol.waiting import carry_on

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from protocol.waiting import Later


log = logging.getLogger("barnabas.partitions")

RECOVERED = 0  # LeaderRecoveryState

BrokerEpochOf: TypeAlias = Callable[[int], int]
"""Returns the broker epoch of a replica's last fetch, by broker id; −1 if it hasn't fetched from this leader.
For the leader's id, its own epoch."""


class LeaderAndIsr(NamedTuple):
    """The state of a partition in the controller's answer (Kafka: `LeaderAndIsr`)."""

    leader_id: int
    leader_epoch: int
    isr: Sequence[int]
    leader_recovery_state: int
    partition_epoch: int


class WantedIsr(NamedTuple):
    """A leader's request for a new ISR, with the state of the partition that it is based on."""

    leader_epoch: int
    isr: Sequence[tuple[int, int]]
    """Broker id, broker epoch (`BrokerEpochOf`)."""
    leader_recovery_state: int
    partition_epoch: int


class IsrState(Enum):
    """The state of the leader's request."""

    COMMITTED = "there is no request"
    EXPANDING = "a replica is about to join"
    SHRINKING = "replicas are about to leave"


class IsrOutcome(Enum):
    """The effect of an answer."""

    COMMITTED = "the controller's state applies, and the high watermark may follow"
    REVERTED = "nothing was changed, and another request may follow"
    UNKNOWN = "the metadata log will tell; until then there is no other request"
    AGAIN = "the same request goes again"
    STALE = "the answer is too late and has no effect"


REFUSALS: Mapping[Error, IsrOutcome] = {
    Error.OPERATION_NOT_ATTEMPTED: IsrOutcome.REVERTED,
    Error.INELIGIBLE_REPLICA: IsrOutcome.REVERTED,
    Error.UNKNOWN_TOPIC_OR_PARTITION: IsrOutcome.UNKNOWN,
    Error.UNKNOWN_TOPIC_ID: IsrOutcome.UNKNOWN,
    Error.FENCED_LEADER_EPOCH: IsrOutcome.UNKNOWN,
    Error.INVALID_UPDATE_VERSION: IsrOutcome.UNKNOWN,
    Error.INVALID_REQUEST: IsrOutcome.UNKNOWN,
    Error.NEW_LEADER_ELECTED: IsrOutcome.UNKNOWN,
}
"""Any other error means AGAIN. The first two say that the controller knows the same state as the leader, and
that nothing was changed."""


class InSyncReplicas:
    """The replicas in sync with one leader."""

    __slots__ = (
        "_asked",
        "_epoch_of",
        "_leader_recovery_state",
        "isr",
        "leader_epoch",
        "maximal_isr",
        "partition_epoch",
        "state",
    )

    def __init__(self, epoch_of: BrokerEpochOf) -> None:
        self._epoch_of = epoch_of
        self._asked: WantedIsr | None = None
        self._leader_recovery_state = RECOVERED
        self.state = IsrState.COMMITTED
        self.isr: Sequence[int] = ()
        """The broker ids in the controller's ISR. `min.insync.replicas` counts these."""
        self.maximal_isr: Sequence[int] = ()
        """The same, with the replica that is to join. The logs of these decide what is committed."""
        self.leader_epoch = -1
        self.partition_epoch = -1

    def follow(self, leader_epoch: int, partition_epoch: int, isr: Sequence[int]) -> bool:
        """Apply the metadata log's state, unless an answer of the controller was ahead of it. Returns whether
        it applied.

        A leader counts as recovered with whatever it has.
        """
        if partition_epoch < self.partition_epoch:
            return False
        self.leader_epoch = leader_epoch
        self._commit(partition_epoch, isr, RECOVERED)
        return True

    def expand(self, broker_id: int) -> WantedIsr | None:
        """Return the request for a replica to join, or None if it can't be made now."""
        if self.state is not IsrState.COMMITTED or broker_id in self.isr:
            return None
        self.maximal_isr = [*self.isr, broker_id]
        return self._ask(IsrState.EXPANDING, self.maximal_isr)

    def shrink(self, out_of_sync: Collection[int]) -> WantedIsr | None:
        """Return the request for replicas to leave, or None if it can't be made now."""
        stay = [broker_id for broker_id in self.isr if broker_id not in out_of_sync]
        if self.state is not IsrState.COMMITTED or len(stay) == len(self.isr):
            return None
        return self._ask(IsrState.SHRINKING, stay)

    def answered(self, asked: WantedIsr, answer: LeaderAndIsr | KafkaError) -> IsrOutcome:
        """Apply the answer to `asked`, which is what `expand` or `shrink` returned."""
        if asked is not self._asked:
            return IsrOutcome.STALE
        if isinstance(answer, KafkaError):
            outcome = REFUSALS.get(answer.error, IsrOutcome.AGAIN)
            if outcome is IsrOutcome.REVERTED:
                self._commit(self.partition_epoch, self.isr, self._leader_recovery_state)
            return outcome
        if answer.leader_epoch != self.leader_epoch or answer.partition_epoch < self.partition_epoch:
            return IsrOutcome.UNKNOWN
        self._commit(answer.partition_epoch, answer.isr, answer.leader_recovery_state)
        return IsrOutcome.COMMITTED

    def not_asked(self, wanted: WantedIsr) -> None:
        """Take back what `expand` or `shrink` returned: it couldn't be sent, so no controller knows of it."""
        if wanted is self._asked:
            self._commit(self.partition_epoch, self.isr, self._leader_recovery_state)

    def _ask(self, state: IsrState, isr: Sequence[int]) -> WantedIsr:
        self.state = state
        self._asked = WantedIsr(
            self.leader_epoch,
            [(broker_id, self._epoch_of(broker_id)) for broker_id in sorted(isr, key=_hash_order)],
            self._leader_recovery_state,
            self.partition_epoch,
        )
        return self._asked

    def _commit(self, partition_epoch: int, isr: Sequence[int], leader_recovery_state: int) -> None:
        self.state, self._asked = IsrState.COMMITTED, None
        self.partition_epoch, self._leader_recovery_state = partition_epoch, leader_recovery_state
        self.isr = self.maximal_isr = isr


def _hash_order(broker_id: int) -> tuple[int, int]:
    """The order in which Metadata lists an altered ISR: that of Scala's hash set with 16 buckets."""
    mixed = broker_id ^ broker_id >> 16
    return mixed & 15, mixed


class IsrChanges:
    """How many changes a broker's leaders were granted, and how many answers refused one, even if the same
    was requested again (Kafka: `ReplicaManager`, IsrExpandsPerSec, IsrShrinksPerSec, FailedIsrUpdatesPerSec).
    Late answers don't count."""

    __slots__ = ("expanded", "failed", "shrunk")

    def __init__(self) -> None:
        self.expanded = self.shrunk = self.failed = 0

    def count(self, wanted: IsrState, outcome: IsrOutcome) -> None:
        """Count an answer to a leader in the state `wanted`."""
        if outcome is IsrOutcome.STALE:
            return
        if outcome is not IsrOutcome.COMMITTED:
            self.failed += 1
        elif wanted is IsrState.EXPANDING:
            self.expanded += 1
        else:
            self.shrunk += 1


# --- What all leaders of a broker with other replicas have in common ----------------------------------------

PartitionKey: TypeAlias = "tuple[bytes, int]"
"""Topic id, number."""

Alter: TypeAlias = "Callable[[PartitionKey, WantedIsr], Later[LeaderAndIsr]]"
"""`AlterPartitionManager.submit`."""


class Replication(NamedTuple):
    """What all leaders share, besides what each knows of its own partition."""

    image: ClusterImage
    now_ms: Callable[[], int]
    max_lag_ms: Callable[[], int]
    """`replica.lag.time.max.ms`."""
    own_epoch: Callable[[], int]
    """The broker's epoch."""
    alter: Alter
    changes: IsrChanges


# --- How far the replicas are, who joins, and who leaves ------------------------------------------------------


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

"""The replicas in sync with a leader: as the controller sees them, and as the leader has requested.

    COMMITTED → EXPANDING or SHRINKING → COMMITTED

A leader requests one change at a time. The metadata log ends a change, whatever the answer says later. While
the outcome is unknown, the stricter of both states counts. A replica that may have joined can hold back the
high watermark, and so can one that may have left.

Source: `CommittedPartitionState`, `PendingExpandIsr`, `PendingShrinkIsr`; `Partition` (prepareIsrExpand,
prepareIsrShrink, submitAlterPartition, handleAlterPartitionUpdate, handleAlterPartitionError); KIP-497,
KIP-841.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from protocol.waiting import Later


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

    COMMITTED = "nothing is asked for"
    EXPANDING = "a replica is to come in"
    SHRINKING = "replicas are to leave"


class IsrOutcome(Enum):
    """The effect of an answer."""

    COMMITTED = "it is as the controller says, which the high watermark may follow"
    REVERTED = "nothing was changed, and something else may be asked for"
    UNKNOWN = "the metadata log is going to say it; until then nothing is asked for"
    AGAIN = "the same is to be asked for again"
    STALE = "the answer comes too late to count"


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

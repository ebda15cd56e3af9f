"""Who is in sync with a leader: as its controller has it, and as the leader has asked for it to be.

    COMMITTED → EXPANDING or SHRINKING → COMMITTED

One change is asked for at a time. What the metadata log says ends it, whatever is answered later. While it isn't known
what became of a change the stricter of both counts: who may have come holds up what is committed, and who may have
left still does.
Source: `CommittedPartitionState`, `PendingExpandIsr`, `PendingShrinkIsr`; `Partition` (prepareIsrExpand,
prepareIsrShrink, submitAlterPartition, handleAlterPartitionUpdate, handleAlterPartitionError); KIP-497, KIP-841.
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
"""By broker id: the broker epoch with which it fetched last, −1 where it hasn't from this leader. The leader's own."""


class LeaderAndIsr(NamedTuple):
    """How a partition is, as its controller says (Kafka: `LeaderAndIsr`)."""

    leader_id: int
    leader_epoch: int
    isr: Sequence[int]
    leader_recovery_state: int
    partition_epoch: int


class WantedIsr(NamedTuple):
    """What a leader asks for, and of which state of the partition."""

    leader_epoch: int
    isr: Sequence[tuple[int, int]]
    """Broker id, broker epoch (`BrokerEpochOf`)."""
    leader_recovery_state: int
    partition_epoch: int


class IsrState(Enum):
    """What the leader knows."""

    COMMITTED = "nothing is asked for"
    EXPANDING = "a replica is to come in"
    SHRINKING = "replicas are to leave"


class IsrOutcome(Enum):
    """What comes of an answer."""

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
"""Any other error: AGAIN. By the first two the controller says that it knows the partition as the leader does, and that
no controller has changed it."""


class InSyncReplicas:
    """Of one leader."""

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
        """The broker ids of those that the controller has in sync: what `min.insync.replicas` counts."""
        self.maximal_isr: Sequence[int] = ()
        """With the one who is to come in: whose logs count for what is committed."""
        self.leader_epoch = -1
        self.partition_epoch = -1

    def follow(self, leader_epoch: int, partition_epoch: int, isr: Sequence[int]) -> bool:
        """What the metadata log says: it counts, unless an answer of the controller was ahead of it. A leader takes
        what is there for recovered. Returns whether it counts."""
        if partition_epoch < self.partition_epoch:
            return False
        self.leader_epoch = leader_epoch
        self._commit(partition_epoch, isr, RECOVERED)
        return True

    def expand(self, broker_id: int) -> WantedIsr | None:
        """What to ask for so that a replica comes in; None where that isn't to be asked for now."""
        if self.state is not IsrState.COMMITTED or broker_id in self.isr:
            return None
        self.maximal_isr = [*self.isr, broker_id]
        return self._ask(IsrState.EXPANDING, self.maximal_isr)

    def shrink(self, out_of_sync: Collection[int]) -> WantedIsr | None:
        """What to ask for so that replicas leave; None where that isn't to be asked for now."""
        stay = [broker_id for broker_id in self.isr if broker_id not in out_of_sync]
        if self.state is not IsrState.COMMITTED or len(stay) == len(self.isr):
            return None
        return self._ask(IsrState.SHRINKING, stay)

    def answered(self, asked: WantedIsr, answer: LeaderAndIsr | KafkaError) -> IsrOutcome:
        """`asked` is what `expand` or `shrink` returned."""
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
        """What `expand` or `shrink` returned can't be asked for, and no controller knows of it."""
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
    """The order in which Metadata lists an ISR that was altered: that of Scala's hash set of it, of 16 buckets."""
    mixed = broker_id ^ broker_id >> 16
    return mixed & 15, mixed


class IsrChanges:
    """How many a broker's leaders were granted, and how many answers said that there was none, those among them after
    which the same was asked for again (Kafka: `ReplicaManager`, IsrExpandsPerSec, IsrShrinksPerSec,
    FailedIsrUpdatesPerSec). An answer that comes too late counts for nothing."""

    __slots__ = ("expanded", "failed", "shrunk")

    def __init__(self) -> None:
        self.expanded = self.shrunk = self.failed = 0

    def count(self, wanted: IsrState, outcome: IsrOutcome) -> None:
        """What a leader in the state `wanted` was answered."""
        if outcome is IsrOutcome.STALE:
            return
        if outcome is not IsrOutcome.COMMITTED:
            self.failed += 1
        elif wanted is IsrState.EXPANDING:
            self.expanded += 1
        else:
            self.shrunk += 1


# --- What the leaders of one broker have in common where their partitions have other replicas -----------------

PartitionKey: TypeAlias = "tuple[bytes, int]"
"""Topic id, number."""

Alter: TypeAlias = "Callable[[PartitionKey, WantedIsr], Later[LeaderAndIsr]]"
"""`AlterPartitionManager.submit`."""


class Replication(NamedTuple):
    """Beside what each leader knows of its own partition."""

    image: ClusterImage
    now_ms: Callable[[], int]
    max_lag_ms: Callable[[], int]
    """`replica.lag.time.max.ms`."""
    own_epoch: Callable[[], int]
    """The broker's."""
    alter: Alter
    changes: IsrChanges

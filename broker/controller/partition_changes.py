"""What becomes of a partition: from its image and what is wanted of it to the record of the change.

In Kafka's order: a reassignment is completed where it can be, those who leave the ISR stay eligible while it is too
small (KIP-966), a leader is elected, and then it is told what differs. Pure functions. Between the beginning of a
reassignment and its end (KIP-455) a partition has the wanted replicas and, behind them, those that are to go; it is
done when all that came are in sync.
Source: `PartitionChangeBuilder`, `PartitionReassignmentReplicas`, `PartitionReassignmentRevert`. The builder's
setting `useLastKnownLeaderInBalancedRecovery` is always on outside of tests, so that LastKnownElr is never more than
the last leader.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple, TypeAlias, TypeVar

from broker.controller.image import MIGRATING, NO_LEADER, NO_LEADER_CHANGE, PartitionImage
from broker.controller.metadata_versions import DIRECTORIES_SINCE
from coordinator.java.maps import INITIAL_CAPACITY, JavaSet
from protocol.messages.metadata_records import PartitionChangeRecord


class Reassignment(NamedTuple):
    """A partition's replicas on the way: all of them, and which of these come and go."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]

    def completed(self, isr: Sequence[int]) -> Completed | None:
        """What it comes to with these in sync; None where it isn't under way, or has to go on.

        Where the partition is to have fewer replicas, all that stay have to be in sync: else it could end with fewer in
        sync than there are now.
        """
        if not (self.adding or self.removing):
            return None
        left = Completed(
            [replica for replica in self.replicas if replica not in self.removing],
            [replica for replica in isr if replica not in self.removing],
        )
        if not left.replicas:
            return None
        awaited = [*self.adding]
        if len(self.adding) < len(self.removing):
            awaited += left.replicas
        return left if {*left.isr}.issuperset(awaited) else None


class Completed(NamedTuple):
    """Replicas, and those in sync, of a partition that has been reassigned."""

    replicas: list[int]
    isr: list[int]


class Reverted(NamedTuple):
    """Replicas, and those in sync, of a partition that is what it was. `unclean`: nobody of these was in sync."""

    replicas: list[int]
    isr: list[int]
    unclean: bool


def is_under_way(partition: PartitionImage) -> bool:
    """Whether the partition is being reassigned."""
    return bool(partition.adding_replicas or partition.removing_replicas)


def towards(wanted: Sequence[int], replicas: Sequence[int]) -> Reassignment:
    """From these replicas to the wanted ones."""
    removing = sorted({*replicas}.difference(wanted))
    return Reassignment([*wanted, *removing], sorted({*wanted}.difference(replicas)), removing)


def reverted(partition: PartitionImage) -> Reverted:
    """Without those that came; who was to go stays. With nobody of them in sync the first one is taken to be."""
    came = partition.adding_replicas
    replicas = [replica for replica in partition.replicas if replica not in came]
    isr = [replica for replica in partition.isr if replica not in came]
    return Reverted(replicas, isr or replicas[:1], unclean=not isr)


# --- The change ---------------------------------------------------------------------------------------------

_Entry = TypeVar("_Entry", int, bytes)

RECOVERED, RECOVERING = 0, 1
"""LeaderRecoveryState: after an unclean election the leader is RECOVERING until it says that it no longer is."""

NO_RECOVERY_CHANGE = -1

SHRINKS_KEEP_THE_EPOCH_SINCE = 12
"""metadata.version 3.6-IV0. Before it, brokers relied on a new leader epoch where the ISR shrank (KAFKA-15021)."""


class Election(Enum):
    """Who may lead. Each ends with none where nobody of these is to be had: see `ELECTIONS`."""

    PREFERRED = auto()
    """The first replica; else whoever leads, or another one in sync."""
    ONLINE = auto()
    """Whoever leads, or another one in sync."""
    UNCLEAN = auto()
    """The same; else any replica, whatever it lacks."""


class TopicIdPartition(NamedTuple):
    """A partition as records name it."""

    topic_id: bytes
    partition_id: int


class Wish(NamedTuple):
    """What is wanted of a partition. None leaves it as it is."""

    isr: list[int] | None = None
    replicas: list[int] | None = None
    adding: list[int] | None = None
    removing: list[int] | None = None
    directories: Mapping[int, bytes] | None = None
    """The ids of those that replicas are in from now on, by broker."""
    leader_recovery_state: int | None = None
    election: Election = Election.ONLINE
    unclean_shutdown: Collection[int] = ()
    """Brokers that may have lost what they had: none of them stays eligible."""


class Terms(NamedTuple):
    """What holds for every partition of a topic."""

    metadata_version: int
    elr_enabled: bool
    min_isr: int
    """min.insync.replicas, at most the number of replicas."""
    accepts: Callable[[PartitionImage, int], bool]
    """Whether the broker could lead the partition, be it in sync or not."""
    default_directory: Callable[[int], bytes]
    """The directory id of a replica that is new on the broker."""
    election: Election = Election.ONLINE
    """The one that keeps a partition online: UNCLEAN where the topic's settings allow it."""


def partition_change(
    key: TopicIdPartition, partition: PartitionImage, wish: Wish, terms: Terms
) -> PartitionChangeRecord | None:
    """The record that makes it so, as far as can be; None where nothing changes.

    A new leader epoch, by `leader` being there: with another leader, with a replica that goes, and before
    `SHRINKS_KEEP_THE_EPOCH_SINCE` with a smaller ISR.
    """
    target = _Target(partition, wish, terms)
    target.complete_reassignment()
    target.find_eligible()
    target.elect(wish.election)
    target.renew_epoch_of_replicas()
    elr = target.changed_elr()
    target.keep_isr()
    target.renew_epoch_of_isr()
    last_known = target.changed_last_known()
    if wish.leader_recovery_state not in (None, partition.leader_recovery_state):
        target.recovery_state = wish.leader_recovery_state
    record = PartitionChangeRecord.of(
        partition_id=key.partition_id,
        topic_id=key.topic_id,
        isr=target.new_isr,
        leader=target.new_leader,
        replicas=_changed(target.replicas, partition.replicas) if target.replicas else None,
        removing_replicas=_changed(target.removing, partition.removing_replicas),
        adding_replicas=_changed(target.adding, partition.adding_replicas),
        leader_recovery_state=target.recovery_state,
        directories=target.changed_directories(wish.directories),
        eligible_leader_replicas=elr,
        last_known_elr=last_known,
    )
    return None if is_no_change(record) else record


def is_no_change(record: PartitionChangeRecord) -> bool:
    """Whether it would change the partition epoch alone."""
    return (
        record.leader == NO_LEADER_CHANGE
        and record.isr is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
        and record.replicas is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.leader_recovery_state == NO_RECOVERY_CHANGE
        and record.directories is None
    )


class _Target:
    """What a partition is to be, and what of it is new, while that is found out."""

    __slots__ = (
        "_partition",
        "_terms",
        "_unclean_shutdown",
        "adding",
        "elr",
        "isr",
        "new_isr",
        "new_leader",
        "recovery_state",
        "removing",
        "replicas",
    )

    def __init__(self, partition: PartitionImage, wish: Wish, terms: Terms) -> None:
        self._partition = partition
        self._terms = terms
        self._unclean_shutdown = wish.unclean_shutdown
        self.isr = partition.isr if wish.isr is None else wish.isr
        self.elr = partition.elr
        self.replicas = partition.replicas if wish.replicas is None else wish.replicas
        self.adding = partition.adding_replicas if wish.adding is None else wish.adding
        self.removing = partition.removing_replicas if wish.removing is None else wish.removing
        self.new_isr: list[int] | None = None
        self.new_leader = NO_LEADER_CHANGE
        self.recovery_state = NO_RECOVERY_CHANGE

    def complete_reassignment(self) -> None:
        if self.adding or self.removing:
            completed = Reassignment(self.replicas, self.adding, self.removing).completed(self.isr)
            if completed is not None:
                self.replicas, self.isr = completed
                self.adding = self.removing = []

    def find_eligible(self) -> None:
        """Whoever was in sync while too few are; among them may be one that is no replica any more, as in Kafka."""
        if not self._terms.elr_enabled:
            return
        if len(self.isr) >= self._terms.min_isr:
            self.elr = []
        else:
            were = [*self.elr, *self._partition.isr]
            are = [each for each in were if each not in self.isr and each not in self._unclean_shutdown]
            if len(are) > 1:
                are = [each for each in _in_java_order(self.elr, self._partition.isr) if each in are]
            self.elr = are

    def elect(self, election: Election) -> None:
        leader, is_unclean = self._elected(election)
        if leader == self._partition.leader:
            return
        self.new_leader = leader
        if leader in self.elr:
            self.isr = [leader]
            self.elr = [replica for replica in self.elr if replica != leader]
        if is_unclean:
            self.new_isr = [leader]
            if self._partition.leader_recovery_state != RECOVERING:
                self.recovery_state = RECOVERING

    def _elected(self, election: Election) -> tuple[int, bool]:
        """The broker id, and whether it may lack what was acknowledged."""
        for candidate, is_unclean in ELECTIONS[election]:
            leader = candidate(self)
            if leader != NO_LEADER:
                return leader, is_unclean
        return NO_LEADER, False

    def renew_epoch_of_replicas(self) -> None:
        if self.new_leader == NO_LEADER_CHANGE and not _has_all(self.replicas, self._partition.replicas):
            self.new_leader = self._partition.leader

    def changed_elr(self) -> list[int] | None:
        """Nobody is eligible beside who was elected uncleanly."""
        if self.new_isr is not None or not self._terms.elr_enabled:
            self.elr = []
        return _changed(self.elr, self._partition.elr)

    def keep_isr(self) -> None:
        """Without eligible replicas the last ones stay in sync, since nobody else would know of them."""
        if self.new_isr is None and (self.isr or self._terms.elr_enabled):
            self.new_isr = _changed(self.isr, self._partition.isr)

    def renew_epoch_of_isr(self) -> None:
        if (
            self._terms.metadata_version < SHRINKS_KEEP_THE_EPOCH_SINCE
            and self.new_leader == NO_LEADER_CHANGE
            and self.new_isr is not None
            and not _has_all(self.new_isr, self._partition.isr)
        ):
            self.new_leader = self._partition.leader

    def changed_last_known(self) -> list[int] | None:
        """Who led when nobody could any more. It is −1 where a replica went after that, as in Kafka."""
        if not self._terms.elr_enabled:
            return None
        known = self._partition.last_known_elr
        if self.new_leader == NO_LEADER:
            return None if known else [self._partition.leader]
        return [] if known and self.new_leader != NO_LEADER_CHANGE else None

    def changed_directories(self, wanted: Mapping[int, bytes] | None) -> list[bytes] | None:
        """They follow the replicas."""
        partition, replicas = self._partition, self.replicas
        if wanted is None and replicas == partition.replicas:
            return None
        if not replicas or self._terms.metadata_version < DIRECTORIES_SINCE:
            return None
        before = directories_of(partition)
        named = dict(zip(partition.replicas, before, strict=True))
        named.update(wanted or ())
        default = self._terms.default_directory
        return _changed(
            [named[replica] if replica in named else default(replica) for replica in replicas], before
        )

    # --- candidates: one that may lead, or NO_LEADER ----------------------------------------------------------

    def preferred_replica(self) -> int:
        for preferred in self.replicas[:1]:
            if self._may_lead(preferred):
                return preferred
        return NO_LEADER

    def present_leader(self) -> int:
        leader = self._partition.leader
        return leader if self._may_lead(leader) else NO_LEADER

    def first_in_sync(self) -> int:
        """In the order of the replicas."""
        for replica in self.replicas:
            if self._may_lead(replica):
                return replica
        return NO_LEADER

    def last_known_leader(self) -> int:
        """With nobody left who is sure to have all, who led last is likeliest to."""
        if self.isr or self.elr or not self._terms.elr_enabled or len(self._partition.last_known_elr) != 1:
            return NO_LEADER
        leader = self._partition.last_known_elr[0]
        return leader if self._terms.accepts(self._partition, leader) else NO_LEADER

    def first_online(self) -> int:
        """In the order of the replicas."""
        for replica in self.replicas:
            if self._terms.accepts(self._partition, replica):
                return replica
        return NO_LEADER

    def _may_lead(self, replica: int) -> bool:
        """Whether it is in sync, or with nobody in sync eligible, and could lead."""
        has_all = replica in self.isr if self.isr else replica in self.elr
        return has_all and self._terms.accepts(self._partition, replica)


Candidate: TypeAlias = Callable[[_Target], int]

_PRESENT = (_Target.present_leader, False)
_IN_SYNC = (_Target.first_in_sync, False)
_LAST_KNOWN = (_Target.last_known_leader, True)

ELECTIONS: Mapping[Election, tuple[tuple[Candidate, bool], ...]] = {
    Election.PREFERRED: ((_Target.preferred_replica, False), _PRESENT, _IN_SYNC, _LAST_KNOWN),
    Election.ONLINE: (_PRESENT, _IN_SYNC, _LAST_KNOWN),
    Election.UNCLEAN: (_PRESENT, _IN_SYNC, _LAST_KNOWN, (_Target.first_online, True)),
}
"""Who is asked in turn, the first that may lead being elected; and whether it may lack what was acknowledged."""


def directories_of(partition: PartitionImage) -> list[bytes]:
    """The directory id of each replica, in their order: MIGRATING where records don't say it."""
    count = len(partition.replicas)
    return [*partition.directories[:count], *[MIGRATING] * (count - len(partition.directories))]


def _in_java_order(first: list[int], then: list[int]) -> list[int]:
    """Both, each number once, as a `HashSet` of the first that was given the others walks them."""
    if max(first, default=0) < INITIAL_CAPACITY > max(then, default=0):
        return sorted({*first, *then})  # each has a bucket of its own
    together: JavaSet[int] = JavaSet.of(first)
    together.update(then)
    return [*together]


def _has_all(these: list[int], those: list[int]) -> bool:
    return these == those or {*these}.issuperset(those)


def _changed(now: list[_Entry], before: list[_Entry]) -> list[_Entry] | None:
    return None if now == before else now

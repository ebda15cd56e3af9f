"""Changes of partitions: a partition's image and a requested change become a record.

In Kafka's order: complete a reassignment if possible; keep replicas that leave the ISR eligible while the ISR
is too small (KIP-966); elect a leader; and record the differences. Pure functions. During a reassignment
(KIP-455), a partition has the wanted replicas and, after them, those to remove. It ends once all added
replicas are in sync.

Source: `PartitionChangeBuilder`, `PartitionReassignmentReplicas`, `PartitionReassignmentRevert`. Outside of
tests the builder's setting `useLastKnownLeaderInBalancedRecovery` is always on, so LastKnownElr is never more
than the last leader.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from broker.controller.config_decisions import MIN_INSYNC_REPLICAS, is_elr_enabled
from broker.controller.image import (
    BROKER_RESOURCE,
    LOST,
    MIGRATING,
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERING,
    UNASSIGNED,
    BrokerImage,
    ClusterImage,
    PartitionImage,
)
from broker.controller.metadata_versions import DIRECTORIES_SINCE, METADATA_VERSION
from broker.controller.replica_directories import directory_of
from broker.controller.replica_placer import default_directory
from coordinator.java.maps import INITIAL_CAPACITY, JavaSet
from protocol.errors import Error, KafkaError
from protocol.messages.metadata_records import PartitionChangeRecord
from protocol.waiting import Pause, Waiting, turn
from protocol.wire.schema import Message

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.controller.image import TopicImage


class Reassignment(NamedTuple):
    """A partition's replicas during a reassignment: all of them, and those that are being added and
    removed."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]

    def completed(self, isr: Sequence[int]) -> Completed | None:
        """Return the end of the reassignment with this ISR. None if it isn't under way or can't end yet.

        If the partition will have fewer replicas, all that stay have to be in sync. Otherwise it could end
        with fewer in sync than now.
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
    """The replicas and the ISR after a reassignment."""

    replicas: list[int]
    isr: list[int]


class Reverted(NamedTuple):
    """The replicas and the ISR after a cancelled reassignment. `unclean` means that none of these replicas
    was in sync."""

    replicas: list[int]
    isr: list[int]
    unclean: bool


def is_under_way(partition: PartitionImage) -> bool:
    """True if the partition is being reassigned."""
    return bool(partition.adding_replicas or partition.removing_replicas)


def towards(wanted: Sequence[int], replicas: Sequence[int]) -> Reassignment:
    """Return the reassignment from these replicas to the wanted ones."""
    removing = sorted({*replicas}.difference(wanted))
    return Reassignment([*wanted, *removing], sorted({*wanted}.difference(replicas)), removing)


def reverted(partition: PartitionImage) -> Reverted:
    """Undo a reassignment: remove the added replicas and keep those to remove. If none is in sync, the first
    one becomes the ISR."""
    came = partition.adding_replicas
    replicas = [replica for replica in partition.replicas if replica not in came]
    isr = [replica for replica in partition.isr if replica not in came]
    return Reverted(replicas, isr or replicas[:1], unclean=not isr)


# --- The change ---------------------------------------------------------------------------------------------

_Entry = TypeVar("_Entry", int, bytes)


NO_RECOVERY_CHANGE = -1

SHRINKS_KEEP_THE_EPOCH_SINCE = 12
"""metadata.version 3.6-IV0. Before it, brokers relied on a new leader epoch whenever the ISR shrank
(KAFKA-15021)."""


class Election(Enum):
    """Who may lead. Each election may end without a leader: see `ELECTIONS`."""

    PREFERRED = auto()
    """The first replica; otherwise the current leader, or another replica in sync."""
    ONLINE = auto()
    """The current leader, or another replica in sync."""
    UNCLEAN = auto()
    """The same; otherwise any replica, even if it lacks records."""


class TopicIdPartition(NamedTuple):
    """A partition's key in records."""

    topic_id: bytes
    partition_id: int


class Wish(NamedTuple):
    """The wanted state of a partition. None keeps a field as it is."""

    isr: list[int] | None = None
    replicas: list[int] | None = None
    adding: list[int] | None = None
    removing: list[int] | None = None
    directories: Mapping[int, bytes] | None = None
    """The new directory ids of replicas, by broker."""
    leader_recovery_state: int | None = None
    election: Election = Election.ONLINE
    unclean_shutdown: Collection[int] = ()
    """Brokers that may have lost records. None of them stays eligible."""


class Terms(NamedTuple):
    """Facts that hold for every partition of a topic."""

    metadata_version: int
    elr_enabled: bool
    min_isr: int
    """min.insync.replicas, but at most the number of replicas."""
    accepts: Callable[[PartitionImage, int], bool]
    """True if the broker could lead the partition, in sync or not."""
    default_directory: Callable[[int], bytes]
    """The directory id of a new replica on the broker."""
    election: Election = Election.ONLINE
    """The election that keeps a partition online: UNCLEAN if the topic's settings allow it."""


def partition_change(
    key: TopicIdPartition, partition: PartitionImage, wish: Wish, terms: Terms
) -> PartitionChangeRecord | None:
    """Return the record that fulfils the wish as far as possible, or None if nothing changes.

    A `leader` in the record starts a new leader epoch. That happens with another leader, if a replica is
    removed, and before `SHRINKS_KEEP_THE_EPOCH_SINCE` if the ISR shrinks.
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
    """True if the record would change only the partition epoch."""
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
    """The state that a partition is to have, and its differences, while they are worked out."""

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
        """Keep replicas eligible that were in sync, while the ISR is too small. As in Kafka, one of them may
        not be a replica any more."""
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
        """Return the broker id, and True if that broker may lack acknowledged records."""
        for candidate, is_unclean in ELECTIONS[election]:
            leader = candidate(self)
            if leader != NO_LEADER:
                return leader, is_unclean
        return NO_LEADER, False

    def renew_epoch_of_replicas(self) -> None:
        if self.new_leader == NO_LEADER_CHANGE and not _has_all(self.replicas, self._partition.replicas):
            self.new_leader = self._partition.leader

    def changed_elr(self) -> list[int] | None:
        """After an unclean election, nobody is eligible."""
        if self.new_isr is not None or not self._terms.elr_enabled:
            self.elr = []
        return _changed(self.elr, self._partition.elr)

    def keep_isr(self) -> None:
        """Without eligible leader replicas, the last ISR stays: nothing else records its members."""
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
        """The last leader, once nobody can lead. As in Kafka it is −1 if a replica was removed after that."""
        if not self._terms.elr_enabled:
            return None
        known = self._partition.last_known_elr
        if self.new_leader == NO_LEADER:
            return None if known else [self._partition.leader]
        return [] if known and self.new_leader != NO_LEADER_CHANGE else None

    def changed_directories(self, wanted: Mapping[int, bytes] | None) -> list[bytes] | None:
        """The directories, in the order of the replicas."""
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

    # --- candidates: each returns a replica that may lead, or NO_LEADER -------------------------------------

    def preferred_replica(self) -> int:
        for preferred in self.replicas[:1]:
            if self._may_lead(preferred):
                return preferred
        return NO_LEADER

    def present_leader(self) -> int:
        leader = self._partition.leader
        return leader if self._may_lead(leader) else NO_LEADER

    def first_in_sync(self) -> int:
        """The first replica in sync, in the order of the replicas."""
        for replica in self.replicas:
            if self._may_lead(replica):
                return replica
        return NO_LEADER

    def last_known_leader(self) -> int:
        """The last leader. If nobody is certain to have all records, it is the most likely one."""
        if self.isr or self.elr or not self._terms.elr_enabled or len(self._partition.last_known_elr) != 1:
            return NO_LEADER
        leader = self._partition.last_known_elr[0]
        return leader if self._terms.accepts(self._partition, leader) else NO_LEADER

    def first_online(self) -> int:
        """The first replica online, in the order of the replicas."""
        for replica in self.replicas:
            if self._terms.accepts(self._partition, replica):
                return replica
        return NO_LEADER

    def _may_lead(self, replica: int) -> bool:
        """True if the replica could lead and is in sync; with an empty ISR, if it could lead and is
        eligible."""
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
"""The candidates of each election, in order; the first that may lead is elected. The flag is True if that
leader may lack acknowledged records."""


def directories_of(partition: PartitionImage) -> list[bytes]:
    """The directory id of each replica, in their order. MIGRATING if records don't name it."""
    count = len(partition.replicas)
    return [*partition.directories[:count], *[MIGRATING] * (count - len(partition.directories))]


def _in_java_order(first: list[int], then: list[int]) -> list[int]:
    """Merge two lists without duplicates, in the order of a Java `HashSet` made from the first and given the
    second."""
    if max(first, default=0) < INITIAL_CAPACITY > max(then, default=0):
        return sorted({*first, *then})  # each number has a bucket of its own
    together: JavaSet[int] = JavaSet.of(first)
    together.update(then)
    return [*together]


def _has_all(these: list[int], those: list[int]) -> bool:
    return these == those or {*these}.issuperset(those)


def _changed(now: list[_Entry], before: list[_Entry]) -> list[_Entry] | None:
    return None if now == before else now


# --- What a change of a broker does to partitions: their ISRs, eligible replicas and leaders ----------------
#
# The terms of these changes come from the brokers in the image and from settings. The callers, and what they pass
# (Kafka: `ReplicationControlManager`). Their own record comes before or after those of the partitions:
#
# | what happens to broker b | `BrokerChange` | its record |
# |---|---|---|
# | fenced (handleBrokerFenced) | removed=b | after |
# | controlled shutdown (handleBrokerInControlledShutdown) | removed=b | before |
# | unregistered (handleBrokerUnregistered) | removed=b, and `eligible_updates` | after |
# | unfenced (handleBrokerUnfenced) | added=b | before |
# | registered, after a clean end or without eligible replicas (handleBrokerShutdown) | removed=b | after |
# | registered, after an unclean end (handleBrokerShutdown) | unclean=b | after |
# | directories lost (handleDirectoriesOffline) | removed=b, directories: their ids | after |
# | replicas assigned to an offline directory | `updates_of` those | after the assignments |
#
# Source: `ReplicationControlManager` (generateLeaderAndIsrUpdates, LeaderAcceptor, getTopicEffectiveMinIsr),
# `KRaftClusterDescriber`, `ConfigurationControlManager.getTopicConfig`, `DirectoryId.isOnline`.

UNCLEAN_LEADER_ELECTION_ENABLE = "unclean.leader.election.enable"

_DEFAULTS = {MIN_INSYNC_REPLICAS: "1", UNCLEAN_LEADER_ELECTION_ENABLE: "false"}


class OwnSettings(NamedTuple):
    """The controller's own settings, for topics whose settings neither the topic nor the cluster sets: the
    records for its node id, then its file. By default there are none."""

    node_id: int | None = None
    static: Mapping[str, str] = MappingProxyType({})

    @classmethod
    def of(cls, config: BrokerConfig) -> OwnSettings:
        """The settings of a controller with this file."""
        return cls(config.node_id, {name: setting.value for name, setting in config.static.items()})


class LeaderAcceptor:
    """The brokers that can lead: active ones, with the partition's directory online."""

    __slots__ = ("_online",)

    def __init__(
        self, image: ClusterImage, *, added: int | None = None, without: Container[int] = ()
    ) -> None:
        """`added` counts as active and those in `without` as gone, whatever the image says: the records that
        say so are still being decided."""
        self._online = {
            broker_id: _online_directories(broker)
            for broker_id, broker in image.brokers.items()
            if broker_id not in without and (broker_id == added or broker.is_active)
        }

    def accepts(self, partition: PartitionImage, broker_id: int) -> bool:
        """True if the broker could lead the partition, in sync or not. It needs a replica of it."""
        online = self._online.get(broker_id)
        if online is None or broker_id not in partition.replicas:
            return False
        return directory_of(partition, broker_id) in online


class PartitionTerms:
    """The terms of the topics in one image. What they have in common is looked up once."""

    __slots__ = (
        "_accepts",
        "_default_directory",
        "_elr_enabled",
        "_image",
        "_made",
        "_metadata_version",
        "_settings",
    )

    def __init__(self, image: ClusterImage, own: OwnSettings, acceptor: LeaderAcceptor | None = None) -> None:
        self._image = image
        self._metadata_version = image.features.get(METADATA_VERSION, 0)
        self._elr_enabled = is_elr_enabled(image)
        self._accepts = (acceptor or LeaderAcceptor(image)).accepts
        self._default_directory = partial(default_directory, image)
        node = {} if own.node_id is None else image.configs.get((BROKER_RESOURCE, str(own.node_id)), {})
        settings = {**own.static, **image.configs.get((BROKER_RESOURCE, ""), {}), **node}
        self._settings = {name: settings.get(name, default) for name, default in _DEFAULTS.items()}
        self._made: dict[tuple[str, str, int], Terms] = {}

    def of(self, topic: TopicImage) -> Terms:
        """Return the terms of a topic's partitions, for `partition_change`."""
        own = self._image.config_of_topic(topic.name)
        settings = {**self._settings, **own} if own else self._settings
        first = topic.partitions.get(0)
        replicas = 1 if first is None else len(first.replicas)
        key = (settings[MIN_INSYNC_REPLICAS], settings[UNCLEAN_LEADER_ELECTION_ENABLE], replicas)
        terms = self._made.get(key)
        if terms is None:
            terms = self._made[key] = self._make(*key)
        return terms

    def _make(self, min_isr: str, allows_unclean: str, replicas: int) -> Terms:
        """As in Kafka, the number of the first partition's replicas counts for the whole topic."""
        return Terms(
            self._metadata_version,
            self._elr_enabled,
            min(_number(min_isr), replicas),
            accepts=self._accepts,
            default_directory=self._default_directory,
            election=Election.UNCLEAN if allows_unclean.lower() == "true" else Election.ONLINE,
        )


def _number(text: str) -> int:
    """Kafka's default if the text isn't a number."""
    try:
        return int(text)
    except ValueError:
        return 1


def partition_named(image: ClusterImage, name: str, index: int) -> tuple[TopicImage, PartitionImage]:
    """Find a partition by its topic's name. Raises KafkaError (UNKNOWN_TOPIC_OR_PARTITION)."""
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    return topic, partition


class _AllButLost:
    """The directories of a broker that registered none. It would have stopped if all had failed, so all but
    LOST count."""

    def __contains__(self, directory_id: object) -> bool:
        return directory_id != LOST


def _online_directories(broker: BrokerImage) -> Container[bytes]:
    """The broker's online directories. A replica without a chosen directory counts as online."""
    return frozenset((*broker.log_dirs, UNASSIGNED, MIGRATING)) if broker.log_dirs else _AllButLost()


# --- Changes of a broker, as input for deciding about its partitions ----------------------------------------


class BrokerChange(NamedTuple):
    """The change of a broker. The fields are broker ids, or None."""

    removed: int | None = None
    """Leaves the ISRs and stops leading (Kafka: brokerToRemove)."""
    added: int | None = None
    """May lead, although the image still has it fenced (brokerToAdd)."""
    unclean: int | None = None
    """Ended without a clean shutdown and may lack records, so it leaves ISRs and ELRs
    (brokerWithUncleanShutdown)."""
    directories: Collection[bytes] | None = None
    """Limits `removed` to its replicas in these directories. None: all its replicas."""


LeaderAndIsrUpdates: TypeAlias = Callable[[ClusterImage, BrokerChange], Waiting[list[Message]]]
"""Decides the changes of partitions that follow from a broker's change."""


# --- The updates --------------------------------------------------------------------------------------------

SomeOf: TypeAlias = "tuple[TopicImage, Iterable[tuple[int, PartitionImage]]]"
"""A topic and some of its partitions, with their numbers."""

NO_SETTINGS = OwnSettings()


def leader_and_isr_updates(
    image: ClusterImage, change: BrokerChange, *, own: OwnSettings = NO_SETTINGS
) -> Waiting[list[Message]]:
    """Return the records for all partitions that the change concerns, in the order of the image.

    These are the partitions with `removed` or `unclean` in the ISR or `unclean` in the ELR, and with `added`
    those without a leader.
    """
    return _updates(_terms(image, change, own), change, _topics(image), _concerned_by(change))


def eligible_updates(
    image: ClusterImage, change: BrokerChange, *, own: OwnSettings = NO_SETTINGS
) -> Waiting[list[Message]]:
    """Return the records for partitions with `removed` in the ELR, which Kafka checks when it unregisters a
    broker.

    The broker stays eligible. If unclean elections are allowed, another replica leads at once.
    """

    def is_eligible(partition: PartitionImage) -> bool:
        return change.removed in partition.elr

    return _updates(_terms(image, change, own), change, _topics(image), is_eligible)


async def updates_of_unregistered(
    image: ClusterImage, change: BrokerChange, *, own: OwnSettings = NO_SETTINGS
) -> list[Message]:
    """Return the records of both, in Kafka's order (handleBrokerUnregistered)."""
    in_sync = await leader_and_isr_updates(image, change, own=own)
    return in_sync + await eligible_updates(image, change, own=own)


def updates_of(
    image: ClusterImage, change: BrokerChange, topics: Iterable[SomeOf], *, own: OwnSettings = NO_SETTINGS
) -> Waiting[list[Message]]:
    """Return the records for the given partitions."""
    return _updates(_terms(image, change, own), change, topics, lambda partition: True)


async def _updates(
    all_terms: PartitionTerms,
    change: BrokerChange,
    topics: Iterable[SomeOf],
    is_concerned: Callable[[PartitionImage], bool],
) -> list[Message]:
    gone = _gone(change)
    unclean_shutdown = () if change.unclean is None else (change.unclean,)
    decided: list[Message] = []
    pause = Pause()
    for topic, partitions in topics:
        terms = all_terms.of(topic)
        election = terms.election
        stays = Wish(election=election, unclean_shutdown=unclean_shutdown)
        for partition_id, partition in partitions:
            if pause.is_due():
                await turn()
            if not is_concerned(partition):
                continue
            wish = stays
            isr = [replica for replica in partition.isr if replica not in gone]
            if len(isr) < len(partition.isr):
                wish = Wish(isr, election=election, unclean_shutdown=unclean_shutdown)
            record = partition_change(TopicIdPartition(topic.topic_id, partition_id), partition, wish, terms)
            if record is not None:
                decided.append(record)
    return decided


def _terms(image: ClusterImage, change: BrokerChange, own: OwnSettings) -> PartitionTerms:
    return PartitionTerms(image, own, LeaderAcceptor(image, added=change.added, without=_gone(change)))


def _gone(change: BrokerChange) -> list[int]:
    """The brokers that can't lead any more and leave the ISRs."""
    return [broker_id for broker_id in (change.removed, change.unclean) if broker_id is not None]


def _topics(image: ClusterImage) -> Iterable[SomeOf]:
    return ((topic, topic.partitions.items()) for topic in image.topics.values())


def _concerned_by(change: BrokerChange) -> Callable[[PartitionImage], bool]:
    removed, added, unclean, directories = change

    def is_concerned(partition: PartitionImage) -> bool:
        if removed is not None:
            if directories is None:
                if removed in partition.isr:
                    return True
            elif removed in partition.replicas and directory_of(partition, removed) in directories:
                return True
        if unclean is not None and (unclean in partition.isr or unclean in partition.elr):
            return True
        return added is not None and partition.leader == NO_LEADER

    return is_concerned

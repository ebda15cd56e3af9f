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
from broker.controller.registration import directory_of
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


# --- What a change of a broker does to partitions: who stays in sync and eligible, and who leads --------------
#
# It goes by the terms that partitions change under, which are what the image says of brokers and what settings
# say. Who calls it, and with what (Kafka: `ReplicationControlManager`):
#
# | what happens to broker b | `BrokerChange` | its record |
# |---|---|---|
# | fenced (handleBrokerFenced) | removed=b | behind them |
# | controlled shutdown (handleBrokerInControlledShutdown) | removed=b | before them |
# | unregistered (handleBrokerUnregistered) | removed=b, and `eligible_updates` | behind them |
# | unfenced (handleBrokerUnfenced) | added=b | before them |
# | registered, after a clean end or without eligible replicas (handleBrokerShutdown) | removed=b | behind them |
# | registered, after an unclean end (handleBrokerShutdown) | unclean=b | behind them |
# | directories lost (handleDirectoriesOffline) | removed=b, directories: their ids | behind them |
# | replicas assigned to a directory that is offline | `updates_of` those | behind the assignments |
#
# Source: `ReplicationControlManager` (generateLeaderAndIsrUpdates, LeaderAcceptor, getTopicEffectiveMinIsr),
# `KRaftClusterDescriber`, `ConfigurationControlManager.getTopicConfig`, `DirectoryId.isOnline`.

UNCLEAN_LEADER_ELECTION_ENABLE = "unclean.leader.election.enable"

_DEFAULTS = {MIN_INSYNC_REPLICAS: "1", UNCLEAN_LEADER_ELECTION_ENABLE: "false"}


class OwnSettings(NamedTuple):
    """What counts of the controller itself where topic and cluster say nothing of a setting: the records for its node
    id, and then its own file. By default neither."""

    node_id: int | None = None
    static: Mapping[str, str] = MappingProxyType({})

    @classmethod
    def of(cls, config: BrokerConfig) -> OwnSettings:
        """Those of a controller with this file."""
        return cls(config.node_id, {name: setting.value for name, setting in config.static.items()})


class LeaderAcceptor:
    """Which brokers can lead: those that are active, and online with the partition's directory."""

    __slots__ = ("_online",)

    def __init__(
        self, image: ClusterImage, *, added: int | None = None, without: Container[int] = ()
    ) -> None:
        """`added` counts as active whatever the image says, and of `without` nobody does: the records that say so
        are only being decided."""
        self._online = {
            broker_id: _online_directories(broker)
            for broker_id, broker in image.brokers.items()
            if broker_id not in without and (broker_id == added or broker.is_active)
        }

    def accepts(self, partition: PartitionImage, broker_id: int) -> bool:
        """Whether the broker could lead the partition, be it in sync or not. One that has no replica could not."""
        online = self._online.get(broker_id)
        if online is None or broker_id not in partition.replicas:
            return False
        return directory_of(partition, broker_id) in online


class PartitionTerms:
    """For the topics of one image. What is common to them is looked up once."""

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
        """What `partition_change` is to be given for its partitions."""
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
        """However few the replicas of the first partition are, they count for all of a topic, as in Kafka."""
        return Terms(
            self._metadata_version,
            self._elr_enabled,
            min(_number(min_isr), replicas),
            accepts=self._accepts,
            default_directory=self._default_directory,
            election=Election.UNCLEAN if allows_unclean.lower() == "true" else Election.ONLINE,
        )


def _number(text: str) -> int:
    """Kafka's default where the text makes none."""
    try:
        return int(text)
    except ValueError:
        return 1


def partition_named(image: ClusterImage, name: str, index: int) -> tuple[TopicImage, PartitionImage]:
    """Raises KafkaError (UNKNOWN_TOPIC_OR_PARTITION)."""
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    return topic, partition


class _AllButLost:
    """The directories of a broker that hasn't told which it has: it would have stopped if all were gone."""

    def __contains__(self, directory_id: object) -> bool:
        return directory_id != LOST


def _online_directories(broker: BrokerImage) -> Container[bytes]:
    """One that is yet to be told which it is counts as online."""
    return frozenset((*broker.log_dirs, UNASSIGNED, MIGRATING)) if broker.log_dirs else _AllButLost()


# --- What becomes of a broker, for whoever decides what becomes of its partitions ---------------------------


class BrokerChange(NamedTuple):
    """By broker ids; None where there is none."""

    removed: int | None = None
    """It leaves the ISRs, and leads nothing any more (Kafka: brokerToRemove)."""
    added: int | None = None
    """It may lead, though the image still has it fenced (brokerToAdd)."""
    unclean: int | None = None
    """It went without a clean shutdown, and may lack what it had: it leaves ISRs and ELRs
    (brokerWithUncleanShutdown)."""
    directories: Collection[bytes] | None = None
    """Of `removed`: what it has in these alone. None: wherever it is."""


LeaderAndIsrUpdates: TypeAlias = Callable[[ClusterImage, BrokerChange], Waiting[list[Message]]]
"""The changes of partitions that follow."""


# --- The updates --------------------------------------------------------------------------------------------

SomeOf: TypeAlias = "tuple[TopicImage, Iterable[tuple[int, PartitionImage]]]"
"""A topic, and some of its partitions with their numbers."""

NO_SETTINGS = OwnSettings()


def leader_and_isr_updates(
    image: ClusterImage, change: BrokerChange, *, own: OwnSettings = NO_SETTINGS
) -> Waiting[list[Message]]:
    """The records for all partitions that the change concerns, in the order of the image: those that `removed` or
    `unclean` is in sync of, or `unclean` eligible for, and with `added` those that nobody leads."""
    return _updates(_terms(image, change, own), change, _topics(image), _concerned_by(change))


def eligible_updates(
    image: ClusterImage, change: BrokerChange, *, own: OwnSettings = NO_SETTINGS
) -> Waiting[list[Message]]:
    """Those of the partitions that `removed` is eligible for, which Kafka looks at besides where a broker is
    unregistered. It stays eligible; where unclean elections are allowed, another one leads instead of waiting."""

    def is_eligible(partition: PartitionImage) -> bool:
        return change.removed in partition.elr

    return _updates(_terms(image, change, own), change, _topics(image), is_eligible)


async def updates_of_unregistered(
    image: ClusterImage, change: BrokerChange, *, own: OwnSettings = NO_SETTINGS
) -> list[Message]:
    """Both, in Kafka's order (handleBrokerUnregistered)."""
    in_sync = await leader_and_isr_updates(image, change, own=own)
    return in_sync + await eligible_updates(image, change, own=own)


def updates_of(
    image: ClusterImage, change: BrokerChange, topics: Iterable[SomeOf], *, own: OwnSettings = NO_SETTINGS
) -> Waiting[list[Message]]:
    """Those of certain partitions."""
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
    """Whoever is acceptable no more, and no more in sync."""
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

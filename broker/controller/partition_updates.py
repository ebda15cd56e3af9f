"""What a change of a broker does to partitions: who stays in sync and eligible, and who leads.

It goes by the terms that partitions change under, which are what the image says of brokers and what settings say. Who
calls it, and with what (Kafka: `ReplicationControlManager`):

| what happens to broker b | `BrokerChange` | its record |
|---|---|---|
| fenced (handleBrokerFenced) | removed=b | behind them |
| controlled shutdown (handleBrokerInControlledShutdown) | removed=b | before them |
| unregistered (handleBrokerUnregistered) | removed=b, and `eligible_updates` | behind them |
| unfenced (handleBrokerUnfenced) | added=b | before them |
| registered, after a clean end or without eligible replicas (handleBrokerShutdown) | removed=b | behind them |
| registered, after an unclean end (handleBrokerShutdown) | unclean=b | behind them |
| directories lost (handleDirectoriesOffline) | removed=b, directories: their ids | behind them |
| replicas assigned to a directory that is offline | `updates_of` those | behind the assignments |

Source: `ReplicationControlManager` (generateLeaderAndIsrUpdates, LeaderAcceptor, getTopicEffectiveMinIsr),
`KRaftClusterDescriber`, `ConfigurationControlManager.getTopicConfig`, `DirectoryId.isOnline`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from broker.controller.assigned_directories import directory_of
from broker.controller.config_decisions import MIN_INSYNC_REPLICAS, is_elr_enabled
from broker.controller.controller_result import Pause
from broker.controller.image import (
    BROKER_RESOURCE,
    LOST,
    MIGRATING,
    NO_LEADER,
    UNASSIGNED,
    BrokerImage,
    ClusterImage,
)
from broker.controller.metadata_versions import METADATA_VERSION
from broker.controller.partition_changes import Election, Terms, TopicIdPartition, Wish, partition_change
from broker.controller.replica_placer import default_directory
from protocol.errors import Error, KafkaError
from protocol.waiting import Waiting, turn
from protocol.wire.schema import Message

if TYPE_CHECKING:
    from broker.controller.image import PartitionImage, TopicImage


UNCLEAN_LEADER_ELECTION_ENABLE = "unclean.leader.election.enable"

_DEFAULTS = {MIN_INSYNC_REPLICAS: "1", UNCLEAN_LEADER_ELECTION_ENABLE: "false"}


class OwnSettings(NamedTuple):
    """What counts of the controller itself where topic and cluster say nothing of a setting: the records for its node
    id, and then its own file. By default neither."""

    node_id: int | None = None
    static: Mapping[str, str] = MappingProxyType({})


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

"""Under what the partitions of a cluster change: by brokers as the image says them, and by settings.

Source: `ReplicationControlManager.LeaderAcceptor`, `getTopicEffectiveMinIsr`, `KRaftClusterDescriber`;
`ConfigurationControlManager.getTopicConfig`; `DirectoryId.isOnline`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from broker.controller.assigned_directories import directory_of
from broker.controller.broker_image import BrokerImage
from broker.controller.config_decisions import MIN_INSYNC_REPLICAS, is_elr_enabled
from broker.controller.directory_ids import LOST, MIGRATING, UNASSIGNED
from broker.controller.image import BROKER_RESOURCE
from broker.controller.partition_changes import Election, Terms
from broker.controller.record_versions import METADATA_VERSION
from broker.controller.replica_placer import default_directory
from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage, PartitionImage, TopicImage

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

"""A broker's registration: what it says of itself and its log directories, the records that are made of it and of its
fence, and which run of it the controller listens to: the one that registered last.

Source: `ClusterControlManager`, `BrokerRegistrationRequest`, `BrokerRegistration`, `DirectoryId`; KIP-858.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from broker.controller.image import (
    BROKER_RESOURCE,
    LOST,
    MIGRATING,
    NO_LEADER,
    UNASSIGNED,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from broker.controller.metadata_versions import (
    DIRECTORIES_SINCE,
    FEATURES,
    KRAFT_VERSION,
    KRAFT_VERSION_RANGE,
    METADATA_VERSION,
    SHARE_VERSION,
)
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.messages.broker_to_controller import AdvertisedListener, SupportedFeature
from protocol.wire.schema import Message

if TYPE_CHECKING:
    from broker.controller.image import BrokerImage


# --------------------------------------------------------------------------------------------------------------
# Which directory each partition of this node is in (KIP-858): what the records say, and what the folders
# show.
#
# The folder counts: where a partition was found in another directory than its record names, the record is
# corrected. A partition whose directory isn't there, while one of `log.dirs` has failed, is offline: it may be
# in that one. Source: ReplicaManager.maybeUpdateTopicAssignment, Partition.createLogInAssignedDirectoryId,
# DirectoryId.


def directory_of(partition: PartitionImage, node_id: int) -> bytes:
    """The directory id that the record names for the node; where it names none, MIGRATING."""
    place = partition.replicas.index(node_id)
    return partition.directories[place] if place < len(partition.directories) else MIGRATING


def is_online(partition: PartitionImage, node_id: int, online: Collection[bytes]) -> bool:
    """Whether the node can have the partition, `online` being the ids of its directories."""
    directory_id = directory_of(partition, node_id)
    return directory_id in (UNASSIGNED, MIGRATING) or directory_id in online


def actual_directory(
    named: bytes,
    found: bytes | None,
    online: Collection[bytes],
    any_failed: bool,
    choose: Callable[[], bytes],
) -> bytes | None:
    """Where a replica is, or goes to: the directory that it has a folder in, else the one that the record names, else,
    where that is gone for good or none was named, the one of `choose`. None where it may be in one that is offline."""
    if found is not None:
        return found
    if named in online:
        return named
    return choose() if named in (UNASSIGNED, MIGRATING) or not any_failed else None


def corrections(
    image: ClusterImage,
    node_id: int,
    found: Mapping[tuple[bytes, int], bytes],
    online: Collection[bytes],
    any_failed: bool,
    choose: Callable[[], bytes],
) -> list[Message]:
    """The changes that make the records name the directories where partitions are.

    `found`: the directory id of each partition that has a folder, by topic id and number; `choose()`: the one for a
    partition that has none and whose directory is gone for good.
    """
    decided: list[Message] = []
    if image.features.get(METADATA_VERSION, 0) < DIRECTORIES_SINCE:
        return decided
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            if node_id not in partition.replicas:
                continue
            named = directory_of(partition, node_id)
            actual = actual_directory(named, found.get((topic.topic_id, index)), online, any_failed, choose)
            if actual is not None and actual != named:
                decided.append(_assigned(topic.topic_id, index, partition, node_id, actual))
    return decided


def assignment(
    image: ClusterImage, topic_id: bytes, index: int, node_id: int, directory_id: bytes
) -> Message | None:
    """The change that says where the partition is from now on; None where that is said already, or can't be."""
    partition = image.topics_by_id[topic_id].partitions[index]
    if (
        image.features.get(METADATA_VERSION, 0) < DIRECTORIES_SINCE
        or directory_of(partition, node_id) == directory_id
    ):
        return None
    return _assigned(topic_id, index, partition, node_id, directory_id)


def _assigned(
    topic_id: bytes, index: int, partition: PartitionImage, node_id: int, directory_id: bytes
) -> Message:
    directories = [*partition.directories]
    directories += [MIGRATING] * (len(partition.replicas) - len(directories))
    directories[partition.replicas.index(node_id)] = directory_id
    return records.PartitionChangeRecord(partition_id=index, topic_id=topic_id, directories=directories)


# --------------------------------------------------------------------------------------------------------------

RESERVED = 100
"""Ids below it stand for no directory of a broker."""


def is_reserved(directory_id: bytes) -> bool:
    """Whether no directory may have the id. Its second half counts as a signed number, as in Kafka."""
    upper, lower = _halves(directory_id)
    return upper == 0 and lower < RESERVED


def in_order(directory_ids: Iterable[bytes]) -> list[bytes]:
    """As Kafka orders uuids: by two signed numbers."""
    return sorted(directory_ids, key=_halves)


def has_online(registered: Collection[bytes], directory_id: bytes) -> bool:
    """Whether a broker that has registered these can have a partition in the directory. One that has named none, since
    it registered before metadata.version knew of directories, is taken to have each."""
    if directory_id in (UNASSIGNED, MIGRATING):
        return True
    if directory_id == LOST:
        return False
    return not registered or directory_id in registered


def _halves(directory_id: bytes) -> tuple[int, int]:
    return (
        int.from_bytes(directory_id[:8], "big", signed=True),
        int.from_bytes(directory_id[8:], "big", signed=True),
    )


# --- What is said, and the records of it --------------------------------------------------------------------

PLAINTEXT = 0  # SecurityProtocol.PLAINTEXT.id

FENCED = 1
UNFENCED = -1
IN_CONTROLLED_SHUTDOWN = 1


def serves_share_groups(image: ClusterImage) -> bool:
    """Whether the cluster's level of `share.version` has them (Kafka: `ShareVersion.supportsShareGroups`)."""
    return image.features.get(SHARE_VERSION, 0) >= 1


def has_dead_letter_queues(image: ClusterImage) -> bool:
    """Whether that level has dead letter queues (KIP-1191; Kafka: `ShareVersion.supportsShareGroupDLQ`)."""
    return image.features.get(SHARE_VERSION, 0) >= 2


class BrokerIncarnation(NamedTuple):
    """One run of a broker: its node id, and the epoch that its registration was given."""

    node_id: int
    broker_epoch: int


def min_insync_replicas(value: int) -> Message:
    """The setting as a dynamic one of the cluster."""
    return records.ConfigRecord(
        resource_type=BROKER_RESOURCE, resource_name="", name="min.insync.replicas", value=str(value)
    )


def supported_features() -> dict[str, tuple[int, int]]:
    """Name → (lowest, highest level), as a broker says them when it registers. A controller refuses one that lacks a
    feature of the cluster."""
    supported = {**FEATURES}
    return supported | {KRAFT_VERSION: KRAFT_VERSION_RANGE}


def feature_ranges() -> list[SupportedFeature]:
    """The same, as a broker's or a controller's registration has them."""
    return [
        SupportedFeature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in supported_features().items()
    ]


def advertised_listeners(advertised: Iterable[tuple[str, str, int, int]]) -> list[AdvertisedListener]:
    """As a registration has them; of each its name, host, port and the id of its security protocol."""
    return [
        AdvertisedListener(name=name, host=host, port=port, security_protocol=security_protocol)
        for name, host, port, security_protocol in advertised
    ]


def without_leader(image: ClusterImage, node_id: int, online: Collection[bytes]) -> list[tuple[str, int]]:
    """The partitions, by topic and number, that the node has in one of its directories and that nobody leads."""
    return [(topic.name, index) for topic, index, _ in _leaderless(image, node_id, online)]


def _leaderless(
    image: ClusterImage, node_id: int, online: Collection[bytes]
) -> Iterable[tuple[TopicImage, int, PartitionImage]]:
    for topic, index, partition in _partitions(image):
        if (
            partition.leader == NO_LEADER
            and node_id in partition.replicas
            and is_online(partition, node_id, online)
        ):
            yield topic, index, partition


def unfence(node_id: int, broker_epoch: int) -> Message:
    return records.BrokerRegistrationChangeRecord(
        broker_id=node_id, broker_epoch=broker_epoch, fenced=UNFENCED
    )


def fence(node_id: int, broker_epoch: int) -> Message:
    return records.BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=broker_epoch, fenced=FENCED)


def begin_controlled_shutdown(node_id: int, broker_epoch: int) -> Message:
    return records.BrokerRegistrationChangeRecord(
        broker_id=node_id, broker_epoch=broker_epoch, in_controlled_shutdown=IN_CONTROLLED_SHUTDOWN
    )


def _partitions(image: ClusterImage) -> Iterable[tuple[TopicImage, int, PartitionImage]]:
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            yield topic, index, partition


# --- Which run it is ----------------------------------------------------------------------------------------


def check_broker_epoch(image: ClusterImage, broker: BrokerIncarnation) -> BrokerImage:
    """The broker that asks. Raises KafkaError (STALE_BROKER_EPOCH) where this run of it isn't the one that is
    registered (Kafka: `ClusterControlManager.checkBrokerEpoch`)."""
    registered = image.brokers.get(broker.node_id)
    if registered is None:
        raise KafkaError(
            Error.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker.node_id}"
        )
    if registered.broker_epoch != broker.broker_epoch:
        raise KafkaError(
            Error.STALE_BROKER_EPOCH,
            f"Expected broker epoch {registered.broker_epoch}, but got broker epoch {broker.broker_epoch}",
        )
    return registered

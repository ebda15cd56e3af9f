"""A broker's registration: its features, listeners and log directories, the records about it and its fence,
and which run of the broker the controller listens to: the one that registered last.

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
# Which directory has each partition of this node (KIP-858): in the records and on the disks.
#
# The folder counts. If a partition's folder is in another directory than its record names, the record is
# corrected. If a partition has no folder and one of `log.dirs` has failed, the partition is offline: it may
# be in that directory. Source: ReplicaManager.maybeUpdateTopicAssignment,
# Partition.createLogInAssignedDirectoryId, DirectoryId.


def directory_of(partition: PartitionImage, node_id: int) -> bytes:
    """The directory id that the record names for the node, or MIGRATING if it names none."""
    place = partition.replicas.index(node_id)
    return partition.directories[place] if place < len(partition.directories) else MIGRATING


def is_online(partition: PartitionImage, node_id: int, online: Collection[bytes]) -> bool:
    """True if the node can have the partition. `online` holds the ids of its directories."""
    directory_id = directory_of(partition, node_id)
    return directory_id in (UNASSIGNED, MIGRATING) or directory_id in online


def actual_directory(
    named: bytes,
    found: bytes | None,
    online: Collection[bytes],
    any_failed: bool,
    choose: Callable[[], bytes],
) -> bytes | None:
    """Return the directory of a replica.

    That is the one with its folder; otherwise the one that the record names; otherwise, if that is gone for
    good or none is named, the one that `choose` returns. None if the replica may be in an offline directory.
    """
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
    """Return the changes that bring the records in line with the directories of partitions.

    `found` holds the directory id of each partition with a folder, by topic id and number. `choose()` returns
    one for a partition that has no folder and whose directory is gone for good.
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
    """Return the record for a partition's new directory. None if the image already has it, or records can't
    hold it."""
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
"""Ids below this one are never a broker's directory."""


def is_reserved(directory_id: bytes) -> bool:
    """True if no directory may have the id. As in Kafka, its lower half counts as a signed number."""
    upper, lower = _halves(directory_id)
    return upper == 0 and lower < RESERVED


def in_order(directory_ids: Iterable[bytes]) -> list[bytes]:
    """Sort uuids as Kafka does: as two signed numbers."""
    return sorted(directory_ids, key=_halves)


def has_online(registered: Collection[bytes], directory_id: bytes) -> bool:
    """True if a broker with these registered directories can have a partition in the directory.

    A broker that registered none, because its metadata.version didn't have directories, can have any.
    """
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


# --- Facts about brokers, and records of them ---------------------------------------------------------------

PLAINTEXT = 0  # SecurityProtocol.PLAINTEXT.id

FENCED = 1
UNFENCED = -1
IN_CONTROLLED_SHUTDOWN = 1


def serves_share_groups(image: ClusterImage) -> bool:
    """True if the cluster's level of `share.version` has share groups (Kafka:
    `ShareVersion.supportsShareGroups`)."""
    return image.features.get(SHARE_VERSION, 0) >= 1


def has_dead_letter_queues(image: ClusterImage) -> bool:
    """True if that level has dead letter queues (KIP-1191; Kafka: `ShareVersion.supportsShareGroupDLQ`)."""
    return image.features.get(SHARE_VERSION, 0) >= 2


class BrokerIncarnation(NamedTuple):
    """One run of a broker: its node id and its registration's epoch."""

    node_id: int
    broker_epoch: int


def min_insync_replicas(value: int) -> Message:
    """The record that sets min.insync.replicas for the cluster."""
    return records.ConfigRecord(
        resource_type=BROKER_RESOURCE, resource_name="", name="min.insync.replicas", value=str(value)
    )


def supported_features() -> dict[str, tuple[int, int]]:
    """Name → (lowest, highest level), as a broker registers them. A controller refuses a broker that lacks a
    feature of the cluster."""
    supported = {**FEATURES}
    return supported | {KRAFT_VERSION: KRAFT_VERSION_RANGE}


def feature_ranges() -> list[SupportedFeature]:
    """The same, in the form of a broker's or a controller's registration."""
    return [
        SupportedFeature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in supported_features().items()
    ]


def advertised_listeners(advertised: Iterable[tuple[str, str, int, int]]) -> list[AdvertisedListener]:
    """Return listeners in the form of a registration, from (name, host, port, security protocol id)."""
    return [
        AdvertisedListener(name=name, host=host, port=port, security_protocol=security_protocol)
        for name, host, port, security_protocol in advertised
    ]


def without_leader(image: ClusterImage, node_id: int, online: Collection[bytes]) -> list[tuple[str, int]]:
    """Return the partitions, by topic and number, that the node has in an online directory and that have no
    leader."""
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


# --- The current run of a broker ----------------------------------------------------------------------------


def check_broker_epoch(image: ClusterImage, broker: BrokerIncarnation) -> BrokerImage:
    """Return the registration of the broker that asks (Kafka: `ClusterControlManager.checkBrokerEpoch`).

    Raises KafkaError (STALE_BROKER_EPOCH) if another run of the broker is registered, or none.
    """
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

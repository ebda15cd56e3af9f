"""A broker as its controller sees it: its current run, its features and listeners, and the records about its
fence.

`cluster_control.py` decides who may register, and who is fenced.

Source: `ClusterControlManager`, `BrokerRegistrationRequest`, `BrokerRegistration`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

from broker.controller.image import (
    BROKER_RESOURCE,
    NO_LEADER,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from broker.controller.metadata_versions import (
    FEATURES,
    KRAFT_VERSION,
    KRAFT_VERSION_RANGE,
    SHARE_VERSION,
)
from broker.controller.replica_directories import is_online
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.messages.broker_to_controller import AdvertisedListener, SupportedFeature
from protocol.wire.schema import Message

if TYPE_CHECKING:
    from broker.controller.image import BrokerImage

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

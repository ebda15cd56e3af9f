"""The image as records: what a snapshot holds, in Kafka's order (Kafka: `MetadataImage.write`)."""

from __future__ import annotations

from collections.abc import Iterator

from broker.controller.broker_image import BrokerImage
from broker.controller.image import ClusterImage, PartitionImage
from broker.controller.record_versions import METADATA_VERSION
from protocol.messages import metadata_records as records
from protocol.wire.schema import Message


def image_records(image: ClusterImage) -> Iterator[Message]:
    """The records that make an image like this one from an empty one. The image must not change meanwhile."""
    # metadata.version is the first, since a reader needs it to make sense of the rest
    names = sorted(image.features, key=lambda name: name != METADATA_VERSION)
    for name in names:
        yield records.FeatureLevelRecord(name=name, feature_level=image.features[name])
    for broker in image.brokers.values():
        yield _broker_record(broker)
    yield from image.controllers.values()
    for topic in image.topics.values():
        yield records.TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for index, partition in topic.partitions.items():
            yield _partition_record(topic.topic_id, index, partition)
    for (resource_type, resource_name), values in image.configs.items():
        for name, value in values.items():
            yield records.ConfigRecord(
                resource_type=resource_type, resource_name=resource_name, name=name, value=value
            )
    yield from image.kept.of_type(records.ClientQuotaRecord)
    if image.next_producer_id > 0:
        yield records.ProducerIdsRecord(
            broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id
        )
    yield from image.kept.of_type(records.AccessControlEntryRecord)
    yield from image.kept.of_type(records.UserScramCredentialRecord)
    yield from image.kept.of_type(records.DelegationTokenRecord)


def _broker_record(broker: BrokerImage) -> records.RegisterBrokerRecord:
    """The registration with what changed since."""
    registered = broker.record
    return records.RegisterBrokerRecord(
        broker_id=registered.broker_id,
        is_migrating_zk_broker=registered.is_migrating_zk_broker,
        incarnation_id=registered.incarnation_id,
        broker_epoch=registered.broker_epoch,
        end_points=registered.end_points,
        features=registered.features,
        rack=registered.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.log_dirs,
        cordoned_log_dirs=broker.cordoned_log_dirs,
    )


def _partition_record(topic_id: bytes, index: int, partition: PartitionImage) -> records.PartitionRecord:
    return records.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing_replicas,
        adding_replicas=partition.adding_replicas,
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=partition.directories,
        eligible_leader_replicas=partition.elr or None,
        last_known_elr=partition.last_known_elr or None,
    )

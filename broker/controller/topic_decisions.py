"""Creating and deleting topics and adding partitions: from a wish and the image to records, or to an error.

Nothing of the metadata is changed here (Kafka: `ReplicationControlManager`); the placement goes on to the next
directory, and the quota of who asks is taken. The checks stand in Kafka's order, as they were tried on 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from broker.controller.config_decisions import cleared_elr
from broker.controller.image import TOPIC_RESOURCE, ClusterImage, TopicImage
from broker.controller.placement import Placement
from broker.controller.topic_names import invalid_name_reason
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.messages.topics import CreatableReplicaAssignment, CreatableTopic, CreatePartitionsTopic
from protocol.wire.schema import Message
from storage.directory.log_directory import METADATA_TOPIC

TakeQuota = Callable[[int], None]
"""Takes so many partitions from a client's quota on changes, or raises KafkaError (THROTTLING_QUOTA_EXCEEDED)."""

MAX_PARTITIONS_PER_REQUEST = 10_000  # ReplicationControlManager.MAX_PARTITIONS_PER_BATCH


def check_new_name(image: ClusterImage, name: str) -> None:
    """Raises KafkaError where no topic of this name can be created."""
    reason = invalid_name_reason(name)
    if name == METADATA_TOPIC:
        raise KafkaError(Error.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if name in image.topics:
        raise KafkaError(Error.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if reason is not None:
        raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    collides = image.topics_like(name)
    if collides:
        raise KafkaError(
            Error.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {collides[0]}"
        )


def new_topic(
    image: ClusterImage,
    wanted: CreatableTopic,
    *,
    topic_id: bytes,
    placement: Placement,
    default_partitions: int,
    default_replication_factor: int,
    check_configs: Callable[[Mapping[str, str | None]], None],
) -> list[Message]:
    """The records of a new topic. Raises KafkaError by the first check that fails."""
    check_new_name(image, wanted.name)
    configs = {config.name: config.value for config in wanted.configs}
    check_configs(configs)
    if wanted.assignments:
        assigned = _assigned_replicas(image, wanted)
    else:
        count = _partition_count(wanted, default_partitions, default_replication_factor)
        placement.check_room()
        assigned = [[placement.node_id]] * count
    altered = [
        records.ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=wanted.name, name=key, value=value)
        for key, value in configs.items()
    ]
    decided: list[Message] = [records.TopicRecord(name=wanted.name, topic_id=topic_id)]
    decided += altered
    decided += cleared_elr(image, altered)
    decided += (_partition_record(topic_id, wanted.name, index, placement) for index in range(len(assigned)))
    return decided


def check_total(topics: Iterable[CreatableTopic], default_partitions: int) -> None:
    """How many partitions a request would create is counted before anything is checked. Raises KafkaError
    (POLICY_VIOLATION)."""
    total = 0
    for topic in topics:
        if topic.assignments:
            total += len(topic.assignments)
        elif topic.num_partitions > 0:
            total += topic.num_partitions
        elif topic.num_partitions == -1:
            total += default_partitions
    if total > MAX_PARTITIONS_PER_REQUEST:
        raise KafkaError(
            Error.POLICY_VIOLATION,
            "Excessively large number of partitions per request: "
            f"at most {MAX_PARTITIONS_PER_REQUEST} can be created at once.",
        )


def more_partitions(
    image: ClusterImage, wanted: CreatePartitionsTopic, placement: Placement, take: TakeQuota
) -> Iterator[Message]:
    """The records of a topic's additional partitions, made one by one: nobody has checked how many they are.

    Raises KafkaError by the first check that fails, before there is any; the quota is one of them.
    """
    topic = image.topics.get(wanted.name)
    if topic is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
    count = len(topic.partitions)
    if wanted.count == count:
        raise KafkaError(Error.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    if wanted.count < count:
        raise KafkaError(
            Error.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {count} partition(s); {wanted.count} would not be an increase.",
        )
    additional = wanted.count - count
    if wanted.assignments is not None and len(wanted.assignments) != additional:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"{additional} partition(s) would be added, but {len(wanted.assignments)} assignment(s) were given.",
        )
    take(additional)
    if wanted.assignments is not None:
        replication_factor = len(next(iter(topic.partitions.values())).replicas)
        for assignment in wanted.assignments:
            _check_replicas(image, assignment.broker_ids, replication_factor)
    else:
        placement.check_room()
    return (
        _partition_record(topic.topic_id, topic.name, index, placement)
        for index in range(count, wanted.count)
    )


def removed_topic(topic: TopicImage) -> list[Message]:
    return [records.RemoveTopicRecord(topic_id=topic.topic_id)]


def _partition_record(
    topic_id: bytes, name: str, index: int, placement: Placement
) -> records.PartitionRecord:
    node_id = placement.node_id
    return records.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=[node_id],
        isr=[node_id],
        leader=node_id,
        leader_epoch=0,
        partition_epoch=0,
        directories=[placement.directory_of(name, index)],
    )


def _partition_count(wanted: CreatableTopic, default_partitions: int, default_replication_factor: int) -> int:
    if wanted.replication_factor == 0 or wanted.replication_factor < -1:
        raise KafkaError(
            Error.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if wanted.num_partitions == 0 or wanted.num_partitions < -1:
        raise KafkaError(
            Error.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    factor = default_replication_factor if wanted.replication_factor == -1 else wanted.replication_factor
    if factor > 1:
        raise KafkaError(
            Error.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} "
            "cannot be reached because only 1 broker(s) are registered or some brokers have all their log "
            "directories cordoned.",
        )
    return default_partitions if wanted.num_partitions == -1 else wanted.num_partitions


def _assigned_replicas(image: ClusterImage, wanted: CreatableTopic) -> list[list[int]]:
    if wanted.replication_factor != -1:
        raise KafkaError(
            Error.INVALID_REQUEST, "With a manual partition assignment the replication factor has to be -1."
        )
    if wanted.num_partitions != -1:
        raise KafkaError(
            Error.INVALID_REQUEST, "With a manual partition assignment the number of partitions has to be -1."
        )
    by_index: dict[int, CreatableReplicaAssignment] = {}
    replication_factor = None
    for assignment in wanted.assignments:
        if assignment.partition_index in by_index:
            raise KafkaError(
                Error.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {assignment.partition_index}",
            )
        _check_replicas(image, assignment.broker_ids, replication_factor)
        replication_factor = len(assignment.broker_ids)
        by_index[assignment.partition_index] = assignment
    if any(index not in by_index for index in range(len(by_index))):
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT, "The partitions have to be numbered from 0 without a gap."
        )
    return [by_index[index].broker_ids for index in range(len(by_index))]


def _check_replicas(image: ClusterImage, broker_ids: list[int], replication_factor: int | None) -> None:
    if not broker_ids:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment has an empty replica list."
        )
    previous = None
    for broker_id in sorted(broker_ids):
        if broker_id not in image.brokers:
            raise KafkaError(
                Error.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment has broker {broker_id}, which is not registered.",
            )
        if broker_id == previous:
            raise KafkaError(
                Error.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment has broker {broker_id} more than once.",
            )
        previous = broker_id
    if replication_factor is not None and len(broker_ids) != replication_factor:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment has a partition with {len(broker_ids)} replica(s), "
            f"others have {replication_factor}.",
        )

"""Creating and deleting topics and adding partitions: from a wish and the image to records, or to an error.

Nothing of the metadata is changed here; the placement goes on to the next directory, and the quota of who asks is
taken. Either whoever asks names the brokers of each partition, or the placer finds them. The checks stand in Kafka's
order, as they were tried on 4.3.1. What is created comes one by one, since nobody has checked how much it is: whoever
takes it pauses by the replicas that came. The image has to stay as it is meanwhile.
Source: `ReplicationControlManager` (createTopic, createPartitions, validateManualPartitionAssignment,
buildPartitionRegistration).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from broker.controller.config_decisions import cleared_elr
from broker.controller.image import TOPIC_RESOURCE, ClusterImage, TopicImage, invalid_name_reason
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.messages.topics import CreatableTopic
from protocol.waiting import turn
from protocol.wire.schema import Message
from storage.directory.log_directory import METADATA_TOPIC

if TYPE_CHECKING:
    from broker.controller.controller_result import Pause
    from broker.controller.replica_placer import ReplicaPlacer
    from protocol.messages.topics import CreatePartitionsTopic


class TopicDefaults(NamedTuple):
    """What is meant by −1 (`num.partitions`, `default.replication.factor`)."""

    partitions: int
    replication_factor: int


class NewPartitions(NamedTuple):
    """Whose partitions they are, and who decides where they go. The image needn't have the topic yet."""

    image: ClusterImage
    topic: str
    topic_id: bytes
    placer: ReplicaPlacer

    def record(self, index: int, replicas: Sequence[int]) -> records.PartitionRecord:
        """A partition that begins: in sync are those of its replicas that are active, and the first of them leads.

        Raises KafkaError (INVALID_REPLICATION_FACTOR) where none is.
        """
        isr = [broker_id for broker_id in replicas if is_active(self.image, broker_id)]
        if not isr:
            raise KafkaError(
                Error.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {len(replicas)} time(s): All brokers are currently fenced or in "
                "controlled shutdown.",
            )
        return records.PartitionRecord(
            partition_id=index,
            topic_id=self.topic_id,
            replicas=[*replicas],
            isr=isr,
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=[
                self.placer.directory(self.image, broker_id, self.topic, index) for broker_id in replicas
            ],
        )


def is_active(image: ClusterImage, broker_id: int) -> bool:
    """Whether there is such a broker, and it can be in sync and lead."""
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.is_active


async def partitions_of_new_topic(
    new: NewPartitions, wanted: CreatableTopic, defaults: TopicDefaults, pause: Pause
) -> Iterator[records.PartitionRecord]:
    """By the assignments that are asked for, or else by number and replication factor. The caller has counted them
    (`topic_decisions.check_total`).

    Raises KafkaError before it returns, by the first check that fails: INVALID_REQUEST where assignments come with
    numbers, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR, INVALID_PARTITIONS.
    """
    if wanted.assignments:
        by_index = await _assigned(new.image, wanted, pause)
        return _records(new, 0, (by_index[index] for index in range(len(by_index))))
    if wanted.replication_factor == 0 or wanted.replication_factor < -1:
        raise KafkaError(
            Error.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if wanted.num_partitions == 0 or wanted.num_partitions < -1:
        raise KafkaError(
            Error.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    count = defaults.partitions if wanted.num_partitions == -1 else wanted.num_partitions
    factor = defaults.replication_factor if wanted.replication_factor == -1 else wanted.replication_factor
    if pause.is_due(len(new.image.brokers)):
        await turn()
    try:
        placed = new.placer.place(new.image, count, factor)
    except KafkaError as refused:
        raise KafkaError(
            refused.error, f"Unable to replicate the partition {factor} time(s): {refused.message}"
        ) from refused
    return _records(new, 0, placed)


async def more_partitions_of_topic(
    new: NewPartitions, wanted: CreatePartitionsTopic, take: Callable[[int], None], pause: Pause
) -> Iterator[records.PartitionRecord]:
    """Those that a topic lacks, as many replicas each as its first partition has. `take(number)` is asked where they
    could be made, and may refuse by a KafkaError.

    Raises KafkaError before it returns, by the first check that fails: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS
    where they would not be more, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR.
    """
    topic = new.image.topics.get(wanted.name)
    if topic is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
    first = len(topic.partitions)
    additional = _additional(topic, wanted)
    take(additional)
    if not first:
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR, f"The topic {wanted.name} has no partitions.")
    factor = len(next(iter(topic.partitions.values())).replicas)
    if wanted.assignments is None:
        if pause.is_due(len(new.image.brokers)):
            await turn()
        return _records(new, first, new.placer.place(new.image, additional, factor))
    for index, assignment in enumerate(wanted.assignments, first):
        await _check_assignment(new.image, assignment.broker_ids, factor, pause)
        _check_active(new.image, assignment.broker_ids, index)
    return _records(new, first, (assignment.broker_ids for assignment in wanted.assignments))


def _additional(topic: TopicImage, wanted: CreatePartitionsTopic) -> int:
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
    return additional


async def _assigned(image: ClusterImage, wanted: CreatableTopic, pause: Pause) -> dict[int, list[int]]:
    """The brokers of each partition, by its number."""
    if wanted.replication_factor != -1:
        raise KafkaError(
            Error.INVALID_REQUEST, "With a manual partition assignment the replication factor has to be -1."
        )
    if wanted.num_partitions != -1:
        raise KafkaError(
            Error.INVALID_REQUEST, "With a manual partition assignment the number of partitions has to be -1."
        )
    by_index: dict[int, list[int]] = {}
    factor = None
    for assignment in wanted.assignments:
        index = assignment.partition_index
        if index in by_index:
            raise KafkaError(
                Error.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        await _check_assignment(image, assignment.broker_ids, factor, pause)
        _check_active(image, assignment.broker_ids, index)
        factor = len(assignment.broker_ids)
        by_index[index] = assignment.broker_ids
    if any(index not in by_index for index in range(len(by_index))):
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT, "The partitions have to be numbered from 0 without a gap."
        )
    return by_index


async def _check_assignment(
    image: ClusterImage, broker_ids: Sequence[int], replication_factor: int | None, pause: Pause
) -> None:
    """The lowest id that can't be there is named, as by Kafka, which sorts them."""
    if not broker_ids:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment has an empty replica list."
        )
    seen: set[int] = set()
    wrong = []
    for broker_id in broker_ids:
        if pause.is_due():
            await turn()
        if broker_id in seen or broker_id not in image.brokers:
            wrong.append(broker_id)
        seen.add(broker_id)
    if wrong:
        lowest = min(wrong)
        what = "more than once" if lowest in image.brokers else "which is not registered"
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment has broker {lowest}, {what}.",
        )
    if replication_factor is not None and len(broker_ids) != replication_factor:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment has a partition with {len(broker_ids)} replica(s), "
            f"others have {replication_factor}.",
        )


def _check_active(image: ClusterImage, broker_ids: Iterable[int], index: int) -> None:
    if not any(is_active(image, broker_id) for broker_id in broker_ids):
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers of the manual partition assignment for partition {index} are fenced or in controlled "
            "shutdown.",
        )


def _records(
    new: NewPartitions, first: int, replicas: Iterable[Sequence[int]]
) -> Iterator[records.PartitionRecord]:
    return (new.record(index, each) for index, each in enumerate(replicas, first))


# --- Topics -------------------------------------------------------------------------------------------------

TakeQuota = Callable[[int], None]
"""Takes so many partitions from a client's quota on changes, or raises KafkaError (THROTTLING_QUOTA_EXCEEDED)."""

MAX_PARTITIONS_PER_REQUEST = 10_000  # ReplicationControlManager.MAX_PARTITIONS_PER_BATCH


def already_exists(name: str) -> KafkaError:
    """What whoever wants to create a topic is told where there is one of this name."""
    return KafkaError(Error.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def check_new_name(image: ClusterImage, name: str) -> None:
    """Raises KafkaError where no topic of this name can be created."""
    reason = invalid_name_reason(name)
    if name == METADATA_TOPIC:
        raise KafkaError(Error.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if name in image.topics:
        raise already_exists(name)
    if reason is not None:
        raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    collides = image.topics_like(name)
    if collides:
        raise KafkaError(
            Error.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {collides[0]}"
        )


async def new_topic(
    new: NewPartitions,
    wanted: CreatableTopic,
    *,
    defaults: TopicDefaults,
    check_configs: Callable[[Mapping[str, str | None]], None],
    pause: Pause,
) -> list[Message]:
    """The records of a new topic. Raises KafkaError by the first check that fails."""
    check_new_name(new.image, wanted.name)
    configs = {config.name: config.value for config in wanted.configs}
    check_configs(configs)
    partitions = await partitions_of_new_topic(new, wanted, defaults, pause)
    altered = [
        records.ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=wanted.name, name=key, value=value)
        for key, value in configs.items()
    ]
    decided: list[Message] = [records.TopicRecord(name=wanted.name, topic_id=new.topic_id)]
    decided += altered
    decided += cleared_elr(new.image, altered)
    for record in partitions:
        if pause.is_due(len(record.replicas)):
            await turn()
        decided.append(record)
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


def check_additional(image: ClusterImage, topics: Iterable[CreatePartitionsTopic]) -> None:
    """As `check_total`, of partitions that are added; what will be refused anyway doesn't count."""
    total = 0
    for wanted in topics:
        topic = image.topics.get(wanted.name)
        if topic is not None:
            total += max(0, wanted.count - len(topic.partitions))
    if total > MAX_PARTITIONS_PER_REQUEST:
        raise KafkaError(
            Error.POLICY_VIOLATION, "Excessively large number of additional partitions per request."
        )


def removed_topic(topic: TopicImage) -> list[Message]:
    return [records.RemoveTopicRecord(topic_id=topic.topic_id)]

"""Creating and deleting topics and adding partitions: from a wish and the image to records, or to an error.

Nothing of the metadata is changed here (Kafka: `ReplicationControlManager`); the placement goes on to the next
directory, and the quota of who asks is taken. The checks stand in Kafka's order, as they were tried on 4.3.1. Where
partitions go is in `partition_assignments`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from broker.controller.config_decisions import cleared_elr
from broker.controller.image import TOPIC_RESOURCE, ClusterImage, TopicImage
from broker.controller.partition_assignments import NewPartitions, TopicDefaults, partitions_of_new_topic
from broker.controller.topic_names import invalid_name_reason
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.messages.topics import CreatableTopic
from protocol.waiting import turn
from protocol.wire.schema import Message
from storage.directory.log_directory import METADATA_TOPIC

if TYPE_CHECKING:
    from broker.controller.pause import Pause

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


def removed_topic(topic: TopicImage) -> list[Message]:
    return [records.RemoveTopicRecord(topic_id=topic.topic_id)]

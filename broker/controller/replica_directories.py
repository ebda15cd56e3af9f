"""A broker says in which of its directories replicas are (AssignReplicasToDirs), where it has chosen or moved them.

Source: `ReplicationControlManager.handleAssignReplicasToDirs`; KIP-858.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from broker.controller.broker_change import BrokerChange, LeaderAndIsrUpdates
from broker.controller.broker_directories import has_online
from broker.controller.broker_epochs import check_broker_epoch
from broker.controller.controller_result import ControllerResult
from broker.controller.image import ClusterImage, TopicImage
from broker.controller.pause import Pause
from broker.controller.record_versions import DIRECTORIES_SINCE, METADATA_VERSION
from broker.controller.registration import BrokerIncarnation
from protocol.errors import Error, KafkaError
from protocol.messages.broker_to_controller import (
    AssignedDirectoryResult,
    AssignedPartitionResult,
    AssignedTopicResult,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from protocol.waiting import turn

if TYPE_CHECKING:
    from protocol.wire.schema import Message


class ReplicaDirectory(NamedTuple):
    """Where a broker has a replica of a partition."""

    topic_id: bytes
    partition_index: int
    broker_id: int
    directory_id: bytes


DirectoryChange: TypeAlias = Callable[[ClusterImage, ReplicaDirectory], "Message | None"]
"""The change of a partition that says so, and what else it brings (Kafka: `PartitionChangeBuilder.setDirectory`); None
where nothing changes."""


async def assign_replicas(
    image: ClusterImage,
    request: AssignReplicasToDirsRequest,
    change: DirectoryChange,
    updates: LeaderAndIsrUpdates,
) -> ControllerResult[AssignReplicasToDirsResponse | KafkaError]:
    """Each partition is told by itself: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER where the
    broker has no replica of it. One that is in a directory that isn't online any more leaves its ISR.

    Raises KafkaError: UNSUPPORTED_VERSION where metadata.version knows of no directories, STALE_BROKER_EPOCH.
    """
    if image.features.get(METADATA_VERSION, 0) < DIRECTORIES_SINCE:
        raise KafkaError(Error.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    broker_id = request.broker_id
    directories = {*check_broker_epoch(image, BrokerIncarnation(broker_id, request.broker_epoch)).log_dirs}
    decided: list[Message] = []
    offline: set[bytes] = set()  # that replicas are said to be in
    response = AssignReplicasToDirsResponse()
    pause = Pause()
    for directory in request.directories:
        if pause.is_due():
            await turn()
        is_online = has_online(directories, directory.id)
        directory_result = AssignedDirectoryResult(id=directory.id)
        response.directories.append(directory_result)
        for asked in directory.topics:
            if pause.is_due():
                await turn()
            topic = image.topics_by_id.get(asked.topic_id)
            topic_result = AssignedTopicResult(topic_id=asked.topic_id)
            directory_result.topics.append(topic_result)
            for index in (each.partition_index for each in asked.partitions):
                if pause.is_due():
                    await turn()
                error = _refusal(topic, index, broker_id)
                topic_result.partitions.append(
                    AssignedPartitionResult(partition_index=index, error_code=error)
                )
                if error is Error.NONE:
                    record = change(image, ReplicaDirectory(asked.topic_id, index, broker_id, directory.id))
                    decided += () if record is None else (record,)
                    if not is_online:
                        offline.add(directory.id)
    if offline:
        as_said = await _with(image, decided)
        decided += await updates(as_said, BrokerChange(removed=broker_id, directories=offline))
    return ControllerResult(decided, lambda error: response if error is None else error, may_split=True)


def _refusal(topic: TopicImage | None, index: int, broker_id: int) -> Error:
    if topic is None:
        return Error.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(index)
    if partition is None:
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    return Error.NONE if broker_id in partition.replicas else Error.NOT_LEADER_OR_FOLLOWER


async def _with(image: ClusterImage, decided: list[Message]) -> ClusterImage:
    """The image as it will be, which is where partitions are found by the directories that they are in. (Kafka has the
    partitions at hand, and goes by where each was before.)"""
    if not decided:
        return image
    after = image.copy()
    pause = Pause()
    for record in decided:
        if pause.is_due():
            await turn()
        after.apply(record)
    return after

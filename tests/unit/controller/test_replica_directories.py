"""AssignReplicasToDirs: the cases of Kafka's ReplicationControlManagerTest (testHandleAssignReplicasToDirs…)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.controller.image import LOST, UNASSIGNED, ClusterImage
from broker.controller.partition_changes import BrokerChange
from broker.controller.partition_requests import ReplicaDirectory, assign_replicas
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.messages.broker_to_controller import (
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from protocol.waiting import Waiting, at_once, turn
from protocol.wire.schema import Message
from tests.support.wishes import pauses
from tests.unit.controller.active_controller import MARK, ActiveController, directory

EPOCH = 100
A, B, OFFLINE = directory(1), directory(1, 1), directory(1, 2)
FOO, BAR, UNKNOWN = b"f" * 16, b"b" * 16, b"u" * 16

Told = dict[bytes, dict[bytes, dict[int, Error]]]


@pytest.fixture
def controller() -> ActiveController:
    """Return a controller with broker 1, whose directories are A and B, and two topics of three partitions. The last
    partition has no replica on that broker."""
    controller = ActiveController()
    for broker_id, directories in ((1, [A, B]), (2, [directory(2)])):
        controller.write(
            [records.RegisterBrokerRecord(broker_id=broker_id, broker_epoch=EPOCH, log_dirs=directories)]
        )
    for topic_id in (FOO, BAR):
        controller.write([records.TopicRecord(name=topic_id.hex(), topic_id=topic_id)])
        for index, replicas in enumerate(([1, 2], [2, 1], [2])):
            controller.write(
                [
                    records.PartitionRecord(
                        partition_id=index,
                        topic_id=topic_id,
                        replicas=replicas,
                        isr=replicas,
                        leader=replicas[0],
                        directories=[UNASSIGNED] * len(replicas),
                    )
                ]
            )
    return controller


def request(
    wanted: dict[bytes, dict[bytes, list[int]]], *, epoch: int = EPOCH
) -> AssignReplicasToDirsRequest:
    """Return a request from directory → topic → partitions."""
    return AssignReplicasToDirsRequest(
        broker_id=1,
        broker_epoch=epoch,
        directories=[
            AssignedDirectory(
                id=directory_id,
                topics=[
                    AssignedTopic(
                        topic_id=topic_id,
                        partitions=[AssignedPartition(partition_index=each) for each in indexes],
                    )
                    for topic_id, indexes in topics.items()
                ],
            )
            for directory_id, topics in wanted.items()
        ],
    )


def change(image: ClusterImage, replica: ReplicaDirectory) -> Message | None:
    """Return the record that names the directory, or None if the metadata already names it."""
    partition = image.topics_by_id[replica.topic_id].partitions[replica.partition_index]
    directories = [*partition.directories]
    directories[partition.replicas.index(replica.broker_id)] = replica.directory_id
    if directories == partition.directories:
        return None
    return records.PartitionChangeRecord(
        topic_id=replica.topic_id, partition_id=replica.partition_index, directories=directories
    )


def told(answer: AssignReplicasToDirsResponse | KafkaError) -> Told:
    assert isinstance(answer, AssignReplicasToDirsResponse)
    assert answer.error_code == 0
    return {
        each.id: {
            topic.topic_id: {of.partition_index: Error(of.error_code) for of in topic.partitions}
            for topic in each.topics
        }
        for each in answer.directories
    }


def assigned(
    controller: ActiveController,
    asked: AssignReplicasToDirsRequest,
    updates: Callable[[ClusterImage, BrokerChange], Waiting[list[Message]]] | None = None,
) -> tuple[list[Message], Told]:
    deciding = assign_replicas(controller.image, asked, change, updates or controller.updates)
    decided, answer = controller.decide(deciding)
    return [*decided], told(answer)


def says(topic_id: bytes, index: int, *directories: bytes) -> records.PartitionChangeRecord:
    return records.PartitionChangeRecord(topic_id=topic_id, partition_id=index, directories=[*directories])


def test_each_partition_is_recorded_and_answered_separately(controller: ActiveController) -> None:
    asked = request({A: {FOO: [0, 2, 7], UNKNOWN: [0, 1]}, B: {FOO: [1], BAR: [0]}})
    decided, answer = assigned(controller, asked)
    assert decided == [
        says(FOO, 0, A, UNASSIGNED),
        says(FOO, 1, UNASSIGNED, B),
        says(BAR, 0, B, UNASSIGNED),
    ]
    assert answer == {
        A: {
            FOO: {0: Error.NONE, 2: Error.NOT_LEADER_OR_FOLLOWER, 7: Error.UNKNOWN_TOPIC_OR_PARTITION},
            UNKNOWN: {0: Error.UNKNOWN_TOPIC_ID, 1: Error.UNKNOWN_TOPIC_ID},
        },
        B: {FOO: {1: Error.NONE}, BAR: {0: Error.NONE}},
    }
    assert controller.updates.changes == []


def test_a_known_directory_makes_no_record(controller: ActiveController) -> None:
    asked = request({A: {FOO: [0]}})
    assigned(controller, asked)
    assert assigned(controller, asked) == ([], {A: {FOO: {0: Error.NONE}}})


@pytest.mark.parametrize("gone", [OFFLINE, LOST])
def test_a_replica_in_a_directory_that_is_not_online_leaves_its_isr(
    controller: ActiveController, gone: bytes
) -> None:
    decided, answer = assigned(controller, request({A: {FOO: [0]}, gone: {BAR: [0]}}))
    assert decided == [says(FOO, 0, A, UNASSIGNED), says(BAR, 0, gone, UNASSIGNED), MARK]
    assert answer[gone] == {BAR: {0: Error.NONE}}
    assert controller.updates.changes == [BrokerChange(removed=1, directories={gone})]


def test_isr_changes_are_decided_with_the_new_directories(controller: ActiveController) -> None:
    seen = []

    async def updates(image: ClusterImage, of: BrokerChange) -> list[Message]:
        seen.append(image.topics_by_id[BAR].partitions[0].directories)
        await turn()
        return []

    assigned(controller, request({OFFLINE: {BAR: [0]}}), updates)
    assert seen == [[OFFLINE, UNASSIGNED]]


def test_the_image_does_not_change_before_the_records_are_written(controller: ActiveController) -> None:
    partition = controller.image.topics_by_id[BAR].partitions[0]
    epoch = partition.partition_epoch
    at_once(assign_replicas(controller.image, request({OFFLINE: {BAR: [0]}}), change, controller.updates))
    assert controller.image.topics_by_id[BAR].partitions[0] is partition
    assert (partition.directories, partition.partition_epoch) == ([UNASSIGNED, UNASSIGNED], epoch)


def test_a_replica_already_recorded_in_that_directory_leaves_its_isr_too(
    controller: ActiveController,
) -> None:
    controller.write([says(BAR, 0, OFFLINE, UNASSIGNED)])
    assert assigned(controller, request({OFFLINE: {BAR: [0]}}))[0] == [MARK]


def test_a_broker_without_a_replica_changes_nothing(controller: ActiveController) -> None:
    assert assigned(controller, request({OFFLINE: {BAR: [2], UNKNOWN: [0]}}))[0] == []
    assert controller.updates.changes == []


@pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1])
def test_a_request_with_another_broker_epoch_is_refused(controller: ActiveController, epoch: int) -> None:
    with pytest.raises(KafkaError, match="STALE_BROKER_EPOCH"):
        assigned(controller, request({A: {FOO: [0]}}, epoch=epoch))


def test_a_metadata_version_without_directories_refuses_the_request() -> None:
    with pytest.raises(KafkaError) as refusal:
        assigned(ActiveController(16), request({}))
    assert refusal.value.error is Error.UNSUPPORTED_VERSION
    assert refusal.value.message == "Directory assignment is not supported yet."
    with pytest.raises(KafkaError, match="STALE_BROKER_EPOCH"):
        assigned(ActiveController(17), request({}))


def test_a_failed_write_is_the_answer_and_the_records_may_be_split(controller: ActiveController) -> None:
    result = at_once(assign_replicas(controller.image, request({}), change, controller.updates))
    failure = KafkaError(Error.NOT_CONTROLLER)
    assert result.answer(failure) is failure
    assert result.may_split


@pytest.mark.parametrize(
    "wanted",
    [
        {A: {FOO: [0] * 1_000}},
        {A: {number.to_bytes(16, "big"): [] for number in range(1_000)}},
        {directory(1, 0)[:-2] + number.to_bytes(2, "big"): {} for number in range(1_000)},
    ],
)
def test_a_long_request_is_decided_in_steps(
    controller: ActiveController, wanted: dict[bytes, dict[bytes, list[int]]]
) -> None:
    deciding = assign_replicas(controller.image, request(wanted), change, controller.updates)
    assert pauses(deciding) == 2


def test_changes_for_an_offline_directory_are_applied_in_steps(
    controller: ActiveController,
) -> None:
    wanted = request({OFFLINE: {FOO: [0] * 1_000}})
    deciding = assign_replicas(controller.image, wanted, change, controller.updates)
    assert pauses(deciding) == 2 + 2 + 1

"""The metadata log: what was applied while running is what a restart finds."""

from pathlib import Path
from typing import Any

import pytest

from broker.controller import broker_records, metadata_log, metadata_versions, topic_requests
from broker.controller.controller import Controller, ControllerResult
from broker.controller.image import ClusterImage, MetadataContradictionError, TopicImage
from broker.controller.metadata_log import MetadataLog
from broker.controller.metadata_versions import encode_metadata_record
from broker.controller.replica_placer import Placement, StripedReplicaPlacer
from broker.controller.topic_requests import NewPartitions, TopicDefaults, more_partitions_of_topic
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsTopic,
)
from protocol.records.batch import build_batch
from protocol.waiting import Pause, at_once
from protocol.wire.schema import Message
from storage.directory.log_directory import METADATA_TOPIC
from storage.log.log_config import LogConfig
from storage.log.log_state import AppendOrigin
from storage.log.partition_log import PartitionLog
from tests.support.disk import files
from tests.support.immediate_background import run_at_once
from tests.support.leadership import elect, register_broker, take_leadership_away
from tests.support.manual_clock import ManualClock
from tests.support.submitting import submit_to, unexpected

NODE = 1
DIRECTORY = bytes(range(16))
PLACER = StripedReplicaPlacer(lambda count: 0, Placement(NODE, [DIRECTORY]))
TOPIC_ID = b"T" * 16


def open_log(folder: Path, clock: ManualClock) -> MetadataLog:
    log = PartitionLog.open(
        str(folder),
        METADATA_TOPIC,
        0,
        LogConfig(),
        now_ms=clock.now_ms(),
        clean=False,
        files=files,
        background=run_at_once,
    )
    return MetadataLog(log, ClusterImage(), clock)


@pytest.fixture
def metadata(tmp_path: Path) -> MetadataLog:
    metadata = open_log(tmp_path / "log", ManualClock())
    metadata.become_leader(NODE)
    metadata.append_transaction("Bootstrap records", metadata_versions.feature_levels())
    register(metadata)
    return metadata


def register(metadata: MetadataLog) -> None:
    epoch = metadata.next_offset
    metadata.append(
        [register_broker(NODE, b"i" * 16, epoch, [("PLAINTEXT", "127.0.0.1", 9092)], [DIRECTORY], None)]
    )
    metadata.append([broker_records.unfence(NODE, epoch), *elect(metadata.image, NODE, [DIRECTORY])])


def replayed(metadata: MetadataLog) -> MetadataLog:
    again = open_log(Path(metadata.log.directory), ManualClock())
    again.replay()
    return again


class Submitting:
    """Appends records by the controller. Raises the error if the request as a whole is refused."""

    def __init__(self, metadata: MetadataLog) -> None:
        self._controller = Controller(metadata)

    def __call__(self, decided: list[Message]) -> None:
        replies: list[object] = []
        submit_to(
            self._controller,
            lambda image: ControllerResult(decided, lambda failure: failure),
            replies.append,
            unexpected,
        )
        (answer,) = replies
        if isinstance(answer, KafkaError):
            raise answer


def state(image: ClusterImage) -> dict[str, Any]:
    """Return everything in an image, in a form that can be compared."""

    def topic(topic: TopicImage) -> Any:
        return (
            topic.topic_id,
            {
                index: {name: getattr(partition, name) for name in partition.__slots__}
                for index, partition in topic.partitions.items()
            },
        )

    return {
        "topics": {name: topic(found) for name, found in image.topics.items()},
        "ids": {topic_id: found.name for topic_id, found in image.topics_by_id.items()},
        "configs": image.configs,
        "features": image.features,
        "producer id": image.next_producer_id,
        "brokers": {key: (broker.record, broker.fenced) for key, broker in image.brokers.items()},
    }


def create(metadata: MetadataLog, name: str, *, topic_id: bytes = TOPIC_ID, **fields: Any) -> list[Message]:
    fields = {"num_partitions": 2, "replication_factor": 1, **fields}
    decided = at_once(
        topic_requests.new_topic(
            NewPartitions(metadata.image, name, topic_id, PLACER),
            CreatableTopic(name=name, **fields),
            defaults=TopicDefaults(3, 1),
            check_configs=lambda configs: None,
            pause=Pause(),
        )
    )
    metadata.append(decided)
    return decided


def refusal(metadata: MetadataLog, name: str, **fields: Any) -> Error:
    with pytest.raises(KafkaError) as refused:
        create(metadata, name, topic_id=b"U" * 16, **fields)
    return refused.value.error


def test_a_restart_finds_the_applied_records(metadata: MetadataLog) -> None:
    create(metadata, "a", configs=[CreatableTopicConfig(name="retention.ms", value="5")])
    create(metadata, "b", topic_id=b"b" * 16)
    metadata.append([records.ProducerIdsRecord(broker_id=NODE, broker_epoch=1, next_producer_id=1000)])
    metadata.append(topic_requests.removed_topic(metadata.image.topics["b"]))
    metadata.append(take_leadership_away(metadata.image, NODE))
    assert set(metadata.image.topics) == {"a"}
    assert state(replayed(metadata).image) == state(metadata.image)


@pytest.mark.limit("broker.controller.metadata_log.MAX_RECORDS_PER_BATCH")
def test_a_decision_of_several_batches_is_written_only_if_it_may_be_split(
    metadata: MetadataLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_log, "MAX_RECORDS_PER_BATCH", 2)
    decided: list[Message] = [
        records.ProducerIdsRecord(broker_id=NODE, broker_epoch=1, next_producer_id=number)
        for number in (1000, 2000, 3000)
    ]
    before = metadata.next_offset
    for refused in (metadata.append, Submitting(metadata)):
        with pytest.raises(KafkaError) as refusal:
            refused(decided)
        assert refusal.value.error is Error.UNKNOWN_SERVER_ERROR
    assert metadata.next_offset == before
    metadata.append(decided[:2])
    metadata.append(decided, may_split=True)
    assert metadata.next_offset == before + 5
    assert metadata.image.next_producer_id == 3000
    assert state(replayed(metadata).image) == state(metadata.image)


def test_each_run_has_its_own_leader_epoch(metadata: MetadataLog) -> None:
    again = replayed(metadata)
    again.become_leader(NODE)
    assert (metadata.epoch, again.epoch) == (1, 2)


def test_a_restart_adds_two_to_a_partitions_leader_epoch(metadata: MetadataLog) -> None:
    create(metadata, "a")
    again = replayed(metadata)
    again.become_leader(NODE)
    again.append(take_leadership_away(again.image, NODE))
    partition = again.image.topics["a"].partitions[0]
    assert (partition.leader, partition.isr, partition.elr) == (-1, [], [NODE])
    register(again)
    partition = again.image.topics["a"].partitions[0]
    assert (partition.leader, partition.isr, partition.elr) == (NODE, [NODE], [])
    assert partition.leader_epoch == 2


def append_raw(metadata: MetadataLog, *found: Message) -> None:
    batch = build_batch([(0, None, encode_metadata_record(record, 0), ()) for record in found])
    metadata.log.append(batch, leader_epoch=1, now_ms=0, origin=AppendOrigin.RAFT_LEADER)


def test_records_of_a_transaction_without_its_end_do_not_count(metadata: MetadataLog) -> None:
    topic = records.TopicRecord(name="a", topic_id=TOPIC_ID)
    append_raw(metadata, records.BeginTransactionRecord(name="x"), topic)
    assert replayed(metadata).image.topics == {}


def test_records_of_an_aborted_transaction_do_not_count(metadata: MetadataLog) -> None:
    topic = records.TopicRecord(name="a", topic_id=TOPIC_ID)
    append_raw(metadata, records.BeginTransactionRecord(name="x"), topic)
    append_raw(metadata, records.AbortTransactionRecord(reason="x"))
    append_raw(metadata, records.TopicRecord(name="b", topic_id=TOPIC_ID))
    assert set(replayed(metadata).image.topics) == {"b"}


def test_records_of_a_transaction_count_at_its_end(metadata: MetadataLog) -> None:
    topic = records.TopicRecord(name="a", topic_id=TOPIC_ID)
    append_raw(metadata, records.BeginTransactionRecord(name="x"), topic)
    append_raw(metadata, records.EndTransactionRecord())
    assert set(replayed(metadata).image.topics) == {"a"}


@pytest.mark.parametrize(
    "record",
    [
        records.PartitionRecord(topic_id=b"?" * 16, partition_id=0),
        records.PartitionChangeRecord(topic_id=b"?" * 16, partition_id=0),
        records.RemoveTopicRecord(topic_id=b"?" * 16),
        records.BrokerRegistrationChangeRecord(broker_id=9),
        records.UnfenceBrokerRecord(id=9),
        records.ClearElrRecord(topic_name="nowhere"),
    ],
)
def test_a_record_that_contradicts_the_ones_before_is_refused(record: Message) -> None:
    with pytest.raises(MetadataContradictionError):
        ClusterImage().apply(record)


def test_a_change_that_sets_no_leader_keeps_the_leader_epoch(metadata: MetadataLog) -> None:
    create(metadata, "a")
    metadata.append([records.PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, isr=[NODE])])
    partition = metadata.image.topics["a"].partitions[0]
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 1)


@pytest.mark.limit("broker.controller.image.MAX_NAME_LENGTH")
@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a b", "ä", "a/b"])
def test_a_name_that_no_topic_can_have_is_refused(metadata: MetadataLog, name: str) -> None:
    assert refusal(metadata, name) == Error.INVALID_TOPIC_EXCEPTION


def test_a_name_that_exists_is_refused(metadata: MetadataLog) -> None:
    create(metadata, "a_b")
    assert refusal(metadata, "a_b") == Error.TOPIC_ALREADY_EXISTS


def test_a_name_that_collides_in_metrics_is_refused(metadata: MetadataLog) -> None:
    create(metadata, "a_b")
    assert refusal(metadata, "a.b") == Error.INVALID_TOPIC_EXCEPTION


def test_a_name_stops_colliding_once_all_similar_ones_are_deleted(metadata: MetadataLog) -> None:
    create(metadata, "a_b")
    metadata.append(topic_requests.removed_topic(metadata.image.topics["a_b"]))
    assert not metadata.image.topics_like("a.b")
    create(metadata, "a.b")
    assert refusal(metadata, "a_b") == Error.INVALID_TOPIC_EXCEPTION


def test_names_that_came_to_collide_are_each_in_the_way(metadata: MetadataLog) -> None:
    both = [TOPIC_ID, bytes(15) + b"\x77"]
    metadata.append(
        [
            records.TopicRecord(name=name, topic_id=topic_id)
            for name, topic_id in zip(("a.b", "a_b"), both, strict=True)
        ]
    )
    assert metadata.image.topics_like("a_b") == ["a.b", "a_b"]
    metadata.append(topic_requests.removed_topic(metadata.image.topics["a.b"]))
    assert metadata.image.topics_like("a.b") == ["a_b"]


@pytest.mark.parametrize("name", ["ab", "a-b"])
def test_a_name_without_dots_and_underscores_collides_with_none(metadata: MetadataLog, name: str) -> None:
    create(metadata, "a_b")
    assert not metadata.image.topics_like(name)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"replication_factor": 0}, Error.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": -2, "num_partitions": 0}, Error.INVALID_REPLICATION_FACTOR),
        ({"num_partitions": 0, "replication_factor": 3}, Error.INVALID_PARTITIONS),
        ({"num_partitions": -2}, Error.INVALID_PARTITIONS),
        ({"replication_factor": 2}, Error.INVALID_REPLICATION_FACTOR),
    ],
)
def test_counts_that_cannot_be_are_refused_in_kafkas_order(
    metadata: MetadataLog, fields: dict[str, int], error: Error
) -> None:
    assert refusal(metadata, "a", **fields) == error


def assignment(index: int, *brokers: int) -> CreatableReplicaAssignment:
    return CreatableReplicaAssignment(partition_index=index, broker_ids=[*brokers])


@pytest.mark.parametrize(
    ("assignments", "error"),
    [
        ([assignment(0, 1), assignment(0, 1)], Error.INVALID_REPLICA_ASSIGNMENT),
        ([assignment(0)], Error.INVALID_REPLICA_ASSIGNMENT),
        ([assignment(0, 9)], Error.INVALID_REPLICA_ASSIGNMENT),
        ([assignment(0, 1, 1)], Error.INVALID_REPLICA_ASSIGNMENT),
        ([assignment(0, 1), assignment(2, 1)], Error.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_assignments_that_cannot_be_are_refused(
    metadata: MetadataLog, assignments: list[CreatableReplicaAssignment], error: Error
) -> None:
    fields = {"num_partitions": -1, "replication_factor": -1, "assignments": assignments}
    assert refusal(metadata, "a", **fields) == error


@pytest.mark.parametrize("counts", [{"num_partitions": 1}, {"replication_factor": 1}])
def test_assignments_and_counts_together_are_refused(metadata: MetadataLog, counts: dict[str, int]) -> None:
    fields = {"num_partitions": -1, "replication_factor": -1, **counts, "assignments": [assignment(0, 1)]}
    assert refusal(metadata, "a", **fields) == Error.INVALID_REQUEST


def test_assignments_give_the_partitions(metadata: MetadataLog) -> None:
    create(
        metadata,
        "a",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[assignment(1, NODE), assignment(0, NODE)],
    )
    assert set(metadata.image.topics["a"].partitions) == {0, 1}


def more(
    metadata: MetadataLog, count: int, assignments: list[list[int]] | None = None, name: str = "a"
) -> list[Message]:
    wanted = CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=None
        if assignments is None
        else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments],
    )
    topic = metadata.image.topics.get(name)
    new = NewPartitions(metadata.image, name, TOPIC_ID if topic is None else topic.topic_id, PLACER)
    return [*at_once(more_partitions_of_topic(new, wanted, lambda partitions: None, Pause()))]


@pytest.mark.parametrize(
    ("count", "assignments", "error"),
    [
        (2, None, Error.INVALID_PARTITIONS),
        (1, None, Error.INVALID_PARTITIONS),
        (-1, None, Error.INVALID_PARTITIONS),
        (3, [], Error.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1], [1]], Error.INVALID_REPLICA_ASSIGNMENT),
        (3, [[]], Error.INVALID_REPLICA_ASSIGNMENT),
        (3, [[7]], Error.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_partitions_that_cannot_be_added_are_refused(
    metadata: MetadataLog, count: int, assignments: list[list[int]] | None, error: Error
) -> None:
    create(metadata, "a")
    with pytest.raises(KafkaError) as refused:
        more(metadata, count, assignments)
    assert refused.value.error == error


def test_new_partitions_follow_the_existing_ones(metadata: MetadataLog) -> None:
    create(metadata, "a")
    metadata.append(more(metadata, 4))
    assert sorted(metadata.image.topics["a"].partitions) == [0, 1, 2, 3]
    assert state(replayed(metadata).image) == state(metadata.image)


def test_partitions_of_an_unknown_topic_are_refused(metadata: MetadataLog) -> None:
    with pytest.raises(KafkaError) as refused:
        more(metadata, 4, name="nowhere")
    assert refused.value.error == Error.UNKNOWN_TOPIC_OR_PARTITION

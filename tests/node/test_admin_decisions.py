"""Decisions of the control plane: settings, features, replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from broker.config.alterations import Alteration
from broker.config.assembly import assemble, settings_of
from broker.config.broker_config import BrokerConfig
from broker.controller import config_decisions, feature_decisions
from broker.controller.broker_records import min_insync_replicas, unfence
from broker.controller.feature_decisions import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE, FeatureUpdate
from broker.controller.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, UNASSIGNED, ClusterImage
from broker.controller.metadata_versions import feature_levels
from broker.controller.partition_changes import OwnSettings, partition_named
from broker.controller.partition_requests import PREFERRED, UNCLEAN, elected_leaders, reassigned_partitions
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.messages.cluster_admin import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ElectLeadersTopic,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.waiting import at_once
from protocol.wire.schema import Message
from tests.support.leadership import elect, register_broker, take_leadership_away

NODE = 1
TOPIC_ID = b"T" * 16
DIRECTORY, FAILED = b"d" * 16, b"f" * 16
IN_FAILED_DIRECTORY = records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, directories=[FAILED])
SET, DELETE = 0, 1


@pytest.fixture
def image() -> ClusterImage:
    """A cluster of one broker with the topic t of one partition."""
    image = ClusterImage()
    apply(image, *feature_levels(), min_insync_replicas(1))
    apply(image, register_broker(NODE, b"i" * 16, 5, [("PLAINTEXT", "127.0.0.1", 9092)], [b"d" * 16], None))
    apply(image, unfence(NODE, 5))
    apply(image, records.TopicRecord(name="t", topic_id=TOPIC_ID))
    apply(
        image,
        records.PartitionRecord(
            partition_id=0,
            topic_id=TOPIC_ID,
            replicas=[NODE],
            isr=[NODE],
            leader=NODE,
            leader_epoch=0,
            directories=[DIRECTORY],
        ),
    )
    return image


@pytest.fixture
def config() -> BrokerConfig:
    return assemble([settings_of({})])


def apply(image: ClusterImage, *decided: Message) -> None:
    for record in decided:
        image.apply(record)


def setting(kind: int, name: str, key: str, value: str | None) -> Message:
    return records.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)


# --- settings -----------------------------------------------------------------------------------------------


def test_a_set_value_becomes_a_record(image: ClusterImage, config: BrokerConfig) -> None:
    wanted = [Alteration("retention.ms", SET, "5"), Alteration("segment.ms", DELETE, None)]

    decided = config_decisions.altered(image, config, (TOPIC_RESOURCE, "t"), wanted)

    assert decided == [setting(TOPIC_RESOURCE, "t", "retention.ms", "5")]


def test_a_value_that_is_already_set_needs_no_record(image: ClusterImage, config: BrokerConfig) -> None:
    apply(image, setting(TOPIC_RESOURCE, "t", "retention.ms", "5"))

    same = [Alteration("retention.ms", SET, "5")]

    assert config_decisions.altered(image, config, (TOPIC_RESOURCE, "t"), same) == []


def test_replacing_removes_the_settings_not_named(image: ClusterImage, config: BrokerConfig) -> None:
    apply(image, setting(GROUP_RESOURCE, "g", "consumer.session.timeout.ms", "50000"))

    decided = config_decisions.replaced(
        image, config, (GROUP_RESOURCE, "g"), {"consumer.heartbeat.interval.ms": "6000"}
    )
    apply(image, *decided)

    assert image.configs[GROUP_RESOURCE, "g"] == {"consumer.heartbeat.interval.ms": "6000"}


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("", Error.INVALID_REQUEST),
        ("a/b", Error.INVALID_TOPIC_EXCEPTION),
        ("nowhere", Error.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_topic_that_is_not_there_has_no_settings(
    image: ClusterImage, config: BrokerConfig, name: str, error: Error
) -> None:
    with pytest.raises(KafkaError) as refused:
        config_decisions.altered(
            image, config, (TOPIC_RESOURCE, name), [Alteration("retention.ms", SET, "5")]
        )
    assert refused.value.error is error


def test_replacing_a_brokers_settings_writes_those_that_stay_too(
    image: ClusterImage, config: BrokerConfig
) -> None:
    for key, value in (("log.retention.ms", "7"), ("log.roll.ms", "9")):
        image.apply(setting(BROKER_RESOURCE, "1", key, value))
    decided = config_decisions.replaced(image, config, (BROKER_RESOURCE, "1"), {"log.retention.ms": "7"})
    assert decided == [
        setting(BROKER_RESOURCE, "1", "log.retention.ms", "7"),
        setting(BROKER_RESOURCE, "1", "log.roll.ms", None),
    ]


def test_another_min_insync_replicas_clears_the_eligible_replicas(image: ClusterImage) -> None:
    decided = [
        setting(TOPIC_RESOURCE, "t", "min.insync.replicas", "2"),
        setting(BROKER_RESOURCE, "", "min.insync.replicas", "2"),
        setting(TOPIC_RESOURCE, "t", "retention.ms", "2"),
    ]

    cleared = config_decisions.cleared_elr(image, decided)

    assert cleared == [records.ClearElrRecord(topic_name="t"), records.ClearElrRecord(topic_name="")]


# --- features -----------------------------------------------------------------------------------------------


def update(image: ClusterImage, *wanted: tuple[str, int, int]) -> list[Message]:
    updates = [FeatureUpdate(*update) for update in wanted]
    return at_once(feature_decisions.updated(image, updates, kraft_version=0, static_min_insync_replicas=3))


def test_a_feature_is_lowered_and_raised_again(image: ClusterImage) -> None:
    apply(image, *update(image, ("group.version", 0, SAFE_DOWNGRADE)))
    assert "group.version" not in image.features

    apply(image, *update(image, ("group.version", 1, UPGRADE)))
    assert image.features["group.version"] == 1


@pytest.mark.parametrize(
    "wanted",
    [
        ("group.version", 0, UPGRADE),
        ("group.version", 2, UPGRADE),
        ("group.version", -1, SAFE_DOWNGRADE),
        ("group.version", 1, 0),
        ("no.such", 1, UPGRADE),
        ("metadata.version", 32, SAFE_DOWNGRADE),
        ("metadata.version", 30, SAFE_DOWNGRADE),
        ("metadata.version", 29, UNSAFE_DOWNGRADE),
        ("metadata.version", 34, UPGRADE),
        ("kraft.version", 1, SAFE_DOWNGRADE),
        ("kraft.version", 2, UPGRADE),
    ],
)
def test_a_level_that_cannot_be_is_refused(image: ClusterImage, wanted: tuple[str, int, int]) -> None:
    with pytest.raises(KafkaError) as refused:
        update(image, ("share.version", 0, SAFE_DOWNGRADE), wanted)
    assert refused.value.error is Error.INVALID_UPDATE_VERSION


def test_moved_voters_are_no_record_of_a_decision(image: ClusterImage) -> None:
    """Kafka's control records stand before the decision, and a NoOpRecord is what the answer waits for."""
    wanted = [FeatureUpdate("kraft.version", 1, UPGRADE)]
    assert update(image, *wanted) == [records.NoOpRecord()]
    assert feature_decisions.moves_voters(wanted, 0)
    assert not feature_decisions.moves_voters(wanted, 1)
    assert not feature_decisions.moves_voters([FeatureUpdate("group.version", 1, UPGRADE)], 0)


def test_the_feature_is_named_that_kafkas_hash_map_has_first(image: ClusterImage) -> None:
    names = ("metadata.version", "share.version", "kraft.version", "transaction.version")
    with pytest.raises(KafkaError, match=r"for feature kraft\.version"):
        update(image, *((name, -1, SAFE_DOWNGRADE) for name in names))
    with pytest.raises(KafkaError, match=r"for feature metadata\.version"):
        update(image, *((name, -1, SAFE_DOWNGRADE) for name in names if name != "kraft.version"))


@pytest.mark.parametrize("kind", ["broker", "controller"])
@pytest.mark.parametrize(
    ("wanted", "range_told"),
    [
        (("metadata.version", 33, UPGRADE), "7-30"),
        (("metadata.version", 31, UPGRADE), "7-30"),
        (("share.version", 2, UPGRADE), "0-1"),
        (("transaction.version", 1, SAFE_DOWNGRADE), "0-0"),
    ],
)
def test_a_level_that_a_registered_node_does_not_support_is_refused(
    image: ClusterImage, kind: str, wanted: tuple[str, int, int], range_told: str
) -> None:
    """The refusal is in Kafka's words: a node of 4.3 keeps its cluster from going past its level."""
    for name, level in (("metadata.version", 30), ("share.version", 1)):
        apply(image, records.FeatureLevelRecord(name=name, feature_level=level))
    ranges = {"metadata.version": (7, 30), "share.version": (0, 1)}
    of_it = records.BrokerFeature if kind == "broker" else records.ControllerFeature
    features: list[Any] = [
        of_it(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in ranges.items()
    ]
    if kind == "broker":
        apply(image, records.RegisterBrokerRecord(broker_id=7, features=features))
    else:
        apply(image, records.RegisterControllerRecord(controller_id=7, features=features))
    with pytest.raises(KafkaError) as refused:
        update(image, wanted)
    assert refused.value.error is Error.INVALID_UPDATE_VERSION
    name, level, _ = wanted
    told = f"{kind.title()} 7 only supports versions {range_told}"
    assert refused.value.message == f"Invalid update version {level} for feature {name}. {told}"
    assert update(image, ("group.version", 0, SAFE_DOWNGRADE)), "0-0 is the range of what a node doesn't name"


def test_metadata_goes_back_where_no_record_changed(image: ClusterImage) -> None:
    apply(image, records.FeatureLevelRecord(name="metadata.version", feature_level=29))

    assert update(image, ("metadata.version", 24, SAFE_DOWNGRADE))
    with pytest.raises(KafkaError):
        update(image, ("metadata.version", 22, SAFE_DOWNGRADE))


def test_eligible_replicas_bring_the_number_in_sync_to_the_cluster(image: ClusterImage) -> None:
    apply(image, *update(image, ("eligible.leader.replicas.version", 0, SAFE_DOWNGRADE)))
    apply(image, setting(BROKER_RESOURCE, "", "min.insync.replicas", None))
    apply(image, setting(BROKER_RESOURCE, "1", "min.insync.replicas", "2"))

    apply(image, *update(image, ("eligible.leader.replicas.version", 1, UPGRADE)))

    assert image.configs == {(BROKER_RESOURCE, ""): {"min.insync.replicas": "3"}}


# --- replicas -----------------------------------------------------------------------------------------------


def refusal_of_election(image: ClusterImage, topic: str, index: int, kind: int) -> Error:
    with pytest.raises(KafkaError) as refused:
        elected(image, topic, index, kind)
    return refused.value.error


def elected(image: ClusterImage, topic: str, index: int, kind: int) -> Sequence[Message]:
    """Return the decided records. Raises KafkaError if the partition's change is refused."""
    asked = ElectLeadersTopic(topic=topic, partitions=[index])
    request = ElectLeadersRequest(election_type=kind, topic_partitions=[asked])
    decided = at_once(elected_leaders(image, request, OwnSettings()))
    (told,) = decided.answer(None).replica_election_results[0].partition_result
    if told.error_code:
        raise KafkaError(Error(told.error_code), told.error_message)
    return decided.records


def test_a_preferred_leader_needs_no_election(image: ClusterImage) -> None:
    for kind in (PREFERRED, UNCLEAN):
        assert refusal_of_election(image, "t", 0, kind) is Error.ELECTION_NOT_NEEDED
        assert refusal_of_election(image, "t", 1, kind) is Error.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_without_a_leader_gets_one(image: ClusterImage) -> None:
    apply(image, records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=-1))

    apply(
        image,
        *elected(image, "t", 0, PREFERRED),
    )

    assert image.topics["t"].partitions[0].leader == NODE


@pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN])
def test_an_election_clears_the_eligible_replicas(image: ClusterImage, kind: int) -> None:
    apply(image, *take_leadership_away(image, NODE))
    partition = image.topics["t"].partitions[0]
    assert (partition.isr, partition.elr, partition.last_known_elr) == ([], [NODE], [NODE])

    apply(
        image,
        *elected(image, "t", 0, kind),
    )

    assert (partition.leader, partition.isr) == (NODE, [NODE])
    assert (partition.elr, partition.last_known_elr) == ([], [])


def test_a_start_clears_the_eligible_replicas(image: ClusterImage) -> None:
    apply(image, *take_leadership_away(image, NODE))
    apply(image, *elect(image, NODE, [DIRECTORY]))
    partition = image.topics["t"].partitions[0]
    assert (partition.leader, partition.elr, partition.last_known_elr) == (NODE, [], [])


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (PREFERRED, Error.PREFERRED_LEADER_NOT_AVAILABLE),
        (UNCLEAN, Error.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_a_replica_in_a_directory_that_failed_is_not_elected(
    image: ClusterImage, kind: int, error: Error
) -> None:
    apply(image, *take_leadership_away(image, NODE), IN_FAILED_DIRECTORY)
    assert refusal_of_election(image, "t", 0, kind) is error


def reassign(image: ClusterImage, replicas: list[int] | None, *, factor: bool = True) -> Sequence[Message]:
    """Return the decided records. Raises KafkaError if the partition's change is refused."""
    asked = ReassignableTopic(
        name="t", partitions=[ReassignablePartition(partition_index=0, replicas=replicas)]
    )
    request = AlterPartitionReassignmentsRequest(topics=[asked], allow_replication_factor_change=factor)
    decided = at_once(reassigned_partitions(image, request, OwnSettings()))
    (told,) = decided.answer(None).responses[0].partitions
    if told.error_code:
        raise KafkaError(Error(told.error_code), told.error_message)
    return decided.records


@pytest.mark.parametrize(
    ("topic", "index", "message"),
    [("nowhere", 0, "No such topic as nowhere"), ("t", 9, "No such partition as t-9")],
)
def test_the_answer_says_whether_the_topic_or_the_partition_is_missing(
    image: ClusterImage, topic: str, index: int, message: str
) -> None:
    with pytest.raises(KafkaError) as refused:
        partition_named(image, topic, index)
    assert (refused.value.error, refused.value.message) == (Error.UNKNOWN_TOPIC_OR_PARTITION, message)


def test_a_partition_is_reassigned_to_where_it_is(image: ClusterImage) -> None:
    assert reassign(image, [NODE]) == []


@pytest.mark.parametrize(
    ("replicas", "error"),
    [
        ([], Error.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], Error.INVALID_REPLICA_ASSIGNMENT),
        ([2], Error.INVALID_REPLICA_ASSIGNMENT),
        (None, Error.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_a_reassignment_that_cannot_be_is_refused(
    image: ClusterImage, replicas: list[int] | None, error: Error
) -> None:
    with pytest.raises(KafkaError) as refused:
        reassign(image, replicas)
    assert refused.value.error is error


def test_a_partition_with_more_replicas_shrinks_to_the_one_here_once_that_is_in_sync(
    image: ClusterImage,
) -> None:
    wide = records.PartitionChangeRecord(
        partition_id=0,
        topic_id=TOPIC_ID,
        replicas=[2, NODE],
        isr=[2],
        leader=2,
        eligible_leader_replicas=[NODE],
        last_known_elr=[NODE],
    )
    apply(image, wide)
    with pytest.raises(KafkaError) as refused:
        reassign(image, [NODE], factor=False)
    assert refused.value.error is Error.INVALID_REPLICATION_FACTOR

    apply(image, *reassign(image, [NODE]))

    partition = image.topics["t"].partitions[0]
    assert (partition.replicas, partition.isr, partition.leader) == ([NODE, 2], [2], -1)

    apply(image, *elected(image, "t", 0, UNCLEAN))
    apply(image, *reassign(image, [NODE]))

    assert (partition.replicas, partition.isr, partition.leader) == ([NODE], [NODE], NODE)
    assert (partition.elr, partition.last_known_elr) == ([], [])


def test_a_partition_in_a_directory_that_failed_waits_to_shrink_and_has_no_leader(
    image: ClusterImage,
) -> None:
    apply(image, *take_leadership_away(image, NODE))
    wide = records.PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC_ID, replicas=[2, NODE], directories=[UNASSIGNED, FAILED]
    )
    apply(image, wide)
    apply(image, *reassign(image, [NODE]))
    partition = image.topics["t"].partitions[0]
    assert (partition.replicas, partition.removing_replicas) == ([NODE, 2], [2])
    assert (partition.directories, partition.leader) == ([FAILED, UNASSIGNED], -1)
    assert (partition.isr, partition.elr, partition.last_known_elr) == ([], [NODE], [NODE])

"""Partitions of new topics, and additional partitions of existing ones: the cases of Kafka's
ReplicationControlManagerTest."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import pytest

from broker.controller.image import MIGRATING, UNASSIGNED, ClusterImage
from broker.controller.replica_placer import ReplicaPlacer, StripedReplicaPlacer
from broker.controller.topic_requests import (
    NewPartitions,
    TopicDefaults,
    is_active,
    more_partitions_of_topic,
    partitions_of_new_topic,
)
from protocol.errors import Error, KafkaError
from protocol.messages.metadata_records import PartitionRecord, TopicRecord
from protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatePartitionsAssignment,
    CreatePartitionsTopic,
)
from protocol.waiting import Pause, at_once
from tests.support.wishes import pauses
from tests.unit.controller.clusters import cluster, directory, first_of, register
from tests.unit.controller.java_randoms import MockRandom

TOPIC_ID = b"T" * 16
DEFAULTS = TopicDefaults(partitions=1, replication_factor=3)
REFUSED = KafkaError(Error.THROTTLING_QUOTA_EXCEEDED)


class Told(NamedTuple):
    """A placer that answers what a test says. It takes inactive brokers for usable."""

    replicas: list[int]

    def place(self, image: ClusterImage, count: int, replication_factor: int) -> Iterator[list[int]]:
        return (self.replicas for _ in range(count))

    def directory(self, image: ClusterImage, broker_id: int, topic: str, index: int) -> bytes:
        return directory(broker_id)

    def has_room(self, image: ClusterImage, broker_id: int) -> bool:
        return True


def new_in(image: ClusterImage, placer: ReplicaPlacer | None = None) -> NewPartitions:
    return NewPartitions(image, "foo", TOPIC_ID, placer or StripedReplicaPlacer(first_of))


def numbered(partitions: int = -1, replication_factor: int = -1) -> CreatableTopic:
    return CreatableTopic(name="foo", num_partitions=partitions, replication_factor=replication_factor)


def by_hand(*assignments: list[int], partitions: int = -1, replication_factor: int = -1) -> CreatableTopic:
    """Return a topic with assignments for partition 0 and so on."""
    wanted = numbered(partitions, replication_factor)
    wanted.assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=broker_ids)
        for index, broker_ids in enumerate(assignments)
    ]
    return wanted


def created(
    image: ClusterImage,
    wanted: CreatableTopic,
    placer: ReplicaPlacer | None = None,
    defaults: TopicDefaults = DEFAULTS,
) -> list[PartitionRecord]:
    return [*at_once(partitions_of_new_topic(new_in(image, placer), wanted, defaults, Pause()))]


def refusal(
    image: ClusterImage, wanted: CreatableTopic, placer: ReplicaPlacer | None = None
) -> tuple[Error, str | None]:
    with pytest.raises(KafkaError) as refused:
        created(image, wanted, placer)
    return refused.value.error, refused.value.message


def with_topic(image: ClusterImage, *replicas: list[int]) -> ClusterImage:
    """Add the topic foo with these partitions to the image."""
    image.apply(TopicRecord(name="foo", topic_id=TOPIC_ID))
    for index, each in enumerate(replicas):
        image.apply(
            PartitionRecord(partition_id=index, topic_id=TOPIC_ID, replicas=each, isr=each, leader=each[0])
        )
    return image


def up_to(count: int, *assignments: list[int], name: str = "foo") -> CreatePartitionsTopic:
    return CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=[CreatePartitionsAssignment(broker_ids=each) for each in assignments] or None,
    )


def extended(
    image: ClusterImage, wanted: CreatePartitionsTopic, placer: ReplicaPlacer | None = None
) -> list[PartitionRecord]:
    taken: list[int] = []
    made = [*at_once(more_partitions_of_topic(new_in(image, placer), wanted, taken.append, Pause()))]
    assert taken == [len(made)]
    return made


def extension_refusal(
    image: ClusterImage, wanted: CreatePartitionsTopic, placer: ReplicaPlacer | None = None
) -> tuple[Error, str | None]:
    with pytest.raises(KafkaError) as refused:
        extended(image, wanted, placer)
    return refused.value.error, refused.value.message


# --- what a partition begins with ---------------------------------------------------------------------------


def test_a_new_partition_has_all_its_active_replicas_in_sync_and_is_led_by_the_first() -> None:
    (made,) = created(cluster("0 1 2"), numbered(), StripedReplicaPlacer(MockRandom().draw))
    assert made == PartitionRecord(
        partition_id=0,
        topic_id=TOPIC_ID,
        replicas=[1, 2, 0],
        isr=[1, 2, 0],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[directory(1), directory(2), directory(0)],
    )
    assert made.leader_recovery_state == 0
    assert made.eligible_leader_replicas is made.last_known_elr is None
    assert made.adding_replicas == made.removing_replicas == []


@pytest.mark.parametrize("replicas", [[1, 0, 2], [0, 1, 2]])
def test_a_broker_fenced_or_about_to_go_is_not_in_sync_and_does_not_lead(replicas: list[int]) -> None:
    """This holds for placed replicas, for manual assignments, and for additional partitions of an existing topic."""
    image = cluster("0 1~ 2!")
    made = [
        *created(image, numbered(), Told(replicas)),
        *created(image, by_hand(replicas)),
        *extended(with_topic(image, [0, 1, 2]), up_to(2), Told(replicas)),
        *extended(image, up_to(2, replicas)),
    ]
    assert [(each.replicas, each.isr, each.leader) for each in made] == [(replicas, [0], 0)] * 4
    assert [each.partition_id for each in made] == [0, 0, 1, 1]


def test_brokers_are_active_that_are_registered_unfenced_and_stay() -> None:
    image = cluster("1 2! 3~ 4!~")
    assert [broker_id for broker_id in range(6) if is_active(image, broker_id)] == [1]


# --- by numbers ---------------------------------------------------------------------------------------------


def test_numbers_that_are_left_out_are_the_defaults() -> None:
    image = cluster("0 1 2")
    defaults = TopicDefaults(partitions=2, replication_factor=1)
    made = {
        (partitions, factor): created(image, numbered(partitions, factor), defaults=defaults)
        for partitions in (-1, 3)
        for factor in (-1, 2)
    }
    shapes = {wanted: (len(found), len(found[0].replicas)) for wanted, found in made.items()}
    assert shapes == {(-1, -1): (2, 1), (3, -1): (3, 1), (-1, 2): (2, 2), (3, 2): (3, 2)}
    assert [each.partition_id for each in made[3, 2]] == [0, 1, 2]


@pytest.mark.parametrize(
    ("partitions", "replication_factor", "error"),
    [
        (1, 0, Error.INVALID_REPLICATION_FACTOR),
        (1, -2, Error.INVALID_REPLICATION_FACTOR),
        (0, 1, Error.INVALID_PARTITIONS),
        (-2, 1, Error.INVALID_PARTITIONS),
        (0, 0, Error.INVALID_REPLICATION_FACTOR),
    ],
)
def test_other_numbers_have_to_be_positive(partitions: int, replication_factor: int, error: Error) -> None:
    told = {
        Error.INVALID_REPLICATION_FACTOR: "Replication factor must be larger than 0, or -1 to use the default value.",
        Error.INVALID_PARTITIONS: "Number of partitions was set to an invalid non-positive value.",
    }
    assert refusal(cluster("1"), numbered(partitions, replication_factor)) == (error, told[error])


@pytest.mark.parametrize(
    ("brokers", "factor", "reason"),
    [
        ("", -1, "All brokers are currently fenced, or have all their log directories cordoned."),
        ("0~ 1! 2!", -1, "All brokers are currently fenced, or have all their log directories cordoned."),
        (
            "0 1 2",
            4,
            "The target replication factor of 4 cannot be reached because only 3 broker(s) are registered or some "
            "brokers have all their log directories cordoned.",
        ),
    ],
)
def test_replicas_that_cannot_be_placed_are_reported_with_the_factor(
    brokers: str, factor: int, reason: str
) -> None:
    wanted = 3 if factor == -1 else factor
    assert refusal(cluster(brokers), numbered(1, factor)) == (
        Error.INVALID_REPLICATION_FACTOR,
        f"Unable to replicate the partition {wanted} time(s): {reason}",
    )


def test_an_assignment_without_an_active_broker_is_refused() -> None:
    image = cluster("0~ 1! 2!")
    told = (
        Error.INVALID_REPLICATION_FACTOR,
        "Unable to replicate the partition 3 time(s): All brokers are currently fenced or in controlled shutdown.",
    )
    placer = Told([0, 1, 2])
    assert refusal(image, numbered(), placer) == told
    assert extension_refusal(with_topic(image, [0, 1, 2]), up_to(2), placer) == told


# --- by hand ------------------------------------------------------------------------------------------------


def test_partitions_assigned_by_hand_are_in_the_order_of_their_numbers() -> None:
    wanted = by_hand([3, 1], [1, 2], [2, 3])
    wanted.assignments.reverse()
    made = created(cluster("1 2 3"), wanted)
    assert [(each.partition_id, each.replicas) for each in made] == [(0, [3, 1]), (1, [1, 2]), (2, [2, 3])]


@pytest.mark.parametrize(("partitions", "factor"), [(-1, 2), (1, -1), (1, 2), (0, -1), (-1, 0)])
def test_assignments_by_hand_exclude_numbers(partitions: int, factor: int) -> None:
    error, told = refusal(cluster("1 2"), by_hand([1, 2], partitions=partitions, replication_factor=factor))
    assert error is Error.INVALID_REQUEST
    assert told is not None
    assert ("replication factor" in told) == (factor != -1)


@pytest.mark.parametrize(
    ("assignments", "told"),
    [
        ([[]], "The manual partition assignment has an empty replica list."),
        ([[1, 2, 3]], "The manual partition assignment has broker 3, which is not registered."),
        ([[1, 2, 2]], "The manual partition assignment has broker 2, more than once."),
        ([[7, 2, 7, 2, 6]], "The manual partition assignment has broker 2, more than once."),
        ([[7, 2, 7, 2, 0]], "The manual partition assignment has broker 0, which is not registered."),
        (
            [[1, 2], [2]],
            "The manual partition assignment has a partition with 1 replica(s), others have 2.",
        ),
        (
            [[1], [1, 2]],
            "The manual partition assignment has a partition with 2 replica(s), others have 1.",
        ),
        (
            [[1], [4]],
            "All brokers of the manual partition assignment for partition 1 are fenced or in controlled shutdown.",
        ),
        (
            [[4, 5]],
            "All brokers of the manual partition assignment for partition 0 are fenced or in controlled shutdown.",
        ),
    ],
)
def test_bad_assignments(assignments: list[list[int]], told: str) -> None:
    assert refusal(cluster("1 2 4! 5~"), by_hand(*assignments)) == (Error.INVALID_REPLICA_ASSIGNMENT, told)


@pytest.mark.parametrize(
    ("broker_ids", "told"),
    [
        ([1, 2], "2, all of whose log directories are cordoned."),
        ([2, 2, 3, 3], "2, all of whose log directories are cordoned."),
        ([3, 3, 1, 1], "1, more than once."),
        ([2, 0], "0, which is not registered."),
    ],
)
def test_a_broker_without_an_uncordoned_directory_is_given_nothing_by_hand(
    broker_ids: list[int], told: str
) -> None:
    """Kafka 4.4 does so, too, and names the lowest id. Broker 3 has one more directory, which isn't cordoned."""
    image = cluster("1")
    register(image, 2, cordoned=[directory(2)])
    register(image, 3, directories=[directory(3), directory(3, 1)], cordoned=[directory(3)])
    expected = (Error.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment has broker {told}")
    assert refusal(image, by_hand(broker_ids)) == expected
    assert extension_refusal(with_topic(image, [1, 3]), up_to(2, broker_ids)) == expected
    assert [each.replicas for each in created(image, by_hand([1, 3]))] == [[1, 3]]


def test_a_partition_is_named_once() -> None:
    wanted = by_hand([1], [9])
    wanted.assignments[1].partition_index = 0
    told = "Found multiple manual partition assignments for partition 0"
    assert refusal(cluster("1"), wanted) == (Error.INVALID_REPLICA_ASSIGNMENT, told)


@pytest.mark.parametrize("indexes", [[1, 2], [0, 2], [-1, 0]])
def test_partitions_are_numbered_from_zero_without_a_gap(indexes: list[int]) -> None:
    wanted = by_hand([1], [1])
    for assignment, index in zip(wanted.assignments, indexes, strict=True):
        assignment.partition_index = index
    told = "The partitions have to be numbered from 0 without a gap."
    assert refusal(cluster("1"), wanted) == (Error.INVALID_REPLICA_ASSIGNMENT, told)


# --- more partitions ----------------------------------------------------------------------------------------


def test_more_partitions_go_on_with_the_numbers_and_have_as_many_replicas() -> None:
    image = with_topic(cluster("0 1 3"), [0, 1], [1, 3], [3, 0])
    made = extended(image, up_to(5))
    assert [(each.partition_id, len(each.replicas)) for each in made] == [(3, 2), (4, 2)]
    assert [each.partition_id for each in extended(image, up_to(5, [1, 0], [0, 3]))] == [3, 4]


def test_directories_are_the_brokers_own_to_choose_where_it_has_several() -> None:
    image = with_topic(cluster("3"), [3, 1])
    register(image, 0, directories=[])
    register(image, 1, directories=[directory(1, 1), directory(1, 2)])
    (by_hand_made,) = extended(image, up_to(2, [1, 3]))
    assert by_hand_made.directories == [UNASSIGNED, directory(3)]
    assert [each.directories for each in created(image, by_hand([0, 1], [3, 0]))] == [
        [MIGRATING, UNASSIGNED],
        [directory(3), MIGRATING],
    ]


@pytest.mark.parametrize(
    ("wanted", "error", "told"),
    [
        (up_to(3, name="baz"), Error.UNKNOWN_TOPIC_OR_PARTITION, None),
        (up_to(2), Error.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        (
            up_to(1),
            Error.INVALID_PARTITIONS,
            "The topic foo currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            up_to(4, [1, 0]),
            Error.INVALID_REPLICA_ASSIGNMENT,
            "2 partition(s) would be added, but 1 assignment(s) were given.",
        ),
        (
            up_to(3, [1]),
            Error.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment has a partition with 1 replica(s), others have 2.",
        ),
        (
            up_to(3, [2, 0]),
            Error.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment has broker 2, which is not registered.",
        ),
        (
            up_to(4, [0, 1], [5, 6]),
            Error.INVALID_REPLICA_ASSIGNMENT,
            "All brokers of the manual partition assignment for partition 3 are fenced or in controlled shutdown.",
        ),
    ],
)
def test_more_partitions_that_are_refused(
    wanted: CreatePartitionsTopic, error: Error, told: str | None
) -> None:
    assert extension_refusal(with_topic(cluster("0 1 5! 6~"), [0, 1], [1, 0]), wanted) == (error, told)


def test_more_partitions_that_cannot_be_placed_are_reported_without_the_factor() -> None:
    """A new topic's error names the factor, as in Kafka."""
    error, told = extension_refusal(with_topic(cluster("0"), [0, 1]), up_to(2))
    assert error is Error.INVALID_REPLICATION_FACTOR
    assert told is not None
    assert told.startswith("The target replication factor of 2 cannot be reached because only 1 broker(s)")


def test_the_quota_is_asked_after_the_numbers_and_before_the_brokers() -> None:
    image = with_topic(cluster("0"), [0])
    taken = []

    def take(partitions: int) -> None:
        taken.append(partitions)
        raise REFUSED

    for wanted in (up_to(4, [9], [9], [9]), up_to(3), up_to(3, [9]), up_to(1)):
        with pytest.raises(KafkaError):
            at_once(more_partitions_of_topic(new_in(image, Told([9])), wanted, take, Pause()))
    assert taken == [3, 2]


def test_a_topic_without_partitions_is_just_an_error() -> None:
    with pytest.raises(KafkaError) as refused:
        at_once(
            more_partitions_of_topic(new_in(with_topic(cluster("0"))), up_to(1), lambda _count: None, Pause())
        )
    assert refused.value.error is Error.UNKNOWN_SERVER_ERROR


# --- as much as is asked for --------------------------------------------------------------------------------


def test_partitions_are_placed_as_they_are_taken() -> None:
    image = with_topic(cluster("0 1"), [0])
    steps = more_partitions_of_topic(new_in(image), up_to(2**31 - 1), lambda _count: None, Pause())
    assert [each.partition_id for each in islice(at_once(steps), 2)] == [1, 2]


def test_others_are_served_while_many_brokers_are_checked_and_before_many_are_placed() -> None:
    image = with_topic(cluster("1 2 3"), [1, 2, 3])

    def paused(wanted: CreatableTopic | CreatePartitionsTopic) -> int:
        if isinstance(wanted, CreatableTopic):
            return pauses(partitions_of_new_topic(new_in(image), wanted, DEFAULTS, Pause(2)))
        return pauses(more_partitions_of_topic(new_in(image), wanted, lambda _count: None, Pause(2)))

    assert paused(numbered(2, 2)) == paused(up_to(2)) == 1
    assert paused(by_hand([1, 2, 3], [1, 2, 3])) == paused(up_to(3, [1, 2, 3], [1, 2, 3])) == 3

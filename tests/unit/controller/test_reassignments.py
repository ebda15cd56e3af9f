"""Reassignments: the cases of Kafka's ReplicationControlManagerTest."""

from __future__ import annotations

import pytest

from broker.controller.controller import MAX_RECORDS_PER_REQUEST, ControllerResult
from broker.controller.image import NO_LEADER
from broker.controller.partition_requests import ongoing_reassignments, reassigned_partitions
from protocol.errors import Error, KafkaError
from protocol.messages.cluster_admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.metadata_records import BrokerRegistrationChangeRecord
from protocol.waiting import PER_STEP, at_once
from tests.support.wishes import pauses
from tests.unit.controller.partitions import OWN, Cluster, changed, directory

Wanted = dict[str, dict[int, list[int] | None]]


def request(wanted: Wanted, *, may_change_factor: bool = True) -> AlterPartitionReassignmentsRequest:
    return AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=may_change_factor,
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[
                    ReassignablePartition(partition_index=index, replicas=replicas)
                    for index, replicas in partitions.items()
                ],
            )
            for name, partitions in wanted.items()
        ],
    )


def reassign(
    cluster: Cluster, wanted: Wanted, *, may_change_factor: bool = True
) -> ControllerResult[AlterPartitionReassignmentsResponse]:
    """Decide a reassignment, and apply the records."""
    asked = request(wanted, may_change_factor=may_change_factor)
    result = at_once(reassigned_partitions(cluster.image, asked, OWN))
    cluster.apply(*result.records)
    return result


def errors(response: AlterPartitionReassignmentsResponse) -> dict[str, dict[int, int]]:
    assert (response.error_code, response.error_message) == (Error.NONE, None)
    return {
        topic.name: {each.partition_index: each.error_code for each in topic.partitions}
        for topic in response.responses
    }


def ongoing(cluster: Cluster, named: dict[str, list[int]] | None = None) -> list[OngoingTopicReassignment]:
    topics = (
        None
        if named is None
        else [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
            for name, indexes in named.items()
        ]
    )
    return at_once(ongoing_reassignments(cluster.image, topics))


def under_way(
    name: str, index: int, replicas: list[int], adding: list[int], removing: list[int]
) -> OngoingTopicReassignment:
    return OngoingTopicReassignment(
        name=name,
        partitions=[
            OngoingPartitionReassignment(
                partition_index=index, replicas=replicas, adding_replicas=adding, removing_replicas=removing
            )
        ],
    )


def replicas_of(cluster: Cluster, name: str = "t", index: int = 0) -> tuple[list[int], list[int], int, int]:
    """Return replicas, ISR, leader and leader epoch, and check the directories."""
    partition = cluster.partition(name, index)
    assert partition.directories == [directory(replica) for replica in partition.replicas]
    return partition.replicas, partition.isr, partition.leader, partition.leader_epoch


def test_a_broker_without_an_uncordoned_directory_is_given_no_replica() -> None:
    """Nor may it keep one that it has, as in Kafka 4.4. A reassignment without that broker works."""
    cluster = Cluster(0, 1, 2)
    cluster.topic("t", [0, 1], [1, 2])
    cluster.apply(
        BrokerRegistrationChangeRecord(
            broker_id=2,
            broker_epoch=cluster.image.brokers[2].broker_epoch,
            cordoned_log_dirs=[*cluster.image.brokers[2].log_dirs],
        )
    )
    answer = reassign(cluster, {"t": {0: [0, 2], 1: [2, 1]}}).answer(None)
    assert errors(answer) == {"t": dict.fromkeys((0, 1), Error.INVALID_REPLICA_ASSIGNMENT)}
    assert errors(reassign(cluster, {"t": {1: [0, 1]}}).answer(None)) == {"t": {1: Error.NONE}}


def test_partitions_are_reassigned_listed_and_taken_back() -> None:
    cluster = Cluster(0, 1, 2, 3)
    cluster.topic("t", [1, 2, 3], [3, 2, 1])
    cluster.topic("u", [1, 2, 3])
    assert ongoing(cluster) == []
    result = reassign(cluster, {"t": {0: [3, 2, 1], 1: [0, 2, 1], 2: [0, 2, 1]}, "u": {}})
    assert errors(result.answer(None)) == {
        "t": {0: Error.NONE, 1: Error.NONE, 2: Error.UNKNOWN_TOPIC_OR_PARTITION},
        "u": {},
    }
    assert [*result.records] == [
        changed(index=0, replicas=[3, 2, 1]),
        changed(index=1, replicas=[0, 2, 1, 3], adding_replicas=[0], removing_replicas=[3]),
    ]
    now = [under_way("t", 1, [0, 2, 1, 3], [0], [3])]
    assert ongoing(cluster) == now
    assert ongoing(cluster, {"t": [0, 1, 2]}) == now
    assert ongoing(cluster, {"t": [0, 2]}) == ongoing(cluster, {"u": [0, 1, 2], "x": [0]}) == []
    result = reassign(cluster, {"t": {0: None, 1: None, 2: None}, "u": {0: None}, "x": {0: None}})
    assert errors(result.answer(None)) == {
        "t": {0: Error.NO_REASSIGNMENT_IN_PROGRESS, 1: Error.NONE, 2: Error.UNKNOWN_TOPIC_OR_PARTITION},
        "u": {0: Error.NO_REASSIGNMENT_IN_PROGRESS},
        "x": {0: Error.UNKNOWN_TOPIC_OR_PARTITION},
    }
    assert [*result.records] == [
        changed(index=1, replicas=[2, 1, 3], leader=3, adding_replicas=[], removing_replicas=[])
    ]
    assert ongoing(cluster) == []


def test_immediate_changes_are_made_at_once_and_the_rest_waits_for_added_replicas() -> None:
    cluster = Cluster(0, 1, 2, 3, 4)
    cluster.topic("t", [1, 2, 3, 4], [0, 1, 2, 3], [4, 3, 1, 0], [2, 3, 4, 1])
    cluster.topic("u", [4, 3, 2])
    cluster.fence(3)
    result = reassign(
        cluster,
        {"t": {0: [1, 2, 4], 1: [1, 2, 3, 0], 2: [5, 6, 7], 3: []}, "u": {0: [1, 2, 3, 4, 0]}},
    )
    assert errors(result.answer(None)) == {
        "t": {
            0: Error.NONE,
            1: Error.NONE,
            2: Error.INVALID_REPLICA_ASSIGNMENT,
            3: Error.INVALID_REPLICA_ASSIGNMENT,
        },
        "u": {0: Error.NONE},
    }
    assert replicas_of(cluster, "t", 0) == ([1, 2, 4], [1, 2, 4], 1, 1)
    assert replicas_of(cluster, "t", 1) == ([1, 2, 3, 0], [0, 1, 2], 0, 0)
    assert replicas_of(cluster, "u", 0) == ([1, 2, 3, 4, 0], [4, 2], 4, 0)
    assert ongoing(cluster) == [under_way("u", 0, [1, 2, 3, 4, 0], [0, 1], [])]
    cluster.change("u", isr=[4, 1, 2])
    result = reassign(cluster, {"t": {0: None}, "u": {0: None}})
    assert [*result.records] == [changed("u", leader=4, isr=[4, 2], replicas=[2, 3, 4], adding_replicas=[])]
    assert errors(result.answer(None)) == {"t": {0: Error.NO_REASSIGNMENT_IN_PROGRESS}, "u": {0: Error.NONE}}
    assert replicas_of(cluster, "u", 0) == ([2, 3, 4], [4, 2], 4, 1)


def test_a_reassignment_is_replaced_by_another_one() -> None:
    cluster = Cluster(0, 1, 2, 3, 4, 5)
    cluster.topic("t", [0, 1])
    reassign(cluster, {"t": {0: [2, 3]}})
    assert ongoing(cluster) == [under_way("t", 0, [2, 3, 0, 1], [2, 3], [0, 1])]
    cluster.change(isr=[0, 1, 2], leader=2)
    reassign(cluster, {"t": {0: [4, 5]}})
    assert ongoing(cluster) == [under_way("t", 0, [4, 5, 0, 1, 2, 3], [4, 5], [0, 1, 2, 3])]
    assert cluster.partition().leader == 2


def test_a_replica_added_and_removed_stays_if_the_new_reassignment_has_no_substitute() -> None:
    """Kafka does so, too, and then waits until the reassignment is taken back."""
    cluster = Cluster(0, 1, 2, 3)
    cluster.topic("t", [3, 2, 1])
    reassign(cluster, {"t": {0: [0, 2, 1]}})
    assert [*reassign(cluster, {"t": {0: [0, 2, 1, 3]}}).records] == []
    assert ongoing(cluster) == [under_way("t", 0, [0, 2, 1, 3], [0], [3])]
    reassign(cluster, {"t": {0: [2, 1, 3]}})
    assert ongoing(cluster) == [under_way("t", 0, [2, 1, 3, 0], [0], [0])]
    reassign(cluster, {"t": {0: None}})
    assert ongoing(cluster) == []
    assert cluster.partition().replicas == [2, 1, 3]


def test_replicas_that_were_there_already_need_no_record() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", [1, 2])
    result = reassign(cluster, {"t": {0: [1, 2]}})
    assert ([*result.records], errors(result.answer(None))) == ([], {"t": {0: Error.NONE}})


@pytest.mark.parametrize("replicas", [[], [9], [1, 9], [1, 1], [2, 1, 2], [1, 2, 3, 1]])
def test_replicas_that_can_not_be_are_refused(replicas: list[int]) -> None:
    cluster = Cluster(1, 2, 3)
    cluster.topic("t", [1])
    result = reassign(cluster, {"t": {0: replicas}})
    assert [*result.records] == []
    assert errors(result.answer(None)) == {"t": {0: Error.INVALID_REPLICA_ASSIGNMENT}}
    assert result.answer(None).responses[0].partitions[0].error_message


@pytest.mark.parametrize(
    ("before", "wanted", "error"),
    [
        ({}, [3], Error.INVALID_REPLICATION_FACTOR),
        ({}, [1, 2, 3], Error.INVALID_REPLICATION_FACTOR),
        ({}, [3, 1], Error.NONE),
        # during a reassignment the target replicas count
        ({"replicas": [3, 2, 1], "adding_replicas": [3]}, [1, 2], Error.INVALID_REPLICATION_FACTOR),
        ({"replicas": [3, 2, 1], "adding_replicas": [3]}, [1, 2, 4], Error.NONE),
        ({"replicas": [3, 2, 1], "adding_replicas": [3], "removing_replicas": [1]}, [2, 4], Error.NONE),
    ],
)
def test_another_number_of_replicas_may_be_ruled_out(
    before: dict[str, list[int]], wanted: list[int], error: Error
) -> None:
    cluster = Cluster(1, 2, 3, 4)
    cluster.topic("t", [1, 2])
    cluster.change(**before)
    result = reassign(cluster, {"t": {0: wanted}}, may_change_factor=False)
    assert errors(result.answer(None)) == {"t": {0: error}}
    assert result.answer(None).allow_replication_factor_change is False
    assert errors(reassign(cluster, {"t": {0: wanted}}).answer(None)) == {"t": {0: Error.NONE}}


def test_nothing_is_taken_back_that_would_need_an_unclean_election_but_where_settings_allow_it() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.topic("t", [1, 2])
    cluster.change(replicas=[3, 1, 2], adding_replicas=[3], isr=[3], leader=3)
    result = reassign(cluster, {"t": {0: None}})
    assert errors(result.answer(None)) == {"t": {0: Error.INVALID_REPLICA_ASSIGNMENT}}
    cluster.configure("unclean.leader.election.enable", "true")
    result = reassign(cluster, {"t": {0: None}})
    assert errors(result.answer(None)) == {"t": {0: Error.NONE}}
    assert replicas_of(cluster) == ([1, 2], [1], 1, 2)
    cluster.change(replicas=[3, 1, 2], adding_replicas=[3], isr=[3], leader=3)
    cluster.fence(1)
    reassign(cluster, {"t": {0: None}})
    assert replicas_of(cluster) == ([1, 2], [2], 2, 4)
    assert cluster.partition().leader_recovery_state == 1


def test_no_unclean_election_is_held_for_a_reassignment() -> None:
    cluster = Cluster(1, 2, 3, elr=False)
    cluster.topic("t", [1, 2])
    cluster.configure("unclean.leader.election.enable", "true")
    cluster.change(isr=[2], leader=NO_LEADER)
    cluster.fence(2)
    cluster.change(isr=[2], leader=NO_LEADER)
    result = reassign(cluster, {"t": {0: [1, 2, 3]}})
    assert [*result.records] == [changed(replicas=[1, 2, 3], adding_replicas=[3])]


def test_a_failed_write_is_answered_for_entries_without_another_error() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", [1, 2])
    answer = reassign(cluster, {"t": {0: [2, 1], 1: [1]}}).answer(KafkaError(Error.NOT_CONTROLLER))
    assert errors(answer) == {"t": {0: Error.NOT_CONTROLLER, 1: Error.UNKNOWN_TOPIC_OR_PARTITION}}


def test_more_records_than_a_request_may_make_are_left_out() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", [1, 2])
    partition = ReassignablePartition(partition_index=0, replicas=[2, 1])
    asked = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="t", partitions=[partition] * (MAX_RECORDS_PER_REQUEST + 1))]
    )
    result = at_once(reassigned_partitions(cluster.image, asked, OWN))
    assert len(result.records) == MAX_RECORDS_PER_REQUEST
    [topic] = result.answer(None).responses
    codes = [each.error_code for each in topic.partitions]
    assert codes == [Error.NONE] * MAX_RECORDS_PER_REQUEST + [Error.UNKNOWN_SERVER_ERROR]


def test_a_pause_is_made_among_many_partitions_and_among_many_topics() -> None:
    cluster = Cluster(1)
    cluster.topic("t", [1])
    partitions = [ReassignablePartition(partition_index=0)] * PER_STEP
    for topics, count in (
        ([ReassignableTopic(name="t", partitions=partitions)], 1),
        ([ReassignableTopic(name="x")] * PER_STEP, 1),
        ([ReassignableTopic(name="t", partitions=partitions[:3])], 0),
    ):
        request = AlterPartitionReassignmentsRequest(topics=topics)
        assert pauses(reassigned_partitions(cluster.image, request, OWN)) == count
    for asked, count in (
        ([ListPartitionReassignmentsTopics(name="t", partition_indexes=[0] * PER_STEP)], 1),
        ([ListPartitionReassignmentsTopics(name="x")] * PER_STEP, 1),
        ([ListPartitionReassignmentsTopics(name="t", partition_indexes=[0])], 0),
    ):
        assert pauses(ongoing_reassignments(cluster.image, asked)) == count


def test_wanted_replicas_count_as_far_as_they_are_examined() -> None:
    cluster = Cluster()
    cluster.register(*range(99))
    cluster.topic("t", [1], isr=[1])
    everywhere = ReassignablePartition(partition_index=0, replicas=[*range(99)])
    too_many = ReassignablePartition(partition_index=0, replicas=[1] * PER_STEP)
    for wanted, count in (
        ([everywhere] * 4, 0),
        ([everywhere] * 5, 1),
        ([too_many] * 4, 0),
        ([too_many] * 5, 1),
    ):
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=wanted)])
        assert pauses(reassigned_partitions(cluster.image, request, OWN)) == count


def test_the_caller_may_exclude_reassignments_already_listed() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", [1])
    reassign(cluster, {"t": {0: [1, 2]}})
    seen: set[tuple[str, int]] = set()

    def once(named: tuple[str, int]) -> bool:
        return named not in seen and not seen.add(named)

    topics = [ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 0])] * 2
    assert at_once(ongoing_reassignments(cluster.image, topics, once)) == [under_way("t", 0, [1, 2], [2], [])]

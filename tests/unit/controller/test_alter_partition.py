"""What leaders may say about who is in sync: the cases of Kafka's ReplicationControlManagerTest, check by check."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker.controller.broker_records import BrokerIncarnation, check_broker_epoch
from broker.controller.controller import ControllerResult
from broker.controller.image import NO_LEADER, RECOVERED, RECOVERING
from broker.controller.partition_requests import altered_partitions
from protocol.errors import Error, KafkaError
from protocol.messages.broker_to_controller import (
    AlteredPartition,
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerState,
)
from protocol.waiting import PER_STEP, at_once
from tests.support.wishes import pauses
from tests.unit.controller.partitions import OWN, Cluster, changed, epoch_of, topic_id

VERSIONS = pytest.mark.parametrize("version", [2, 3])


def members(*broker_ids: int, epoch: int | None = None) -> list[BrokerState]:
    return [
        BrokerState(broker_id=each, broker_epoch=epoch_of(each) if epoch is None else epoch)
        for each in broker_ids
    ]


class Leader:
    """A leader that asks, and knows the partitions as they are now."""

    def __init__(self, cluster: Cluster, broker_id: int, version: int = 3) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.version = version

    def wish(
        self, isr: Sequence[BrokerState], index: int = 0, name: str = "t", recovery: int = RECOVERED
    ) -> AlterPartitionPartition:
        partition = self.cluster.partition(name, index)
        return AlterPartitionPartition(
            partition_index=index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            leader_recovery_state=recovery,
            new_isr=[] if self.version >= 3 else [each.broker_id for each in isr],
            new_isr_with_epochs=[*isr] if self.version >= 3 else [],
        )

    def ask(
        self, *wanted: AlterPartitionPartition, name: str = "t", epoch: int | None = None
    ) -> ControllerResult[AlterPartitionResponse]:
        request = AlterPartitionRequest(
            broker_id=self.broker_id,
            broker_epoch=epoch_of(self.broker_id) if epoch is None else epoch,
            topics=[AlterPartitionTopic(topic_id=topic_id(name), partitions=[*wanted])],
        )
        return at_once(altered_partitions(self.cluster.image, request, self.version, OWN))

    def told(self, wanted: AlterPartitionPartition, name: str = "t") -> AlteredPartition:
        """Ask, apply what was decided, and return the partition's answer."""
        result = self.ask(wanted, name=name)
        self.cluster.apply(*result.records)
        [topic] = result.answer(None).topics
        assert topic.topic_id == topic_id(name)
        [answer] = topic.partitions
        assert answer.partition_index == wanted.partition_index
        return answer

    def error(self, wanted: AlterPartitionPartition, name: str = "t") -> Error:
        """Return the error that refuses the request, and check that nothing was decided."""
        result = self.ask(wanted, name=name)
        assert [*result.records] == []
        [answer] = result.answer(None).topics[0].partitions
        assert answer == AlteredPartition(
            partition_index=wanted.partition_index, error_code=answer.error_code
        )
        return Error(answer.error_code)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(1, 2, 3, 4)
    cluster.topic("t", [1, 2, 3])
    return cluster


def as_it_is(cluster: Cluster, name: str = "t", index: int = 0) -> AlteredPartition:
    partition = cluster.partition(name, index)
    return AlteredPartition(
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


@VERSIONS
def test_an_isr_shrinks_and_grows(cluster: Cluster, version: int) -> None:
    leader = Leader(cluster, 1, version)
    assert leader.told(leader.wish(members(1, 2))) == as_it_is(cluster)
    assert (cluster.partition().isr, cluster.partition().partition_epoch) == ([1, 2], 1)
    assert leader.told(leader.wish(members(1, 2, 3))) == as_it_is(cluster)
    assert (cluster.partition().isr, cluster.partition().partition_epoch) == ([1, 2, 3], 2)
    assert cluster.partition().leader_epoch == 0


def test_a_replica_left_out_stays_eligible_while_too_few_are_in_sync(cluster: Cluster) -> None:
    cluster.configure("min.insync.replicas", "2")
    leader = Leader(cluster, 1)
    assert [*leader.ask(leader.wish(members(1))).records] == [
        changed(isr=[1], eligible_leader_replicas=[2, 3])
    ]
    leader.told(leader.wish(members(1)))
    assert leader.told(leader.wish(members(1, 2))) == as_it_is(cluster)
    assert cluster.partition().elr == []


@VERSIONS
def test_an_isr_that_already_holds_is_answered_without_a_record(cluster: Cluster, version: int) -> None:
    leader = Leader(cluster, 1, version)
    result = leader.ask(leader.wish(members(1, 2, 3)))
    assert [*result.records] == []
    assert result.answer(None).topics[0].partitions == [as_it_is(cluster)]


def test_a_leader_has_recovered_once_it_says_so() -> None:
    """The run of kills in `test_partition_updates` ends in this way."""
    cluster = Cluster(2, 3)
    cluster.configure("min.insync.replicas", "2", None)
    cluster.topic("t", [2, 3])
    cluster.change(isr=[2], leader_recovery_state=RECOVERING)
    leader = Leader(cluster, 2)
    assert leader.error(leader.wish(members(2, 3), recovery=RECOVERING)) is Error.INVALID_REQUEST
    assert [*leader.ask(leader.wish(members(2, 3))).records] == [
        changed(isr=[2, 3], leader_recovery_state=RECOVERED)
    ]
    assert leader.told(leader.wish(members(2), recovery=RECOVERING)) == as_it_is(cluster)
    assert cluster.partition().leader_recovery_state == RECOVERING


# --- refused as a whole ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broker_id", "epoch"), [(1, epoch_of(1) - 1), (1, epoch_of(1) + 1), (1, -1), (9, -1)]
)
def test_another_broker_epoch_is_refused(cluster: Cluster, broker_id: int, epoch: int) -> None:
    with pytest.raises(KafkaError) as refused:
        Leader(cluster, broker_id).ask(epoch=epoch)
    assert refused.value.error is Error.STALE_BROKER_EPOCH


def test_the_epoch_of_the_registration_passes(cluster: Cluster) -> None:
    check_broker_epoch(cluster.image, BrokerIncarnation(1, epoch_of(1)))


def test_without_topics_the_epoch_is_not_checked(cluster: Cluster) -> None:
    request = AlterPartitionRequest(broker_id=9, broker_epoch=9)
    result = at_once(altered_partitions(cluster.image, request, 3, OWN))
    assert ([*result.records], result.answer(None)) == ([], AlterPartitionResponse())


def test_a_failed_write_is_answered_once_for_all(cluster: Cluster) -> None:
    leader = Leader(cluster, 1)
    result = leader.ask(leader.wish(members(1)))
    assert result.answer(KafkaError(Error.NOT_CONTROLLER)) == AlterPartitionResponse(
        error_code=Error.NOT_CONTROLLER
    )
    assert result.may_split


# --- refused for a partition, in the order of the checks ------------------------------------------------------


@VERSIONS
@pytest.mark.parametrize("topic", ["nowhere", "\0" * 16])
def test_an_unknown_topic(cluster: Cluster, topic: str, version: int) -> None:
    leader = Leader(cluster, 1, version)
    assert leader.error(leader.wish([]), topic) is Error.UNKNOWN_TOPIC_ID


def test_an_unknown_partition(cluster: Cluster) -> None:
    wanted = AlterPartitionPartition(partition_index=7)
    assert Leader(cluster, 1).error(wanted) is Error.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("broker_id", "leader_epoch", "partition_epoch", "isr", "error"),
    [
        # a leader that knows a later epoch has it from another controller; this check comes first
        (2, 501, 0, [9], Error.NOT_CONTROLLER),
        (2, 0, 501, [9], Error.NOT_CONTROLLER),
        (2, 4, 9, [9], Error.FENCED_LEADER_EPOCH),
        (2, 5, 8, [9], Error.INVALID_REQUEST),  # not the leader
        (1, 5, 8, [9], Error.INVALID_UPDATE_VERSION),
        (1, 5, 9, [9], Error.INVALID_REQUEST),  # not a replica
        (1, 5, 9, [1, 4], Error.INVALID_REQUEST),
        (1, 5, 9, [1, -1], Error.INVALID_REQUEST),
        (1, 5, 9, [1, 2, 2], Error.INVALID_REQUEST),
        (1, 5, 9, [1, 2, 3, 1], Error.INVALID_REQUEST),
        (1, 5, 9, [2, 3], Error.INVALID_REQUEST),  # without its leader
        (1, 5, 9, [], Error.INVALID_REQUEST),
    ],
)
@VERSIONS
def test_the_first_thing_that_is_wrong_counts(
    cluster: Cluster,
    broker_id: int,
    leader_epoch: int,
    partition_epoch: int,
    isr: list[int],
    error: Error,
    version: int,
) -> None:
    partition = cluster.partition()
    partition.leader_epoch, partition.partition_epoch = 5, 9
    leader = Leader(cluster, broker_id, version)
    wanted = leader.wish(members(*isr))
    wanted.leader_epoch, wanted.partition_epoch = leader_epoch, partition_epoch
    assert leader.error(wanted) is error


@pytest.mark.parametrize(
    ("was", "isr", "recovery"),
    [
        (RECOVERED, [1, 2], RECOVERING),
        (RECOVERED, [1], RECOVERING),  # a leader that has recovered can't begin to recover
        (RECOVERING, [1, 2], RECOVERING),
        (RECOVERED, [1], 2),
        (RECOVERED, [1], -1),
    ],
)
def test_a_recovery_that_can_not_be(cluster: Cluster, was: int, isr: list[int], recovery: int) -> None:
    cluster.change(leader_recovery_state=was)
    leader = Leader(cluster, 1)
    assert leader.error(leader.wish(members(*isr), recovery=recovery)) is Error.INVALID_REQUEST


@VERSIONS
def test_a_fenced_member(cluster: Cluster, version: int) -> None:
    cluster.fence(3)
    leader = Leader(cluster, 1, version)
    assert leader.error(leader.wish(members(1, 2, 3))) is Error.INELIGIBLE_REPLICA
    cluster.unfence(3)
    assert leader.told(leader.wish(members(1, 2, 3))).error_code == Error.NONE
    assert cluster.partition().isr == [1, 2, 3]


@VERSIONS
def test_a_member_that_shuts_down(cluster: Cluster, version: int) -> None:
    cluster.shut_down(3)
    leader = Leader(cluster, 1, version)
    assert leader.error(leader.wish(members(1, 2, 3))) is Error.INELIGIBLE_REPLICA


@VERSIONS
def test_a_member_that_is_not_registered(cluster: Cluster, version: int) -> None:
    del cluster.image.brokers[3]
    leader = Leader(cluster, 1, version)
    assert leader.error(leader.wish(members(1, 3))) is Error.INELIGIBLE_REPLICA


def test_a_replica_of_a_broker_that_has_registered_again(cluster: Cluster) -> None:
    """Version 2 doesn't say which registration is meant. Nor does a leader that hasn't heard of the new one."""
    cluster.change(isr=[1, 2])
    cluster.come_back_unclean(3)
    cluster.unfence(3)
    leader = Leader(cluster, 1)
    assert leader.error(leader.wish(members(1, 2, 3))) is Error.INELIGIBLE_REPLICA
    assert leader.ask(leader.wish(members(1, 2, 3, epoch=-1))).records
    old = Leader(cluster, 1, 2)
    assert old.ask(old.wish(members(1, 2, 3))).records


# --- reassignments --------------------------------------------------------------------------------------------


@VERSIONS
def test_a_leader_that_completes_a_reassignment_and_leads_no_more_learns_it(version: int) -> None:
    cluster = Cluster(0, 1, 2, 3)
    cluster.topic("t", [3, 2, 1])
    cluster.change(replicas=[0, 2, 1, 3], adding_replicas=[0], removing_replicas=[3])
    leader = Leader(cluster, 3, version)
    wanted = leader.wish(members(3, 0, 2, 1))
    [record] = leader.ask(wanted).records
    answer = leader.told(wanted)
    assert answer == AlteredPartition(partition_index=0, error_code=Error.NEW_LEADER_ELECTED)
    partition = cluster.partition()
    assert (partition.leader, partition.isr, partition.replicas) == (0, [0, 2, 1], [0, 2, 1])
    assert (partition.adding_replicas, partition.removing_replicas) == ([], [])
    assert record == changed(
        isr=[0, 2, 1],
        leader=0,
        replicas=[0, 2, 1],
        adding_replicas=[],
        removing_replicas=[],
    )


def test_a_leader_that_completes_a_reassignment_and_leads_on_gets_the_new_state() -> None:
    cluster = Cluster(2, 3, 4)
    cluster.topic("t", [3, 4])
    cluster.change(replicas=[2, 3, 4], adding_replicas=[2])
    leader = Leader(cluster, 3)
    assert leader.told(leader.wish(members(3, 4, 2))) == as_it_is(cluster)
    partition = cluster.partition()
    assert (partition.isr, partition.adding_replicas, partition.leader_epoch) == ([3, 4, 2], [], 0)


def test_a_leader_that_leads_on_with_a_new_epoch_learns_it() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.topic("t", [1, 2])
    cluster.change(replicas=[1, 3, 2], adding_replicas=[3], removing_replicas=[2])
    leader = Leader(cluster, 1)
    assert leader.told(leader.wish(members(1, 2, 3))) == as_it_is(cluster)
    assert (cluster.partition().replicas, cluster.partition().leader_epoch) == ([1, 3], 1)


def test_nobody_leads_if_the_remaining_replica_has_lost_its_directory() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", [1])
    cluster.change(
        replicas=[2, 1], adding_replicas=[2], removing_replicas=[1], directories=[b"x" * 16, b"y" * 16]
    )
    leader = Leader(cluster, 1)
    assert leader.told(leader.wish(members(1, 2))).error_code == Error.NEW_LEADER_ELECTED
    assert cluster.partition().leader == NO_LEADER


# --- several --------------------------------------------------------------------------------------------------


def test_each_partition_of_each_topic_is_decided_separately(cluster: Cluster) -> None:
    cluster.topic("u", [1, 2], [2, 1])
    leader = Leader(cluster, 1)
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=epoch_of(1),
        topics=[
            AlterPartitionTopic(
                topic_id=topic_id("u"),
                partitions=[
                    leader.wish(members(1), 0, "u"),
                    leader.wish(members(1), 1, "u"),
                    AlterPartitionPartition(partition_index=2),
                ],
            ),
            AlterPartitionTopic(topic_id=topic_id("x"), partitions=[leader.wish(members(1))]),
            AlterPartitionTopic(topic_id=topic_id("t"), partitions=[leader.wish(members(1))]),
        ],
    )
    result = at_once(altered_partitions(cluster.image, request, 3, OWN))
    assert [*result.records] == [changed("u", isr=[1]), changed("t", isr=[1])]
    assert [[each.error_code for each in topic.partitions] for topic in result.answer(None).topics] == [
        [Error.NONE, Error.INVALID_REQUEST, Error.UNKNOWN_TOPIC_OR_PARTITION],
        [Error.UNKNOWN_TOPIC_ID],
        [Error.NONE],
    ]


def test_a_pause_is_made_among_many_partitions_and_among_many_topics(cluster: Cluster) -> None:
    partition = AlterPartitionPartition(partition_index=7)
    topic = AlterPartitionTopic(topic_id=topic_id("t"), partitions=[partition] * PER_STEP)
    for topics, count in (
        ([topic], 1),
        ([AlterPartitionTopic()] * PER_STEP, 1),
        ([AlterPartitionTopic(topic_id=topic_id("t"), partitions=[partition])], 0),
    ):
        request = AlterPartitionRequest(broker_id=1, broker_epoch=epoch_of(1), topics=topics)
        assert pauses(altered_partitions(cluster.image, request, 3, OWN)) == count

"""How a change of a broker changes partitions: the cases of Kafka's ReplicationControlManagerTest, and runs of kills
as a real cluster recorded them."""

from __future__ import annotations

import pytest

from broker.controller.image import NO_LEADER, PartitionImage
from broker.controller.partition_changes import (
    RECOVERING,
    BrokerChange,
    OwnSettings,
    eligible_updates,
    leader_and_isr_updates,
    updates_of,
)
from protocol.messages import metadata_records as records
from protocol.waiting import PER_STEP, at_once
from tests.support.wishes import pauses
from tests.unit.controller.partitions import Cluster, changed, directory, topic_id

MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"


def state(partition: PartitionImage) -> tuple[int, list[int], list[int], list[int]]:
    """Return the leader, the ISR, the ELR and the last known ELR."""
    return partition.leader, partition.isr, partition.elr, partition.last_known_elr


def led_by(cluster: Cluster, broker_id: int) -> list[tuple[str, int]]:
    return [
        (name, index)
        for name, topic in cluster.image.topics.items()
        for index, partition in topic.partitions.items()
        if partition.leader == broker_id
    ]


# --- Kafka's cases --------------------------------------------------------------------------------------------


def test_a_broker_that_is_fenced_leads_nothing() -> None:
    cluster = Cluster(0, 1, 2, 3)
    cluster.topic("t", [0, 1, 2], [1, 2, 3], [2, 3, 0], [0, 2, 1])
    assert led_by(cluster, 0) == [("t", 0), ("t", 3)]
    cluster.fence(0)
    assert led_by(cluster, 0) == []
    assert [cluster.partition("t", index).leader for index in range(4)] == [1, 1, 2, 2]


def test_brokers_that_are_fenced_one_after_another_leave_the_isr() -> None:
    cluster = Cluster(0, 1, 2, 3, 4)
    cluster.topic("t", [1, 2, 3], [2, 3, 4], [0, 2, 1])
    cluster.fence(2, 3)
    assert [state(cluster.partition("t", index))[:2] for index in range(3)] == [
        (1, [1]),
        (4, [4]),
        (0, [0, 1]),
    ]


def test_a_replica_that_leaves_stays_eligible_once_too_few_are_in_sync() -> None:
    cluster = Cluster(0, 1, 2, 3)
    cluster.topic("t", [0, 1, 2, 3])
    cluster.configure(MIN_ISR, "3")
    cluster.fence(2)
    assert state(cluster.partition()) == (0, [0, 1, 3], [], [])
    cluster.fence(3)
    assert state(cluster.partition()) == (0, [0, 1], [3], [])
    cluster.fence(1)
    assert state(cluster.partition()) == (0, [0], [1, 3], [])
    assert cluster.unfence(1, 2, 3) == []
    assert state(cluster.partition()) == (0, [0], [1, 3], [])


def test_an_eligible_broker_leads_once_all_in_sync_are_gone() -> None:
    cluster = Cluster(0, 1, 2, 3)
    cluster.topic("t", [0, 1, 2, 3])
    cluster.configure(MIN_ISR, "3")
    cluster.fence(1, 2, 3)
    assert state(cluster.partition()) == (0, [0], [2, 3], [])
    cluster.unfence(2)
    cluster.fence(0)
    assert state(cluster.partition()) == (2, [2], [0, 3], [])


def test_an_unclean_end_takes_a_broker_out_of_isr_and_elr() -> None:
    cluster = Cluster(0, 1, 2, 3)
    cluster.topic("t", [0, 1, 2, 3])
    cluster.configure(MIN_ISR, "3")
    cluster.fence(1, 2, 3)
    assert cluster.come_back_unclean(3) == [changed(eligible_leader_replicas=[2])]
    assert state(cluster.partition()) == (0, [0], [2], [])
    assert cluster.come_back_unclean(0) == [changed(isr=[], leader=NO_LEADER, last_known_elr=[0])]
    assert state(cluster.partition()) == (NO_LEADER, [], [2], [0])


def test_partitions_in_a_directory_that_is_lost_are_led_elsewhere() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("a", [1, 2], [1, 2])
    cluster.topic("b", [1, 2], [1, 2])
    cluster.register(1, directories=2)
    cluster.unfence(1)
    for name in "ab":
        cluster.change(name, 1, directories=[directory(1, 1), directory(2)])
    decided = cluster.updates(1, directories=[directory(1, 0)])
    assert decided == [
        changed("a", 0, isr=[2], leader=2),
        changed("b", 0, isr=[2], leader=2),
    ]


def test_replicas_assigned_to_an_offline_directory_leave_too() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", [1, 2], [1, 2], [2, 1])
    topic = cluster.image.topics["t"]
    assigned = [(topic, [(1, topic.partitions[1]), (2, topic.partitions[2])])]
    decided = cluster.do(updates_of(cluster.image, BrokerChange(1, None, None, None), assigned))
    assert decided == [changed(index=1, isr=[2], leader=2), changed(index=2, isr=[2])]


# --- a cluster of Kafka's that was watched --------------------------------------------------------------------


def test_a_run_of_kills() -> None:
    """The replicas are 4 2 3 with min.insync.replicas=2, and 4 is away all the time. Every stop is a kill."""
    cluster = Cluster(2, 3)
    cluster.configure(MIN_ISR, "2", None)
    cluster.register(4)
    cluster.topic("t", [4, 2, 3], isr=[2, 3])
    assert cluster.partition().leader == 2
    assert cluster.fence(3) == [changed(isr=[2], eligible_leader_replicas=[3])]
    assert cluster.fence(2) == [
        changed(isr=[], leader=NO_LEADER, eligible_leader_replicas=[2, 3], last_known_elr=[2])
    ]
    assert cluster.come_back_unclean(3) == [changed(eligible_leader_replicas=[2])]
    assert cluster.unfence(3) == []
    assert cluster.come_back_unclean(2) == [changed(eligible_leader_replicas=[])]
    assert cluster.unfence(2) == [
        changed(isr=[2], leader=2, leader_recovery_state=RECOVERING, last_known_elr=[])
    ]
    assert cluster.partition().leader_epoch == 2


def test_the_last_one_in_sync_stays_so_without_eligible_replicas() -> None:
    cluster = Cluster(1, 2, elr=False)
    cluster.topic("t", [1, 2])
    assert cluster.fence(2) == [changed(isr=[1])]
    assert cluster.fence(1) == [changed(leader=NO_LEADER)]
    assert cluster.unfence(2) == []
    # a broker that comes back, cleanly or not, counts as fenced
    assert cluster.updates(1) == []
    assert cluster.unfence(1) == [changed(leader=1)]


def test_a_controlled_shutdown_moves_the_leadership_and_leaves_every_isr() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", [1, 2], [2, 1], [1])
    assert cluster.shut_down(1) == [
        changed(index=0, isr=[2], leader=2),
        changed(index=1, isr=[2]),
        changed(index=2, isr=[], leader=NO_LEADER, eligible_leader_replicas=[1], last_known_elr=[1]),
    ]
    assert cluster.fence(1) == []


def test_the_present_leader_stays_whatever_is_preferred() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.topic("t", [1, 2, 3])
    cluster.fence(1)
    assert cluster.unfence(1) == []
    cluster.fence(3)
    assert cluster.partition().leader == 2


# --- who is elected uncleanly ---------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["t", None])
def test_any_returning_replica_leads_where_settings_allow_it(where: str | None) -> None:
    cluster = Cluster(1, 2, elr=False)
    cluster.topic("t", [1, 2])
    cluster.fence(2, 1)
    cluster.configure(UNCLEAN, "true", where)
    assert cluster.unfence(2) == [changed(isr=[2], leader=2, leader_recovery_state=RECOVERING)]


def test_the_controllers_own_file_may_allow_it() -> None:
    cluster = Cluster(1, 2, elr=False)
    cluster.topic("t", [1, 2])
    cluster.fence(2, 1)
    change = BrokerChange(None, 2, None, None)
    assert at_once(leader_and_isr_updates(cluster.image, change)) == []
    own = OwnSettings(None, {UNCLEAN: "true"})
    assert at_once(leader_and_isr_updates(cluster.image, change, own=own)) == [
        changed(isr=[2], leader=2, leader_recovery_state=RECOVERING)
    ]


def test_a_departing_broker_is_not_elected_uncleanly() -> None:
    """According to the records the broker is still active."""
    cluster = Cluster(1, 2)
    cluster.topic("t", [1, 2])
    cluster.configure(UNCLEAN, "true")
    cluster.fence(2)
    assert cluster.updates(1) == [
        changed(isr=[], leader=NO_LEADER, eligible_leader_replicas=[1], last_known_elr=[1])
    ]
    assert cluster.updates(unclean=1) == [changed(eligible_leader_replicas=[])]


def test_an_eligible_broker_that_is_unregistered_is_waited_for_no_longer_where_settings_allow_it() -> None:
    cluster = Cluster(1, 2)
    cluster.configure(MIN_ISR, "2", None)
    cluster.topic("t", [1, 2])
    cluster.topic("u", [1, 2])
    cluster.fence(2, 1)
    cluster.apply(*cluster.come_back_unclean(2))
    assert cluster.unfence(2) == []
    change = BrokerChange(1, None, None, None)
    assert at_once(leader_and_isr_updates(cluster.image, change)) == []
    assert at_once(eligible_updates(cluster.image, change)) == []
    cluster.configure(UNCLEAN, "true", "u")
    assert at_once(eligible_updates(cluster.image, change)) == [
        changed(
            "u",
            isr=[2],
            leader=2,
            leader_recovery_state=RECOVERING,
            eligible_leader_replicas=[],
            last_known_elr=[],
        )
    ]


# --- whom a change concerns -----------------------------------------------------------------------------------


def test_a_returning_broker_concerns_only_partitions_without_a_leader() -> None:
    """Other partitions may need an election as well, but this broker isn't the reason."""
    cluster = Cluster(1, 2)
    cluster.topic("t", [1, 2], [2])
    cluster.fence(2)
    cluster.change(leader=3)
    assert cluster.unfence(2) == [
        changed(index=1, isr=[2], leader=2, eligible_leader_replicas=[], last_known_elr=[])
    ]


def test_a_broker_that_may_have_lost_something_concerns_only_partitions_that_need_it() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.topic("t", [1, 2], [1, 3], [1])
    cluster.change(index=0, eligible_leader_replicas=[2], isr=[1])
    for index in range(3):
        cluster.change(index=index, leader=9)
    assert cluster.updates(unclean=2) == [changed(leader=1, eligible_leader_replicas=[])]
    assert cluster.updates(unclean=3) == [changed(index=1, leader=1, isr=[1])]


def test_a_directory_concerns_the_partitions_in_it_be_they_in_sync_or_not() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", [2, 1], isr=[2])
    cluster.topic("u", [2], isr=[2])
    cluster.change("t", leader=NO_LEADER)
    assert cluster.updates(1) == []
    assert cluster.updates(1, directories=[directory(1)]) == [changed("t", leader=2)]
    assert cluster.updates(1, directories=[directory(2)]) == []


def test_several_changes_at_once_affect_their_own_partitions() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.topic("t", [1, 2], [3], [2, 3])
    cluster.fence(3)
    decided = cluster.updates(removed=1, added=3)
    assert decided == [
        changed(index=0, isr=[2], leader=2),
        changed(index=1, isr=[3], leader=3, eligible_leader_replicas=[], last_known_elr=[]),
    ]


def test_no_change_concerns_nothing() -> None:
    cluster = Cluster(1)
    cluster.topic("t", [1])
    cluster.change(leader=NO_LEADER)
    assert cluster.updates() == []


def test_a_pause_is_made_among_many_partitions() -> None:
    cluster = Cluster(1, 2)
    cluster.apply(records.TopicRecord(name="t", topic_id=topic_id("t")))
    for index in range(PER_STEP):
        cluster.apply(
            records.PartitionRecord(
                partition_id=index, topic_id=topic_id("t"), replicas=[1], isr=[1], leader=1
            )
        )
    for removed in (1, 2):
        change = BrokerChange(removed, None, None, None)
        assert pauses(leader_and_isr_updates(cluster.image, change)) == 1
    del cluster.image.topics["t"].partitions[0]
    assert pauses(leader_and_isr_updates(cluster.image, change)) == 0

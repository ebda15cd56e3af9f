"""Elections on request and by the clock: the cases of Kafka's ReplicationControlManagerTest."""

from __future__ import annotations

import pytest

from broker.controller import partition_requests as leader_elections
from broker.controller.controller import MAX_RECORDS_PER_REQUEST, ControllerResult
from broker.controller.image import NO_LEADER, RECOVERED, RECOVERING
from broker.controller.partition_changes import Election, OwnSettings
from broker.controller.partition_requests import (
    MOST_ELECTIONS,
    balanced_leaders,
    elected_leaders,
    election_of_type,
    has_preferred_leader,
    unclean_leaders,
)
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.messages.cluster_admin import ElectLeadersRequest, ElectLeadersResponse, ElectLeadersTopic
from protocol.waiting import PER_STEP, at_once
from tests.support.wishes import pauses
from tests.unit.controller.partitions import OWN, Cluster, changed, directory, topic_id

PREFERRED, UNCLEAN = 0, 1
ALLOWED = "unclean.leader.election.enable"


def elect(
    cluster: Cluster, kind: int, named: dict[str, list[int]] | None
) -> ControllerResult[ElectLeadersResponse]:
    topics = (
        None
        if named is None
        else [ElectLeadersTopic(topic=name, partitions=indexes) for name, indexes in named.items()]
    )
    request = ElectLeadersRequest(election_type=kind, topic_partitions=topics)
    return at_once(elected_leaders(cluster.image, request, OWN))


def errors(response: ElectLeadersResponse) -> dict[str, dict[int, int]]:
    """Return the error codes by topic and partition, and check that each error has a text."""
    for topic in response.replica_election_results:
        for result in topic.partition_result:
            assert bool(result.error_message) is bool(result.error_code)
    return {
        topic.topic: {result.partition_id: result.error_code for result in topic.partition_result}
        for topic in response.replica_election_results
    }


# --- asked for ------------------------------------------------------------------------------------------------


def test_preferred_leaders_are_elected_once_they_are_in_sync() -> None:
    cluster = Cluster(0, 1, 2, 3, 4)
    cluster.fence(0)
    cluster.shut_down(1)
    cluster.topic("t", [1, 2, 3], [2, 3, 4], [0, 2, 1])
    asked = {"t": [0, 1, 2], "u": [0, 1]}
    unknown = {0: Error.UNKNOWN_TOPIC_OR_PARTITION, 1: Error.UNKNOWN_TOPIC_OR_PARTITION}
    result = elect(cluster, PREFERRED, asked)
    assert [*result.records] == []
    assert errors(result.answer(None)) == {
        "t": {
            0: Error.PREFERRED_LEADER_NOT_AVAILABLE,
            1: Error.ELECTION_NOT_NEEDED,
            2: Error.PREFERRED_LEADER_NOT_AVAILABLE,
        },
        "u": unknown,
    }
    cluster.register(1)
    cluster.unfence(0, 1)
    cluster.change(index=0, isr=[1, 2, 3])
    cluster.change(index=2, isr=[0, 2, 1])
    result = elect(cluster, PREFERRED, asked)
    assert [*result.records] == [changed(index=0, leader=1), changed(index=2, leader=0)]
    assert errors(result.answer(None)) == {
        "t": {0: Error.NONE, 1: Error.ELECTION_NOT_NEEDED, 2: Error.NONE},
        "u": unknown,
    }


@pytest.mark.parametrize("all_of_them", [True, False])
def test_an_unclean_election_elects_where_nobody_leads_and_a_replica_is_alive(all_of_them: bool) -> None:
    cluster = Cluster(0, 1, 2, 3, 4, elr=False, level=13)
    cluster.topic("t", [1, 2, 3], [2, 3, 4], [0, 2, 1])
    cluster.fence(2, 3, 1)
    named = None if all_of_them else {"t": [0, 1, 2]}
    needless = {} if all_of_them else {1: Error.ELECTION_NOT_NEEDED, 2: Error.ELECTION_NOT_NEEDED}
    result = elect(cluster, UNCLEAN, named)
    assert [*result.records] == []
    assert errors(result.answer(None)) == {"t": {0: Error.ELIGIBLE_LEADERS_NOT_AVAILABLE, **needless}}
    cluster.unfence(2)
    cluster.change(index=1, isr=[2, 4])  # the preferred replica could lead, but isn't asked to
    result = elect(cluster, UNCLEAN, named)
    assert [*result.records] == [changed(isr=[2], leader=2, leader_recovery_state=RECOVERING)]
    assert errors(result.answer(None)) == {"t": {0: Error.NONE, **needless}}


def test_a_preferred_election_is_never_unclean() -> None:
    cluster = Cluster(1, 2, 3, 4, elr=False)
    cluster.topic("t", [1, 2, 3])
    cluster.fence(2, 3, 1)
    cluster.unfence(2)
    cluster.configure(ALLOWED, "true")
    result = elect(cluster, PREFERRED, {"t": [0]})
    assert [*result.records] == []
    assert errors(result.answer(None)) == {"t": {0: Error.PREFERRED_LEADER_NOT_AVAILABLE}}


def test_a_preferred_election_may_elect_another_replica_where_nobody_leads() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", [1, 2])
    cluster.fence(1)
    cluster.change(leader=NO_LEADER)
    assert [*elect(cluster, PREFERRED, {"t": [0]}).records] == [changed(leader=2)]


def test_an_unclean_election_prefers_a_replica_that_has_everything() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", [1, 2])
    cluster.change(leader=NO_LEADER)
    assert [*elect(cluster, UNCLEAN, {"t": [0]}).records] == [changed(leader=1)]


def test_an_unknown_partition_number_is_reported() -> None:
    cluster = Cluster(1)
    cluster.topic("t", [1])
    assert errors(elect(cluster, UNCLEAN, {"t": [1]}).answer(None)) == {
        "t": {1: Error.UNKNOWN_TOPIC_OR_PARTITION}
    }


def test_an_election_of_all_partitions_leaves_out_those_that_need_none() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", [1, 2])
    cluster.topic("u", [1, 2])
    cluster.change("u", leader=2)
    assert errors(elect(cluster, PREFERRED, None).answer(None)) == {"t": {}, "u": {0: Error.NONE}}


def test_a_failed_write_is_answered_for_entries_without_another_error() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", [1, 2], [1, 2])
    cluster.change(leader=2)
    answer = elect(cluster, PREFERRED, {"t": [0, 1]}).answer(KafkaError(Error.NOT_CONTROLLER))
    [topic] = answer.replica_election_results
    assert [each.error_code for each in topic.partition_result] == [
        Error.NOT_CONTROLLER,
        Error.ELECTION_NOT_NEEDED,
    ]


@pytest.mark.parametrize("kind", [2, -1])
def test_other_kinds_of_elections_are_refused(kind: int) -> None:
    cluster = Cluster(1)
    with pytest.raises(KafkaError) as refused:
        elect(cluster, kind, None)
    assert refused.value.error is Error.INVALID_REQUEST


def test_each_kind_has_its_number() -> None:
    assert [election_of_type(number) for number in (0, 1)] == [Election.PREFERRED, Election.UNCLEAN]


def leaderless(count: int) -> Cluster:
    """Return a cluster with partitions whose only replica is active and doesn't lead them."""
    cluster = Cluster(1)
    cluster.apply(records.TopicRecord(name="t", topic_id=topic_id("t")))
    for index in range(count):
        cluster.apply(
            records.PartitionRecord(
                partition_id=index,
                topic_id=topic_id("t"),
                replicas=[1],
                isr=[1],
                leader=NO_LEADER,
                directories=[directory(1)],
            )
        )
    return cluster


def test_more_records_than_a_request_may_make_are_refused() -> None:
    cluster = leaderless(MAX_RECORDS_PER_REQUEST)
    assert len(elect(cluster, PREFERRED, None).records) == MAX_RECORDS_PER_REQUEST
    with pytest.raises(KafkaError) as refused:
        elect(cluster, PREFERRED, {"t": [*range(MAX_RECORDS_PER_REQUEST), 0]})
    assert refused.value.error is Error.POLICY_VIOLATION


def test_a_pause_is_made_among_many_partitions_and_among_many_topics() -> None:
    cluster = leaderless(1)
    partitions = [ElectLeadersTopic(topic="t", partitions=[7] * PER_STEP)]
    topics = [ElectLeadersTopic(topic="u")] * PER_STEP
    few = [ElectLeadersTopic(topic="t", partitions=[7])]
    for asked, count in ((partitions, 1), (topics, 1), (few, 0)):
        request = ElectLeadersRequest(topic_partitions=asked)
        assert pauses(elected_leaders(cluster.image, request, OWN)) == count
    assert pauses(balanced_leaders(leaderless(PER_STEP).image, OWN)) == 1
    assert pauses(balanced_leaders(cluster.image, OWN)) == 0


# --- by the clock ---------------------------------------------------------------------------------------------


def test_leadership_goes_back_to_preferred_replicas() -> None:
    cluster = Cluster(0, 1, 2, 3, 4)
    cluster.fence(0, 1)
    cluster.topic("t", [1, 2, 3], [2, 3, 4], [0, 2, 1])
    assert [has_preferred_leader(cluster.partition("t", index)) for index in range(3)] == [False, True, False]
    assert at_once(balanced_leaders(cluster.image, OWN)).records == []
    cluster.unfence(1)
    cluster.change(index=0, isr=[1, 2, 3])
    result = at_once(balanced_leaders(cluster.image, OWN))
    assert [*result.records] == [changed(index=0, leader=1)]
    assert result.answer(None) is False
    cluster.apply(*result.records)
    cluster.unfence(0)
    cluster.change(index=2, isr=[0, 2, 1])
    assert cluster.done(balanced_leaders(cluster.image, OWN)) == [changed(index=2, leader=0)]
    assert cluster.done(balanced_leaders(cluster.image, OWN)) == []


def test_a_partition_without_replicas_is_led_by_nobody() -> None:
    cluster = Cluster(1)
    cluster.topic("t", [1])
    cluster.partition().replicas = []
    assert not has_preferred_leader(cluster.partition())
    cluster.done(balanced_leaders(cluster.image, OWN))
    assert cluster.partition().leader == NO_LEADER
    assert has_preferred_leader(cluster.partition())


@pytest.mark.parametrize("allowed_by", ["nobody", "topic", "cluster", "node", "file"])
def test_leaderless_partitions_are_elected_uncleanly_where_settings_allow_it(allowed_by: str) -> None:
    cluster = Cluster(0, 1, 2, 3, 4, elr=False)
    cluster.topic("t", [1, 2, 4], [1, 3, 4], [0, 2, 4])
    cluster.fence(0, 1, 2, 3, 4)
    assert [cluster.partition("t", index).isr for index in range(3)] == [[4], [4], [4]]
    assert cluster.unfence(2) == []
    own = OwnSettings(0, {ALLOWED: "true"} if allowed_by == "file" else {})
    if allowed_by == "topic":
        cluster.configure(ALLOWED, "true")
    elif allowed_by == "cluster":
        cluster.configure(ALLOWED, "true", None)
    elif allowed_by == "node":
        cluster.configure(ALLOWED, "true", None, "0")
    result = at_once(unclean_leaders(cluster.image, own))
    elected = {"isr": [2], "leader": 2, "leader_recovery_state": RECOVERING}
    assert [*result.records] == (
        [] if allowed_by == "nobody" else [changed(index=0, **elected), changed(index=2, **elected)]
    )
    assert result.answer(None) is False


def test_a_led_partition_is_left_alone() -> None:
    cluster = Cluster(1, 2)
    cluster.configure(ALLOWED, "true", None)
    cluster.topic("t", [1, 2])
    for leader in (2, 9):  # broker 9 doesn't exist, but finding that out isn't this function's job
        cluster.change(leader=leader)
        assert at_once(unclean_leaders(cluster.image, OWN)).records == []


@pytest.mark.limit("broker.controller.partition_requests.MOST_ELECTIONS")
def test_elections_at_a_time_have_a_limit() -> None:
    cluster = leaderless(MOST_ELECTIONS + 1)
    result = at_once(balanced_leaders(cluster.image, OWN))
    assert len(result.records) == MOST_ELECTIONS
    assert result.answer(None) is True
    assert result.answer(KafkaError(Error.NOT_CONTROLLER)) is False
    cluster.apply(*result.records)
    result = at_once(balanced_leaders(cluster.image, OWN))
    assert [*result.records] == [changed(index=MOST_ELECTIONS, leader=1)]
    assert result.answer(None) is False
    assert leader_elections.MOST_ELECTIONS == 1000
    assert cluster.partition().leader_recovery_state == RECOVERED

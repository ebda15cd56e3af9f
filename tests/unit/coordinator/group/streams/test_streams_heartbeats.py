"""Heartbeats of streams groups: records in Kafka's order, delays, time limits, and what is only in memory. Beside
Kafka: tests/compare."""

from __future__ import annotations

import pytest

from coordinator.group.streams.states import StatusCode
from coordinator.settings import StreamsConfig
from protocol.errors import Error
from tests.unit.coordinator.group.consumer.consumers import FakeTopics
from tests.unit.coordinator.group.streams.members import StreamsMembers, statuses, subtopology, told, topology

DELAYED = StreamsConfig(assignment_interval_ms=1_000, initial_rebalance_delay_ms=3_000)
MEMBER, TARGET_EPOCH, TARGET, CURRENT, TOPOLOGY, GROUP = 19, 20, 21, 22, 23, 17


def two() -> StreamsMembers:
    """Return a group in which `one` has all of `t`, and `two` waits for its part."""
    groups = StreamsMembers()
    groups.enter("one", "p")
    groups.enter("two", "q")
    return groups


def test_the_first_member_gets_all_at_once_where_nothing_delays_it() -> None:
    groups = StreamsMembers()
    answer = groups.enter("one")
    assert (answer.member_epoch, told(answer.active_tasks)) == (2, {"0": [0, 1, 2, 3, 4, 5]})
    assert groups.keys() == [MEMBER, TOPOLOGY, GROUP, TARGET, TARGET_EPOCH, CURRENT]
    assert groups.state == "Stable"


def test_a_second_member_waits_for_the_tasks_that_the_first_gives_up() -> None:
    groups = two()
    assert groups.group.members["two"].epoch == 3
    assert told(groups.report("one").active_tasks) == {"0": [0, 1, 2]}
    assert groups.report("two").active_tasks is None
    assert groups.report("one").member_epoch == 3
    assert told(groups.report("two").active_tasks) == {"0": [3, 4, 5]}
    assert groups.state == "Stable"


def test_a_member_that_lacks_its_assignment_gets_it_again() -> None:
    """The answer may have been lost. This doesn't count as a new endpoint."""
    groups = StreamsMembers()
    groups.enter("one", port=1)
    groups.enter("two", "q")
    groups.settle()
    one = groups.group.members["one"]
    endpoint_epoch = groups.group.endpoint_epoch
    for owned in ({}, {"0": [1]}):
        again = groups.beat("one", one.epoch, active=owned, standby={}, endpoint_epoch=endpoint_epoch)
        assert told(again.active_tasks) == {"0": [0, 1, 2]}
        assert again.endpoint_information_epoch == endpoint_epoch
    assert told(groups.beat("one", one.previous_epoch, active={}).active_tasks) == {"0": [0, 1, 2]}
    for owned in ({"0": [0, 1, 2]}, {"0": [0, 3]}, {"0": [0, 1, 2, 3]}):
        assert groups.beat("one", one.epoch, active=owned, standby={}).active_tasks is None
    assert groups.beat("one", one.epoch).active_tasks is None


def test_a_task_of_any_kind_is_sent_again() -> None:
    groups = StreamsMembers(
        of=topology(subtopology("0", "t", changelogs=["log"])),
        config=StreamsConfig(assignment_interval_ms=0, initial_rebalance_delay_ms=0, num_standby_replicas=1),
    )
    groups.create("log", 6)
    groups.enter("one", "p")
    groups.enter("two", "q")
    groups.settle()
    epoch, active, standby = groups.group.members["one"].epoch, groups.holds("one"), groups.copies("one")
    assert active
    assert standby
    assert groups.report("one").active_tasks is None
    for owned in ({"active": active}, {"standby": standby}, {"active": {"0": active["0"][:1] * 9}}):
        again = groups.beat("one", epoch, **owned)
        assert (told(again.active_tasks), told(again.standby_tasks)) == (active, standby)


def test_a_heartbeat_with_nothing_new_writes_nothing() -> None:
    groups = two()
    groups.settle()
    before = len(groups.runtime.log)
    groups.report("one")
    groups.beat("two", 3)
    assert len(groups.runtime.log) == before


def test_a_new_tag_reassigns_the_group() -> None:
    groups = StreamsMembers()
    groups.enter("one")
    before = len(groups.runtime.log)
    assert groups.beat("one", 2, tags={"zone": "a"}).member_epoch == 3
    assert groups.keys(before) == [MEMBER, GROUP, TARGET_EPOCH, CURRENT]
    assert groups.refused("one", 3, tags={}) is Error.NONE


def test_internal_topics_are_requested_until_they_exist() -> None:
    of = topology(subtopology("0", "t", changelogs=["c"]))
    groups = StreamsMembers(FakeTopics(t=2), of=of)
    answer = groups.answer("one", 0, active={}, of=of, process="p", rebalance_ms=1_000)
    assert [*answer.to_create] == ["c"]
    assert statuses(answer.response) == [StatusCode.MISSING_INTERNAL_TOPICS]
    assert told(answer.response.active_tasks) == {}
    assert groups.state == "NotReady"
    assert groups.answer("one", 2).to_create.keys() == {"c"}
    groups.create("c", 2)
    later = groups.beat("one", 2)
    assert (later.member_epoch, told(later.active_tasks), statuses(later)) == (3, {"0": [0, 1]}, [])


def test_a_group_whose_source_goes_assigns_nothing() -> None:
    groups = StreamsMembers()
    groups.enter("one")
    del groups.topics.found["t"]
    groups.shard.topics_changed({"t"}, created=False)
    answer = groups.beat("one", 2)
    assert statuses(answer) == [StatusCode.MISSING_SOURCE_TOPICS]
    assert groups.target("one") == {}
    assert groups.holds("one") == {}
    assert groups.report("one").member_epoch == 3
    assert groups.state == "NotReady"


def test_a_topology_outlives_the_members_of_its_group() -> None:
    groups = StreamsMembers()
    groups.enter("one")
    groups.beat("one", -1)
    other = topology(subtopology("1", "t"))
    assert groups.refused("one", 0, active={}, of=other, rebalance_ms=1) is Error.INVALID_REQUEST
    assert groups.shard.delete_groups(["g"]) == [Error.NONE]
    assert groups.refused("one", 0, active={}, of=other, rebalance_ms=1) is Error.NONE


def test_another_topology_of_a_smaller_epoch_is_stale() -> None:
    groups = StreamsMembers(of=topology(subtopology("0", "t"), epoch=5))
    groups.enter("one")
    groups.enter("two", of=topology(subtopology("9", "t"), epoch=4))
    assert statuses(groups.report("two")) == [StatusCode.STALE_TOPOLOGY]


# --- delays -------------------------------------------------------------------------------------------------


def test_the_first_assignment_waits_for_others_and_comes_without_a_heartbeat() -> None:
    groups = StreamsMembers(config=DELAYED)
    first = groups.enter("one", "p")
    assert (first.member_epoch, told(first.active_tasks)) == (1, {})
    assert statuses(first) == [StatusCode.ASSIGNMENT_DELAYED]
    assert groups.keys() == [MEMBER, TOPOLOGY, GROUP, CURRENT]
    groups.beat("one", 1)
    groups.enter("two", "q")
    groups.runtime.pass_ms(2_999)
    before = len(groups.runtime.log)
    assert statuses(groups.beat("one", 1)) == [StatusCode.ASSIGNMENT_DELAYED]
    groups.runtime.pass_ms(1)
    assert groups.keys(before) == [TARGET, TARGET, TARGET_EPOCH]
    assert (groups.target("one"), groups.target("two")) == ({"0": [0, 2, 4]}, {"0": [1, 3, 5]})
    assert told(groups.beat("one", 1, active={}).active_tasks) == {"0": [0, 2, 4]}


def test_a_delay_without_a_heartbeat_assigns_nothing_as_in_kafka() -> None:
    groups = StreamsMembers(config=DELAYED)
    groups.enter("one")
    groups.runtime.pass_ms(3_000)
    assert groups.group.assignment_epoch == 1
    assert groups.beat("one", 1, active={}).member_epoch == 2


def test_a_delay_ends_with_its_group() -> None:
    groups = StreamsMembers(config=DELAYED)
    groups.enter("one")
    groups.beat("one", -1)
    groups.shard.delete_groups(["g"])
    groups.config = StreamsConfig(initial_rebalance_delay_ms=0, assignment_interval_ms=0)
    groups.enter("one", "p")
    groups.enter("two", "q")
    groups.beat("two", -1)
    groups.beat("one", 2)
    groups.enter("two", "q")
    groups.beat("two", -1)  # a heartbeat makes the next assignment due
    before = len(groups.runtime.log)
    groups.runtime.pass_ms(3_000)
    assert len(groups.runtime.log) == before


def test_a_newcomer_does_not_restart_the_delay() -> None:
    groups = StreamsMembers(config=DELAYED)
    groups.enter("one")
    groups.beat("one", -1)
    groups.runtime.pass_ms(2_000)
    groups.enter("two")
    groups.beat("two", 1)
    groups.runtime.pass_ms(1_000)
    assert groups.group.assignment_epoch == groups.group.epoch


def test_a_delayed_assignment_that_cannot_be_written_is_made_by_a_heartbeat() -> None:
    groups = StreamsMembers(config=DELAYED)
    groups.enter("one")
    groups.beat("one", 1)
    groups.runtime.failing = Error.NOT_LEADER_OR_FOLLOWER
    groups.runtime.pass_ms(3_000)
    groups.runtime.failing = None
    assert groups.group.assignment_epoch == 1
    assert told(groups.beat("one", 1, active={}).active_tasks) == {"0": [0, 1, 2, 3, 4, 5]}


def test_assignments_keep_their_distance() -> None:
    groups = StreamsMembers(config=StreamsConfig(assignment_interval_ms=1_000, initial_rebalance_delay_ms=0))
    groups.enter("one", "p")
    assert statuses(groups.enter("two", "q")) == [StatusCode.ASSIGNMENT_DELAYED]
    assert groups.state == "Assigning"
    groups.runtime.pass_ms(1_000)
    assert statuses(groups.beat("two", 2)) == []
    assert groups.group.assignment_epoch == 3


# --- time limits --------------------------------------------------------------------------------------------


def test_a_silent_member_is_removed() -> None:
    groups = two()
    groups.settle()
    groups.runtime.pass_ms(30_000)
    groups.report("one")
    before = len(groups.runtime.log)
    groups.runtime.pass_ms(15_000)
    assert [*groups.group.members] == ["one"]
    assert groups.keys(before) == [-CURRENT, -TARGET, -MEMBER, GROUP]
    assert groups.refused("two", 3) is Error.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_give_up_in_time_is_removed_though_it_lives() -> None:
    groups = StreamsMembers()
    groups.enter("one", "p", rebalance_ms=1_500)
    groups.enter("two", "q")
    groups.beat("one", 2)
    groups.runtime.pass_ms(1_499)
    groups.beat("one", 2)
    assert "one" in groups.group.members
    groups.runtime.pass_ms(1)
    assert "one" not in groups.group.members


def test_a_member_that_has_given_up_is_not_late() -> None:
    groups = StreamsMembers()
    groups.enter("one", "p", rebalance_ms=1_500)
    groups.enter("two", "q")
    groups.report("one")
    groups.report("one")
    groups.runtime.pass_ms(2_000)
    assert "one" in groups.group.members


def test_a_member_that_cannot_be_removed_now_is_removed_later() -> None:
    groups = two()
    groups.runtime.failing = Error.NOT_LEADER_OR_FOLLOWER
    groups.runtime.pass_ms(45_000)
    assert len(groups.group.members) == 2
    groups.runtime.failing = None
    groups.runtime.pass_ms(500)
    assert groups.group.is_empty


def test_a_late_member_that_cannot_be_removed_is_removed_later_though_it_lives() -> None:
    groups = StreamsMembers()
    groups.enter("one", "p", rebalance_ms=1_500)
    groups.enter("two", "q")
    groups.beat("one", 2)
    groups.runtime.failing = Error.NOT_LEADER_OR_FOLLOWER
    groups.runtime.pass_ms(1_500)
    groups.runtime.failing = None
    groups.beat("one", 2)
    groups.runtime.pass_ms(499)
    assert "one" in groups.group.members
    groups.runtime.pass_ms(1)
    assert "one" not in groups.group.members


def test_a_member_that_has_left_is_not_watched() -> None:
    groups = StreamsMembers()
    groups.enter("one", "p")
    groups.enter("two", "q")
    groups.beat("one", 2)
    for member in ("one", "two"):
        groups.beat(member, -1)
    assert groups.runtime.timers.next_ms is None


def test_a_topology_that_proves_valid_reassigns_the_group() -> None:
    groups = StreamsMembers()
    groups.enter("one")
    again = groups.restarted()
    again.group.validated_epoch = -1
    assert again.state == "NotReady"
    assert again.beat("one", 2).member_epoch == 3
    assert again.state == "Stable"


# --- a start ------------------------------------------------------------------------------------------------


def test_a_restart_goes_on_where_it_was() -> None:
    groups = two()
    groups.report("one")
    again = groups.restarted()
    for group in (groups.group, again.group):
        assert group.topology is not None
    assert again.group.members["one"] == groups.group.members["one"]
    assert again.group.targets == groups.group.targets
    assert again.group.validated_epoch == 0
    assert again.group.assignment_configs == {"num.standby.replicas": "0"}
    assert again.state == groups.state == "Reconciling"
    assert (again.group.configured, again.group.endpoint_epoch) == (None, 0)
    assert again.report("one").member_epoch == 3
    assert told(again.report("two").active_tasks) == {"0": [3, 4, 5]}


def test_a_restart_gives_everybody_its_whole_time() -> None:
    groups = two()
    groups.beat("one", 2)
    again = groups.restarted()
    again.runtime.pass_ms(44_999)
    assert len(again.group.members) == 2
    again.runtime.pass_ms(1)
    assert again.group.is_empty


def test_a_restart_restarts_the_time_to_give_up() -> None:
    groups = StreamsMembers()
    groups.enter("one", "p", rebalance_ms=1_500)
    groups.enter("two", "q")
    groups.beat("one", 2)
    again = groups.restarted()
    again.runtime.pass_ms(1_500)
    assert "one" not in again.group.members


def test_a_deleted_group_is_gone_after_a_restart() -> None:
    groups = two()
    groups.beat("one", -1)
    groups.beat("two", -1)
    groups.shard.delete_groups(["g"])
    assert groups.keys()[-3:] == [-TARGET_EPOCH, -GROUP, -TOPOLOGY]
    assert groups.restarted().shard.groups.streams == {}


# --- in memory alone ----------------------------------------------------------------------------------------


def test_a_request_for_a_shutdown_reaches_all_members_until_they_have_left() -> None:
    groups = two()
    assert statuses(groups.beat("one", 2, shutdown=True)) == [StatusCode.SHUTDOWN_APPLICATION]
    answer = groups.beat("two", 3, shutdown=True)
    assert answer.status is not None
    assert "member one" in answer.status[0].status_detail
    for member in ("one", "two"):
        groups.beat(member, -1)
    assert statuses(groups.enter("one")) == []


def test_endpoints_are_sent_to_members_with_an_older_list() -> None:
    groups = StreamsMembers()
    groups.enter("one", "p", port=1)
    groups.enter("two", "q", port=2)
    groups.settle()
    epoch = groups.group.endpoint_epoch
    assert groups.beat("one", 3, endpoint_epoch=epoch).partitions_by_user_endpoint is None
    told_now = groups.beat("one", 3, endpoint_epoch=epoch - 1)
    assert told_now.endpoint_information_epoch == epoch
    assert [
        (each.user_endpoint.port, [(part.topic, part.partitions) for part in each.active_partitions])
        for each in told_now.partitions_by_user_endpoint or ()
    ] == [(2, [("t", [3, 4, 5])]), (1, [("t", [0, 1, 2])])]


@pytest.mark.parametrize(
    "of", [topology(subtopology("0", "nowhere")), topology(subtopology("0", "t", changelogs=["c"]))]
)
def test_an_endpoint_does_no_harm_while_topics_are_missing(of: object) -> None:
    """Kafka answers UNKNOWN_SERVER_ERROR and creates no group."""
    groups = StreamsMembers(of=of)  # type: ignore[arg-type]
    answer = groups.enter("one", port=1, endpoint_epoch=-1)
    assert (answer.error_code, len(answer.status or ())) == (Error.NONE, 1)
    assert [*groups.group.members] == ["one"]

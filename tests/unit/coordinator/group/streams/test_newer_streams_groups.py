"""What Kafka 4.4 brings for streams groups, but for static members: offsets of tasks, tags, descriptions of topologies,
records of the last leave, changes between kinds of tasks. Beside Kafka: tests/compare."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.group.records import StreamsGroupRecord
from coordinator.group.streams.group import StreamsMember
from coordinator.group.streams.states import StatusCode, StreamsMemberState
from coordinator.group.streams.steps import TaskSituation, reconcile_tasks
from coordinator.group.streams.tasks import MemberTasks, OwnedTasks, TargetTasks, TaskHolders
from coordinator.java.maps import JavaMap
from coordinator.settings import StreamsConfig
from protocol.errors import Error
from protocol.messages.group_records import StreamsGroupMetadataKey, StreamsGroupTargetAssignmentMetadataKey
from protocol.messages.groups_streams import TaskOffset
from tests.unit.coordinator.group.consumer.consumers import FakeTopics
from tests.unit.coordinator.group.streams.members import StreamsMembers, statuses, subtopology, told, topology
from tests.unit.coordinator.group.streams.test_states import held, sets

NOW = StreamsConfig(assignment_interval_ms=0, initial_rebalance_delay_ms=0)
MEMBER, TARGET_EPOCH, TARGET, CURRENT, GROUP = 19, 20, 21, 22, 17


def at(subtopology_id: str, partition: int, offset: int) -> TaskOffset:
    return TaskOffset(subtopology_id=subtopology_id, partition=partition, offset=offset)


def shown(groups: StreamsMembers, member: str) -> list[tuple[str, int, int]]:
    described = groups.shard.describe_streams_group("g")
    (found,) = [each for each in described.members if each.member_id == member]
    return [(each.subtopology_id, each.partition, each.offset) for each in found.task_offsets]


# --- offsets of tasks -----------------------------------------------------------------------------------------


def test_offsets_are_those_reported_last() -> None:
    groups = StreamsMembers()
    groups.enter("one", offsets=[at("0", 1, 9)])
    # the offsets went to a group object that has been replaced since, as in Kafka
    assert shown(groups, "one") == []
    groups.beat("one", 2, offsets=[at("9", 1, 1), at("10", 5, 2), at("9", 0, 3)])
    assert shown(groups, "one") == [("10", 5, 2), ("9", 0, 3), ("9", 1, 1)]
    groups.beat("one", 2, end_offsets=[at("0", 0, 7)])
    assert len(shown(groups, "one")) == 3
    groups.beat("one", 2, offsets=[])
    assert shown(groups, "one") == []
    (one,) = groups.shard.describe_streams_group("g").members
    assert one.task_end_offsets == [at("0", 0, 7)]


@pytest.mark.parametrize("kind", ["offsets", "end_offsets"])
def test_offsets_of_a_task_twice_are_refused(kind: str) -> None:
    groups = StreamsMembers()
    groups.enter("one")
    groups.beat("one", 2, offsets=[at("0", 0, 1)])
    twice = [at("0", 1, 1), at("1", 1, 1), at("0", 1, 2)]
    answer = groups.beat("one", 2, **{kind: twice})
    assert answer.error_code == Error.INVALID_REQUEST
    assert answer.error_message == (
        "Task offsets contain a duplicate entry for subtopology 0 and partition 1."
    )
    assert shown(groups, "one") == [("0", 0, 1)]


def test_offsets_go_with_their_member_and_arent_durable() -> None:
    groups = StreamsMembers()
    groups.enter("one")
    before = len(groups.runtime.log)
    groups.beat("one", 2, offsets=[at("0", 0, 1)])
    assert len(groups.runtime.log) == before
    assert groups.restarted().group.task_offsets == {}
    groups.beat("one", -1)
    groups.enter("one")
    assert shown(groups, "one") == []


def test_the_most_advanced_process_gets_the_copy() -> None:
    of = topology(subtopology("0", "t", changelogs=["log"]))
    groups = StreamsMembers(FakeTopics(t=1, log=1), of=of, config=NOW)
    for member in ("one", "two", "three"):
        groups.enter(member, member)
    groups.settle()
    (active,) = [each for each in groups.group.members if groups.holds(each)]
    far, near = [each for each in groups.group.members if each != active]
    for member, offset in ((near, 5), (far, 9)):
        groups.beat(member, groups.group.members[member].epoch, offsets=[at("0", 0, offset)])
    groups.config = NOW._replace(num_standby_replicas=1)
    groups.settle()
    assert groups.copies(far) == {"0": [0]}
    assert groups.copies(near) == {}


def test_offsets_that_a_joiner_tells_count_for_its_own_assignment() -> None:
    of = topology(subtopology("0", "t", changelogs=["log"]))
    config = NOW._replace(num_standby_replicas=1)
    groups = StreamsMembers(FakeTopics(t=1, log=1), of=of, config=config)
    groups.enter("one", "p")
    groups.enter("two", "q")
    assert groups.target("one") == {"0": [0]}
    groups.enter("three", "r", offsets=[at("0", 0, 9)])
    assert groups.group.target_of("two").standby != groups.group.target_of("three").standby


def test_many_offsets_are_heard_beside_the_loop() -> None:
    groups = StreamsMembers()
    groups.enter("one")
    groups.beat("one", 2, offsets=[at("0", number, number) for number in range(20_000)])
    assert len(shown(groups, "one")) == 20_000


# --- what answers say -----------------------------------------------------------------------------------------


def test_an_answer_says_how_often_to_report_offsets() -> None:
    groups = StreamsMembers()
    answer = groups.enter("one")
    assert (answer.task_offset_interval_ms, answer.acceptable_recovery_lag) == (60_000, 10_000)
    assert (answer.acceptable_recovery_lag_legacy, answer.topology_description_required) == (0, False)
    groups.config = NOW._replace(task_offset_interval_ms=20_000, acceptable_recovery_lag=5)
    answer = groups.beat("one", 2)
    assert (answer.task_offset_interval_ms, answer.acceptable_recovery_lag) == (20_000, 5)
    refused = groups.beat("nobody", 2)
    assert (refused.task_offset_interval_ms, refused.acceptable_recovery_lag) == (0, -1)
    left = groups.beat("one", -1)
    assert (left.task_offset_interval_ms, left.acceptable_recovery_lag, left.status) == (0, -1, [])


def test_members_learn_which_tags_they_lack() -> None:
    groups = StreamsMembers(config=NOW._replace(rack_tags=("rack", "zone")))
    answer = groups.enter("one")
    assert (answer.member_epoch, statuses(answer)) == (2, [StatusCode.MISSING_CLIENT_TAGS])
    (status,) = answer.status or ()
    assert status.status_detail == (
        "Missing required client tags for rack-aware standby assignment: [rack, zone]. Configure them via "
        "'client.tag.<tagKey>' in your Streams config."
    )
    assert groups.beat("one", 2, version=0).status == []
    groups.beat("one", 2, tags={"rack": "r", "other": "o"})
    (status,) = groups.beat("one", 3).status or ()
    assert "[zone]" in status.status_detail
    groups.beat("one", 3, tags={"rack": "r", "zone": "z"})
    assert groups.beat("one", 4).status == []


def test_other_rack_tags_reassign_the_group() -> None:
    groups = StreamsMembers()
    groups.enter("one")
    assert groups.group.assignment_configs == {"num.standby.replicas": "0"}
    groups.config = NOW._replace(rack_tags=("rack", "zone"))
    assert groups.beat("one", 2).member_epoch == 3
    assert groups.group.assignment_configs == {
        "num.standby.replicas": "0",
        "rack.aware.assignment.tags": "rack,zone",
    }
    groups.config = NOW
    assert groups.beat("one", 3).member_epoch == 4


def test_a_group_is_described_with_its_assignor() -> None:
    groups = StreamsMembers()
    groups.enter("one")
    described = groups.shard.describe_streams_group("g")
    assert (described.assignor_name, described.topology_description_status) == ("sticky", 0)


# --- endpoints ------------------------------------------------------------------------------------------------


def test_the_epoch_of_endpoints_rises_with_them_and_with_their_members_tasks() -> None:
    groups = StreamsMembers()
    groups.enter("one", port=1)
    groups.beat("one", 2)
    epoch = groups.group.endpoint_epoch
    groups.enter("one", port=1)
    assert groups.group.endpoint_epoch == epoch
    groups.beat("one", 2, port=2)
    assert groups.group.endpoint_epoch == epoch + 1
    groups.enter("two", "q")
    assert groups.group.endpoint_epoch == epoch + 1
    groups.settle()
    assert groups.group.endpoint_epoch == epoch + 2
    groups.enter("one")
    assert groups.group.members["one"].endpoint is None
    assert groups.group.endpoint_epoch == epoch + 3


def test_endpoints_list_only_partitions_that_the_topic_has() -> None:
    groups = StreamsMembers(FakeTopics(t=3, u=1), of=topology(subtopology("0", "t", "u")))
    groups.enter("one", "p", port=1)
    groups.enter("two", "q", port=2)
    groups.settle()
    answer = groups.beat("one", groups.group.members["one"].epoch, endpoint_epoch=-1)
    found = {
        each.user_endpoint.port: {topic.topic: topic.partitions for topic in each.active_partitions}
        for each in answer.partitions_by_user_endpoint or ()
    }
    assert found == {1: {"t": [0, 1], "u": [0]}, 2: {"t": [2]}}


# --- the last one leaves (KAFKA-20442) ------------------------------------------------------------------------


def test_the_last_member_that_leaves_ends_the_assignment() -> None:
    groups = StreamsMembers()
    groups.enter("one")
    groups.enter("two", "q")
    before = len(groups.runtime.log)
    groups.beat("two", -1)
    assert groups.keys(before) == [-CURRENT, -TARGET, -MEMBER, GROUP]
    before = len(groups.runtime.log)
    groups.beat("one", -1)
    assert groups.keys(before) == [-CURRENT, -TARGET, -MEMBER, GROUP, TARGET_EPOCH]
    last = groups.runtime.written()[-1]
    assert isinstance(last, StreamsGroupRecord)
    assert isinstance(last.key, StreamsGroupTargetAssignmentMetadataKey)
    assert last.value is not None
    assert (last.value.assignment_epoch, last.value.assignment_timestamp) == (groups.group.epoch, 0)


def test_removing_the_last_member_ends_the_assignment_as_well() -> None:
    groups = StreamsMembers()
    groups.enter("one")
    before = len(groups.runtime.log)
    groups.runtime.pass_ms(46_000)
    assert groups.keys(before)[-1] == TARGET_EPOCH


# --- descriptions of topologies (KIP-1331) --------------------------------------------------------------------


def test_the_stored_epoch_of_a_kafka_plugin_stays_known() -> None:
    groups = StreamsMembers()
    groups.enter("one")
    (record,) = [each for each in groups.runtime.written() if isinstance(each.key, StreamsGroupMetadataKey)]
    assert isinstance(record, StreamsGroupRecord)
    assert (
        record.value.stored_description_topology_epoch,
        record.value.failed_description_topology_epoch,
    ) == (
        -1,
        -1,
    )
    groups.group.stored_description_epoch, groups.group.failed_description_epoch = 4, -2
    groups.beat("one", 2, tags={"k": "v"})
    groups.beat("one", -1)
    again = groups.restarted().group
    assert (again.stored_description_epoch, again.failed_description_epoch) == (4, -2)


# --- from one kind of a task to another -----------------------------------------------------------------------

NOTHING = OwnedTasks(None, None, None)


def next_of(assigned: MemberTasks, target: TargetTasks, *, mate: MemberTasks | None = None) -> StreamsMember:
    """Return a member of the process "p" after its next step. It hasn't reported what it owns."""
    holders = TaskHolders()
    holders.hold(assigned, "p")
    if mate is not None:
        holders.hold(mate, "p")
    member = StreamsMember("m", epoch=5, process_id="p", assigned=assigned)
    return reconcile_tasks(member, TaskSituation(7, target, NOTHING, holders))


ACTIVE = held({"0": [1]}, 3)
STANDBY = MemberTasks(JavaMap(), sets({"0": [1]}), JavaMap())
WARMUP = MemberTasks(JavaMap(), JavaMap(), sets({"0": [1]}))
TO_ACTIVE = TargetTasks(sets({"0": [1]}), JavaMap(), JavaMap())
TO_STANDBY = TargetTasks(JavaMap(), sets({"0": [1]}), JavaMap())
TO_WARMUP = TargetTasks(JavaMap(), JavaMap(), sets({"0": [1]}))


@pytest.mark.parametrize("has", [STANDBY, WARMUP])
def test_a_copy_becomes_active_in_one_step(has: MemberTasks) -> None:
    after = next_of(has, TO_ACTIVE)
    assert (after.state, after.epoch) == (StreamsMemberState.STABLE, 7)
    assert after.assigned == held({"0": [1]}, 7)


def test_an_active_task_becomes_a_copy_while_it_is_given_up() -> None:
    after = next_of(ACTIVE, TO_STANDBY)
    assert after.state is StreamsMemberState.UNREVOKED_TASKS
    assert after.assigned == STANDBY
    assert after.pending == ACTIVE


def test_an_active_task_becomes_a_warmup_once_it_is_given_up() -> None:
    after = next_of(ACTIVE, TO_WARMUP)
    assert after.state is StreamsMemberState.UNREVOKED_TASKS
    assert (after.assigned.is_empty, after.pending) == (True, ACTIVE)


@pytest.mark.parametrize(
    ("has", "target", "then"), [(STANDBY, TO_WARMUP, WARMUP), (WARMUP, TO_STANDBY, STANDBY)]
)
def test_one_kind_of_copy_becomes_the_other_in_one_step(
    has: MemberTasks, target: TargetTasks, then: MemberTasks
) -> None:
    after = next_of(has, target)
    assert (after.state, after.assigned, after.pending.is_empty) == (StreamsMemberState.STABLE, then, True)


@pytest.mark.parametrize("has", [STANDBY, WARMUP])
def test_a_copy_stays_until_the_task_is_free_to_become_active(has: MemberTasks) -> None:
    after = next_of(has, TO_ACTIVE, mate=ACTIVE)
    assert after.state is StreamsMemberState.UNRELEASED_TASKS
    assert (after.assigned, after.pending.is_empty) == (has, True)


def test_a_copy_stays_while_something_else_is_given_up() -> None:
    has = MemberTasks(held({"0": [2]}, 3).active, sets({"0": [1]}), JavaMap())
    after = next_of(has, TO_ACTIVE)
    assert after.state is StreamsMemberState.UNREVOKED_TASKS
    assert after.assigned == STANDBY
    assert after.pending == held({"0": [2]}, 3)


@pytest.mark.parametrize("target", [TO_ACTIVE, TO_STANDBY, TO_WARMUP])
@pytest.mark.parametrize("mate", [ACTIVE, STANDBY, WARMUP])
def test_tasks_of_another_member_of_the_process_are_waited_for(
    mate: MemberTasks, target: TargetTasks
) -> None:
    after = next_of(MemberTasks(JavaMap(), JavaMap(), JavaMap()), target, mate=mate)
    assert after.state is StreamsMemberState.UNRELEASED_TASKS
    assert after.assigned.is_empty


# --- a member of a stable group that has something else -------------------------------------------------------


def test_a_member_of_a_stable_group_with_other_tasks_is_led_to_its_part() -> None:
    """The group's epoch rises for this. Its assignment and the time of that stay the same."""
    groups = StreamsMembers()
    groups.enter("one")
    one = groups.group.members["one"]
    groups.group.put(replace(one, assigned=held({"0": [0, 1]}, 2)))
    made_ms, before = groups.group.assignment_timestamp_ms, len(groups.runtime.log)
    groups.runtime.pass_ms(1_000)
    answer = groups.beat("one", 2)
    assert groups.keys(before) == [GROUP, TARGET_EPOCH, CURRENT]
    assert (answer.member_epoch, told(answer.active_tasks)) == (3, {"0": [0, 1, 2, 3, 4, 5]})
    assert groups.group.assignment_timestamp_ms == made_ms


# --- who is back before the next assignment -------------------------------------------------------------------


@pytest.mark.parametrize("warmups", [2, 0])
def test_a_member_back_before_the_next_assignment_has_its_old_tasks(warmups: int) -> None:
    """Kafka remembers what it made of an assignment where it may make anything of it."""
    groups = StreamsMembers(config=NOW._replace(num_warmup_replicas=warmups))
    groups.enter("one", "p")
    groups.enter("two", "q")
    groups.settle()
    has = groups.holds("two")
    groups.config = groups.config._replace(assignment_interval_ms=10_000)
    groups.beat("two", -1)
    answer = groups.enter("two", "q")
    assert statuses(answer) == [StatusCode.ASSIGNMENT_DELAYED]
    assert told(answer.active_tasks) == (has if warmups else {})
    assert told(groups.enter("three", "r").active_tasks) == {}

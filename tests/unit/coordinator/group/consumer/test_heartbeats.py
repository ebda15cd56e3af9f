"""Members join, share partitions, leave, are late and come back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.group.consumer import heartbeats as long_heartbeat
from coordinator.group.records import ConsumerGroupRecord
from coordinator.settings import ConsumerTimeouts
from protocol.errors import Error
from protocol.messages.group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from tests.unit.coordinator.group.consumer.consumers import Consumers, FakeTopics

SESSION_MS = 45_000


def kinds(groups: Consumers, since: int = 0) -> list[str]:
    """Return the kinds of the written records' keys. A tombstone's has a minus in front."""
    found = []
    for record in groups.runtime.written()[since:]:
        assert isinstance(record, ConsumerGroupRecord)
        name = type(record.key).__name__.removeprefix("ConsumerGroup").removesuffix("Key")
        found.append(("-" if record.value is None else "") + name)
    return found


def test_the_first_member_gets_everything_at_epoch_2() -> None:
    groups = Consumers()

    answer = groups.enter("one")

    assert (answer.member_epoch, groups.assigned(answer)) == (2, {"t": [0, 1, 2, 3, 4, 5]})
    assert answer.heartbeat_interval_ms == 5_000
    assert kinds(groups) == [
        "MemberMetadata",
        "Metadata",
        "TargetAssignmentMember",
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
    ]


def test_a_second_member_gets_its_part_once_it_is_free() -> None:
    groups = Consumers()
    groups.enter("one")

    two = groups.enter("two")
    assert (two.member_epoch, groups.assigned(two)) == (3, {})
    one = groups.beat("one", 2)
    assert (one.member_epoch, groups.assigned(one)) == (2, {"t": [0, 1, 2]})
    assert groups.beat("two", 3).assignment is None
    assert groups.beat("one", 2, owned={"t": [0, 1, 2]}).member_epoch == 3
    assert groups.assigned(groups.beat("two", 3)) == {"t": [3, 4, 5]}
    assert groups.state == "Stable"


def test_no_two_members_ever_hold_the_same_partition() -> None:
    groups = Consumers(FakeTopics(t=12))
    members = {f"m{number}": [0, 0] for number in range(5)}
    for member in members:
        members[member] = [groups.enter(member).member_epoch, 0]
        for each, state in members.items():
            if state[0]:
                owned = {"t": groups.holds(each)}
                answer = groups.beat(each, state[0], owned=owned)
                state[0] = answer.member_epoch
        held = [
            partition
            for each in groups.group.members.values()
            for assigned in (each.assigned, each.pending)
            for topic in assigned
            for partition in assigned[topic]
        ]
        assert len(held) == len({*held})
    for _ in range(3):
        for each, state in members.items():
            state[0] = groups.beat(each, state[0], owned={"t": groups.holds(each)}).member_epoch
    assert sorted(partition for each in members for partition in groups.holds(each)) == [*range(12)]
    assert groups.state == "Stable"


def test_the_assignment_interval_holds_the_next_assignment_back() -> None:
    groups = Consumers(timeouts=ConsumerTimeouts(assignment_interval_ms=1_000))
    groups.enter("one")

    assert groups.enter("two").member_epoch == 2
    assert groups.state == "Assigning"
    groups.runtime.pass_ms(999)
    assert groups.beat("two", 2).member_epoch == 2
    groups.runtime.pass_ms(1)
    assert groups.beat("two", 2).member_epoch == 3


def test_an_answer_has_the_assignment_if_it_changed_or_the_request_was_full() -> None:
    groups = Consumers()
    groups.enter("one")

    assert groups.beat("one", 2).assignment is None
    assert groups.beat("one", 2, owned={"t": [0]}).assignment is None
    assert groups.beat("one", 2, "t", owned={"t": [0]}, rebalance_ms=1000).assignment is not None


def test_a_member_that_leaves_makes_room_at_the_next_heartbeat() -> None:
    groups = Consumers()
    groups.enter("one")
    groups.enter("two")
    before = len(groups.runtime.log)

    answer = groups.beat("two", -1)

    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("two", -1, 0)
    assert kinds(groups, before) == [
        "-CurrentMemberAssignment",
        "-TargetAssignmentMember",
        "-MemberMetadata",
        "Metadata",
    ]
    assert (groups.group.epoch, groups.group.assignment_epoch) == (4, 3)
    groups.beat("one", 2)
    assert groups.target("one") == [0, 1, 2, 3, 4, 5]


def test_an_unchanged_heartbeat_writes_nothing() -> None:
    groups = Consumers()
    groups.enter("one")
    before = len(groups.runtime.log)

    groups.beat("one", 2, "t", owned={"t": [0, 1, 2, 3, 4, 5]}, rebalance_ms=60_000)
    groups.enter("one")

    assert len(groups.runtime.log) == before


def test_a_member_that_is_silent_is_fenced() -> None:
    groups = Consumers()
    groups.enter("one")
    groups.runtime.pass_ms(SESSION_MS - 1)
    groups.beat("one", 2)
    groups.runtime.pass_ms(SESSION_MS - 1)
    assert groups.state == "Stable"

    groups.runtime.pass_ms(1)

    assert groups.state == "Empty"
    assert groups.refused("one", 2) is Error.UNKNOWN_MEMBER_ID


def test_a_groups_own_session_timeout_counts_from_the_next_heartbeat_on() -> None:
    groups = Consumers()
    groups.enter("one")
    groups.timeouts = ConsumerTimeouts(session_timeout_ms=1_000, heartbeat_interval_ms=10)

    groups.runtime.pass_ms(2_000)
    assert groups.beat("one", 2).heartbeat_interval_ms == 10
    groups.runtime.pass_ms(1_000)

    assert groups.state == "Empty"


def test_a_member_that_does_not_give_up_in_time_is_fenced_however_often_it_heartbeats() -> None:
    groups = Consumers()
    groups.enter("one", rebalance_ms=2_000)
    groups.enter("two")
    groups.beat("one", 2)
    for _ in range(3):
        groups.runtime.pass_ms(500)
        groups.beat("one", 2)
    groups.runtime.pass_ms(499)
    assert "one" in groups.group.members

    groups.runtime.pass_ms(1)

    assert "one" not in groups.group.members
    assert groups.assigned(groups.beat("two", 3)) == {"t": [0, 1, 2, 3, 4, 5]}


def test_a_member_that_gives_up_in_time_is_not_fenced() -> None:
    groups = Consumers()
    groups.enter("one", rebalance_ms=2_000)
    groups.enter("two")
    groups.beat("one", 2)
    groups.beat("one", 2, owned={"t": [0, 1, 2]})

    groups.runtime.pass_ms(10_000)

    assert "one" in groups.group.members


@pytest.mark.parametrize("in_passing", [True, False])
def test_a_member_whose_giving_up_cannot_be_written_still_has_its_time_limit(
    monkeypatch: pytest.MonkeyPatch, in_passing: bool
) -> None:
    if not in_passing:
        monkeypatch.setattr(long_heartbeat, "MOST_IN_PASSING", 0)
    groups = Consumers()
    groups.enter("one", rebalance_ms=2_000)
    groups.enter("two")
    groups.beat("one", 2)
    groups.runtime.failing = Error.KAFKA_STORAGE_ERROR
    groups.refused("one", 2, owned={"t": [0, 1, 2]})
    groups.runtime.failing = None
    groups.runtime.pass_ms(2_000)
    assert "one" not in groups.group.members


def test_a_static_member_that_leaves_for_a_while_is_not_fenced_for_partitions_to_give_up() -> None:
    groups = Consumers()
    groups.enter("one", instance="i", rebalance_ms=2_000)
    groups.enter("two")
    groups.beat("one", 2, instance="i")
    groups.beat("one", -2, instance="i")

    groups.runtime.pass_ms(10_000)

    assert "one" in groups.group.members


def test_one_member_too_many_is_refused() -> None:
    groups = Consumers(consumer_max_size=1)
    groups.enter("one")

    assert groups.refused("two", 0, "t", owned={}, rebalance_ms=1) is Error.GROUP_MAX_SIZE_REACHED
    assert groups.refused("nobody", 5) is Error.GROUP_MAX_SIZE_REACHED
    assert groups.refused("one", 2) is Error.NONE


def test_a_static_member_that_leaves_for_a_while_comes_back_to_its_partitions() -> None:
    groups = Consumers()
    groups.enter("one", instance="i")
    groups.enter("two")
    groups.beat("one", 2, instance="i")
    groups.beat("one", 2, instance="i", owned={"t": [0, 1, 2]})
    groups.beat("two", 3)
    epoch = groups.group.epoch

    assert groups.refused("three", 0, "t", owned={}, rebalance_ms=1, instance="i") is (
        Error.UNRELEASED_INSTANCE_ID
    )
    assert groups.beat("one", -2, instance="i").member_epoch == -2
    answer = groups.enter("three", instance="i")

    assert groups.assigned(answer) == {"t": [0, 1, 2]}
    assert (answer.member_epoch, groups.group.epoch) == (3, epoch)
    assert groups.refused("one", 3, instance="i") is Error.FENCED_INSTANCE_ID
    assert groups.state == "Stable"
    epochs = [
        (record.value.member_epoch, record.value.previous_member_epoch)
        for record in groups.runtime.written()
        if isinstance(record.value, ConsumerGroupCurrentMemberAssignmentValue)
        and getattr(record.key, "member_id") == "three"  # noqa: B009 - each of its kind has it
    ]
    assert epochs == [(0, 0), (3, 0)]


def test_a_static_member_that_stays_away_is_fenced() -> None:
    groups = Consumers()
    groups.enter("one", instance="i")
    groups.beat("one", -2, instance="i")

    groups.runtime.pass_ms(SESSION_MS)

    assert groups.state == "Empty"


def test_a_topic_that_grows_is_reassigned() -> None:
    groups = Consumers(FakeTopics(t=2))
    groups.enter("one")
    groups.topics.create("t", 3)
    assert groups.beat("one", 2).member_epoch == 2

    groups.shard.topics_changed({"t"}, created=False)

    answer = groups.beat("one", 2)
    assert (answer.member_epoch, groups.assigned(answer)) == (3, {"t": [0, 1, 2]})


def test_topics_of_others_leave_a_group_alone() -> None:
    groups = Consumers()
    groups.enter("one")
    groups.topics.create("u", 3)
    groups.shard.topics_changed({"u"}, created=True)

    assert groups.beat("one", 2).member_epoch == 2
    assert groups.group.epoch == 2


def test_the_assignor_that_most_members_name_assigns() -> None:
    groups = Consumers(FakeTopics(t=3, u=3))
    groups.enter("one", "t", "u", assignor="range")
    groups.enter("two", "t", "u", assignor="range")
    groups.enter("three", "t", "u")

    assert groups.group.preferred_assignor() == "range"
    assert [groups.target(member, "t") for member in sorted(("one", "two", "three"))] == [[0], [1], [2]]
    assert [groups.target(member, "u") for member in sorted(("one", "two", "three"))] == [[0], [1], [2]]


@pytest.mark.parametrize("error", [Error.NOT_LEADER_OR_FOLLOWER, Error.KAFKA_STORAGE_ERROR])
def test_a_heartbeat_that_cannot_be_recorded_changes_nothing(error: Error) -> None:
    groups = Consumers()
    groups.enter("one")
    groups.runtime.failing = error

    assert groups.refused("two", 0, "t", owned={}, rebalance_ms=1) is error
    assert [*groups.group.members] == ["one"]
    assert groups.group.epoch == 2


def test_a_member_that_cannot_be_fenced_now_is_fenced_later() -> None:
    groups = Consumers()
    groups.enter("one")
    groups.runtime.failing = Error.KAFKA_STORAGE_ERROR
    groups.runtime.pass_ms(SESSION_MS)
    assert groups.state == "Stable"

    groups.runtime.failing = None
    groups.runtime.pass_ms(500)

    assert groups.state == "Empty"


def test_a_member_whose_leaving_cannot_be_written_is_fenced_once_its_session_is_over() -> None:
    groups = Consumers()
    groups.enter("one", instance="i")
    groups.runtime.failing = Error.KAFKA_STORAGE_ERROR
    assert groups.refused("one", -1, instance="i") is Error.KAFKA_STORAGE_ERROR
    assert groups.state == "Stable"

    groups.runtime.failing = None
    groups.runtime.pass_ms(SESSION_MS)

    assert groups.state == "Empty"


# --- Kafka 4.4 --------------------------------------------------------------------------------------------------


def test_the_last_leave_writes_no_target_assignment_metadata_after_the_group() -> None:
    """KAFKA-20442. The timestamp 0 isn't written, so the next member is assigned partitions at once."""
    groups = Consumers()
    groups.enter("one")
    groups.enter("two")
    groups.beat("two", -1)
    assert isinstance(groups.runtime.written()[-1], ConsumerGroupRecord)
    assert not isinstance(groups.runtime.written()[-1].key, ConsumerGroupTargetAssignmentMetadataKey)
    groups.beat("one", -1)
    last = groups.runtime.written()[-1]
    assert isinstance(last, ConsumerGroupRecord)
    assert last.key == ConsumerGroupTargetAssignmentMetadataKey(group_id="g")
    assert last.value == ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=groups.group.epoch, assignment_timestamp=0
    )
    assert groups.group.assignment_epoch == groups.group.epoch
    assert groups.restarted().group.assignment_epoch == groups.group.epoch


def test_another_preferred_assignor_gives_the_group_an_epoch() -> None:
    """KAFKA-20434: the group's assignor counts, not which member names it."""
    groups = Consumers()
    groups.enter("one")
    groups.enter("two")
    epoch = groups.group.epoch
    groups.beat("one", groups.group.members["one"].epoch, assignor="uniform")  # "uniform" is the default
    assert groups.group.epoch == epoch
    groups.beat("one", groups.group.members["one"].epoch, assignor="range")
    assert groups.group.preferred_assignor() == "range"
    assert groups.group.epoch == epoch + 1
    groups.beat("two", groups.group.members["two"].epoch, assignor="range")
    assert groups.group.epoch == epoch + 1


def test_a_static_member_that_is_known_comes_back_to_a_group_that_is_full() -> None:
    """KAFKA-20601."""
    groups = Consumers(consumer_max_size=2)
    groups.enter("one", instance="i")
    groups.enter("two")
    assert groups.refused("three", 0, "t", owned={}, rebalance_ms=60_000) is Error.GROUP_MAX_SIZE_REACHED
    assert groups.refused("four", 0, "t", owned={}, rebalance_ms=60_000, instance="j") is (
        Error.GROUP_MAX_SIZE_REACHED
    )
    groups.beat("one", -2, instance="i")
    answer = groups.enter("five", instance="i")
    assert answer.error_code == Error.NONE
    assert sorted(groups.group.members) == ["five", "two"]


def test_a_member_with_another_instance_id_gives_the_one_before_back() -> None:
    groups = Consumers()
    groups.enter("one", instance="i")
    groups.beat("one", groups.group.members["one"].epoch, instance="i")
    groups.group.put(replace(groups.group.members["one"], instance_id="j"))
    assert groups.group.static_member("i") is None
    assert groups.group.static_member("j") is groups.group.members["one"]

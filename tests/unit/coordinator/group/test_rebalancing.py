"""Rebalances with a moved clock: delays, timeouts, sessions, and which members are dropped."""

from __future__ import annotations

import logging

import pytest

from coordinator.group.classic import rebalancing
from coordinator.group.classic.rebalancing import MOST_NAMED, some_of
from coordinator.group.records import GroupRecord
from protocol.errors import Error
from tests.unit.coordinator.runtime import Groups


def last_group_record(groups: Groups) -> GroupRecord:
    return [record for record in groups.runtime.written() if isinstance(record, GroupRecord)][-1]


# --- the first rebalance of an empty group ------------------------------------------------------------------


def test_the_first_join_waits_for_the_initial_delay() -> None:
    groups = Groups(initial_rebalance_delay_ms=3000)
    answer = groups.join(version=3)

    groups.runtime.pass_ms(2999)
    assert answer.is_parked
    groups.runtime.pass_ms(1)
    assert answer.error is Error.NONE


def test_members_that_join_meanwhile_prolong_the_initial_delay() -> None:
    """The delay is 1500, and members join at 0, 400, 800 and 1200. The rebalance completes at 3000, as in a trial with
    Kafka."""
    groups = Groups(initial_rebalance_delay_ms=1500)
    answers = [groups.join(version=3)]
    for _ in range(3):
        groups.runtime.pass_ms(400)
        answers.append(groups.join(version=3))

    groups.runtime.pass_ms(1799)
    assert all(answer.is_parked for answer in answers)
    groups.runtime.pass_ms(1)
    assert {answer.error for answer in answers} == {Error.NONE}


def test_the_initial_delay_is_not_prolonged_past_the_rebalance_timeout() -> None:
    groups = Groups(initial_rebalance_delay_ms=1000)
    answers = [groups.join(version=3, rebalance_ms=2500)]
    for _ in range(5):
        groups.runtime.pass_ms(490)
        answers.append(groups.join(version=3, rebalance_ms=2500))
    groups.runtime.pass_ms(2500 - 5 * 490)

    assert {answer.error for answer in answers} == {Error.NONE}


def test_a_group_that_all_left_during_the_initial_delay_is_empty_after_it() -> None:
    groups = Groups(initial_rebalance_delay_ms=1000)
    answer = groups.join(version=3)
    (member_id,) = groups.shard.groups.classic["g"].members

    assert groups.leave(member_id) == [Error.NONE]
    assert answer.error is Error.UNKNOWN_MEMBER_ID
    assert groups.state == "PreparingRebalance"
    groups.runtime.pass_ms(1000)
    assert groups.state == "Empty"


# --- the join phase -----------------------------------------------------------------------------------------


def test_a_rebalance_is_complete_once_all_have_joined() -> None:
    groups = Groups()
    ids = groups.stable(3)
    answers = [groups.join(each, protocols=[("range", b"new")]) for each in ids[1:]]
    assert all(answer.is_parked for answer in answers)

    leader = groups.join(ids[0])

    assert {answer.error for answer in [*answers, leader]} == {Error.NONE}
    assert leader.join is not None
    assert {member.member_id for member in leader.join.members} == {*ids}
    assert all(answer.join is not None and answer.join.members == [] for answer in answers)


def test_the_rebalance_takes_no_longer_than_the_largest_rebalance_timeout() -> None:
    groups = Groups()
    first, second = groups.stable(2, rebalance_ms=5_000, session_ms=20_000)
    answer = groups.join(first, protocols=[("range", b"new")], rebalance_ms=9_000, session_ms=20_000)

    groups.runtime.pass_ms(8_999)
    assert answer.is_parked
    groups.runtime.pass_ms(1)
    assert answer.error is Error.NONE
    assert [*groups.shard.groups.classic["g"].members] == [first]
    assert groups.heartbeat(second, 3) is Error.UNKNOWN_MEMBER_ID


def test_if_the_leader_does_not_rejoin_another_member_leads() -> None:
    groups = Groups()
    leader, follower = groups.stable(2, rebalance_ms=5_000, session_ms=20_000)
    answer = groups.join(follower, protocols=[("range", b"new")], rebalance_ms=5_000, session_ms=20_000)
    groups.runtime.pass_ms(5_000)

    assert answer.join is not None
    assert answer.join.leader == follower
    assert leader not in groups.shard.groups.classic["g"].members


def test_a_member_that_leaves_is_not_waited_for() -> None:
    groups = Groups()
    first, second = groups.stable(2)
    answer = groups.join(second, protocols=[("range", b"new")])

    groups.leave(first)

    assert answer.error is Error.NONE
    assert answer.join is not None
    assert answer.join.leader == second


def test_a_leave_answers_the_join_that_is_parked() -> None:
    groups = Groups()
    _, second = groups.stable(2)
    answer = groups.join(second, protocols=[("range", b"new")])

    groups.leave(second)

    assert answer.error is Error.UNKNOWN_MEMBER_ID
    assert answer.join is not None
    assert answer.join.member_id == ""


# --- the sync phase -----------------------------------------------------------------------------------------


def test_followers_wait_for_the_leaders_assignments() -> None:
    groups = Groups()
    leader, follower = groups.stable(2)
    answers = [groups.join(each, protocols=[("range", b"new")]) for each in (follower, leader)]
    assert {answer.error for answer in answers} == {Error.NONE}

    waiting = groups.sync(follower, 3)
    assert waiting.is_parked
    groups.sync(leader, 3, {follower: b"for the follower", "nobody": b"lost"})

    assert waiting.sync is not None
    assert (waiting.sync.assignment, waiting.sync.protocol_name) == (b"for the follower", "range")
    assert groups.shard.groups.classic["g"].members[leader].assignment == b""


def test_the_leaders_assignments_are_recorded_before_anybody_has_them() -> None:
    groups = Groups()
    (me,) = groups.stable()

    value = last_group_record(groups).value
    assert value is not None
    (member,) = value.members
    assert (member.member_id, member.subscription, member.assignment) == (me, b"r", me.encode())
    assert (member.client_host, member.session_timeout, member.rebalance_timeout) == ("/host", 10_000, 60_000)
    assert (value.generation, value.protocol, value.leader) == (1, "range", me)


def test_assignments_that_cannot_be_recorded_reach_nobody_and_a_rebalance_starts() -> None:
    groups = Groups()
    leader, follower = groups.stable(2)
    for each in (follower, leader):
        groups.join(each, protocols=[("range", b"new")])
    waiting = groups.sync(follower, 3)
    groups.runtime.failing = Error.COORDINATOR_NOT_AVAILABLE

    answer = groups.sync(leader, 3, {follower: b"x"})

    assert answer.error is waiting.error is Error.COORDINATOR_NOT_AVAILABLE
    assert groups.state == "PreparingRebalance"
    assert groups.shard.groups.classic["g"].members[follower].assignment == b""


def test_a_rebalance_ends_the_syncs_that_are_parked() -> None:
    groups = Groups()
    leader, follower = groups.stable(2)
    for each in (follower, leader):
        groups.join(each, protocols=[("range", b"new")])
    waiting = groups.sync(follower, 3)

    groups.join(version=3)

    assert waiting.error is Error.REBALANCE_IN_PROGRESS
    assert groups.state == "PreparingRebalance"


def test_a_member_that_does_not_sync_in_time_is_dropped_in_spite_of_heartbeats() -> None:
    groups = Groups()
    leader, follower = groups.stable(2, rebalance_ms=9_000)
    for each in (follower, leader):
        groups.join(each, protocols=[("range", b"new")], rebalance_ms=9_000)
    groups.sync(leader, 3, {})
    assert groups.state == "Stable"

    for _ in range(2):
        groups.runtime.pass_ms(4_000)
        assert groups.heartbeat(follower, 3) is groups.heartbeat(leader, 3) is Error.NONE
    groups.runtime.pass_ms(1_000)

    assert [*groups.shard.groups.classic["g"].members] == [leader]
    assert groups.state == "PreparingRebalance"
    assert groups.heartbeat(leader, 3) is Error.REBALANCE_IN_PROGRESS


def test_a_leader_that_never_syncs_does_not_hold_the_group_up_for_ever() -> None:
    groups = Groups()
    leader, follower = groups.stable(2, rebalance_ms=5_000)
    for each in (follower, leader):
        groups.join(each, protocols=[("range", b"new")], rebalance_ms=5_000)
    waiting = groups.sync(follower, 3)

    groups.runtime.pass_ms(5_000)

    assert waiting.error is Error.REBALANCE_IN_PROGRESS
    assert [*groups.shard.groups.classic["g"].members] == [follower]


# --- sessions -----------------------------------------------------------------------------------------------


def test_a_member_that_is_silent_for_its_session_is_dropped_and_the_others_rebalance() -> None:
    groups = Groups()
    first, second = groups.stable(2)
    groups.runtime.pass_ms(5_000)
    groups.heartbeat(first, 2)

    groups.runtime.pass_ms(4_999)
    assert second in groups.shard.groups.classic["g"].members
    groups.runtime.pass_ms(1)
    assert second not in groups.shard.groups.classic["g"].members
    assert groups.heartbeat(first, 2) is Error.REBALANCE_IN_PROGRESS


def test_a_group_whose_members_all_died_is_recorded_as_empty() -> None:
    groups = Groups()
    groups.stable()
    groups.runtime.pass_ms(10_000)

    value = last_group_record(groups).value
    assert value is not None
    assert (value.generation, value.protocol_type, value.protocol, value.leader) == (
        2,
        "consumer",
        None,
        None,
    )
    assert value.members == []


def test_a_commit_is_as_good_as_a_heartbeat() -> None:
    groups = Groups()
    (me,) = groups.stable()
    for _ in range(5):
        groups.runtime.pass_ms(9_000)
        assert groups.commit(("t", 0, 1), member_id=me, generation=1) == [Error.NONE]
    assert groups.state == "Stable"


def test_a_member_waiting_in_a_join_need_not_send_heartbeats() -> None:
    groups = Groups()
    first, second = groups.stable(2, session_ms=6_000)
    waiting = groups.join(second, protocols=[("range", b"new")], session_ms=6_000)
    for _ in range(6):
        groups.runtime.pass_ms(5_000)
        groups.heartbeat(first, 2)

    groups.join(first)

    assert waiting.error is Error.NONE


def test_a_new_member_whose_first_join_is_never_answered_is_dropped_after_five_minutes() -> None:
    groups = Groups()
    (first,) = groups.stable(rebalance_ms=1_000_000)
    waiting = groups.join(version=3, rebalance_ms=1_000_000)
    for _ in range(59):
        groups.runtime.pass_ms(5_000)
        groups.heartbeat(first, 1)
    assert waiting.is_parked
    groups.runtime.pass_ms(5_000)

    assert waiting.error is Error.UNKNOWN_MEMBER_ID
    assert [*groups.shard.groups.classic["g"].members] == [first]


def test_a_session_begins_when_the_join_is_answered() -> None:
    groups = Groups()
    first = groups.join(version=3, session_ms=6_000)
    groups.runtime.pass_ms(0)
    assert first.error is Error.NONE

    groups.runtime.pass_ms(5_999)
    assert groups.state == "CompletingRebalance"
    groups.runtime.pass_ms(1)
    assert groups.state == "Empty"


def test_a_member_that_synced_is_watched_again() -> None:
    groups = Groups()
    leader, follower = groups.stable(2, session_ms=6_000)
    for each in (follower, leader):
        groups.join(each, protocols=[("range", b"new")], session_ms=6_000)
    groups.sync(follower, 3)
    for _ in range(3):
        groups.runtime.pass_ms(5_000)
        groups.heartbeat(leader, 3)
    groups.sync(leader, 3, {})

    groups.runtime.pass_ms(5_999)
    assert follower in groups.shard.groups.classic["g"].members
    groups.heartbeat(leader, 3)
    groups.runtime.pass_ms(1)
    assert follower not in groups.shard.groups.classic["g"].members


# --- leaving ------------------------------------------------------------------------------------------------


def test_members_leave_together_each_with_its_own_answer() -> None:
    groups = Groups()
    first, second = groups.stable(2)
    pending = groups.join().join
    assert pending is not None

    answers = groups.leave(first, "nobody", pending.member_id, second, ("", "no instance"))

    unknown = Error.UNKNOWN_MEMBER_ID
    assert answers == [Error.NONE, unknown, Error.NONE, Error.NONE, unknown]
    assert groups.state == "Empty"


def test_without_a_group_every_member_is_unknown() -> None:
    assert Groups().leave("a", "b") == [Error.UNKNOWN_MEMBER_ID] * 2


def test_the_end_of_a_shard_sends_all_waiting_members_elsewhere() -> None:
    groups = Groups()
    first, second = groups.stable(2)
    joining = groups.join(second, protocols=[("range", b"new")])
    groups.shard.unload()
    assert joining.error is Error.NOT_COORDINATOR

    groups = Groups()
    first, second = groups.stable(2)
    for each in (second, first):
        groups.join(each, protocols=[("range", b"new")])
    syncing = groups.sync(second, 3)
    groups.shard.unload()
    assert syncing.error is Error.NOT_COORDINATOR


def test_members_that_cause_a_rebalance_are_named_in_the_log_up_to_a_bound(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebalancing, "MOST_NAMED", 1)
    caplog.set_level(logging.INFO)
    groups = Groups()
    first, second, _ = groups.stable(3)
    groups.leave(first, second)
    assert f"{first} and 1 more left" in caplog.text
    assert second not in caplog.text.rpartition(first)[2]

    groups = Groups()
    leader, *late = groups.stable(3, rebalance_ms=5_000)
    for each in (*late, leader):
        groups.join(each, protocols=[("range", b"new")], rebalance_ms=5_000)
    groups.sync(leader, 3, {})
    groups.runtime.pass_ms(5_000)
    assert "and 1 more didn't sync" in caplog.text


@pytest.mark.limit("coordinator.group.classic.rebalancing.MOST_NAMED")
def test_a_log_line_names_only_some_members() -> None:
    assert some_of(["a", "b"]) == "a, b"
    assert some_of([f"m{number}" for number in range(MOST_NAMED + 5)]).endswith("m9 and 5 more")

"""Static members: how they are fenced, and how they come back unnoticed (KIP-345, KIP-814)."""

from __future__ import annotations

import pytest

from broker.config.broker_config import DEFAULTS
from coordinator.group.records import GroupRecord
from protocol.errors import Error
from protocol.messages.groups import JoinGroupResponse
from tests.unit.coordinator.runtime import Answer, Groups


def joined(answer: Answer) -> JoinGroupResponse:
    assert answer.join is not None
    return answer.join


def pair(groups: Groups, version: int = 9, rebalance_ms: int = 60_000) -> tuple[str, str]:
    """Return a stable group of "one", who leads, and "two"."""
    first = groups.join(version=version, instance="one", rebalance_ms=rebalance_ms)
    groups.runtime.pass_ms(0)
    one = joined(first).member_id
    second = groups.join(version=version, instance="two", rebalance_ms=rebalance_ms)
    groups.join(one, version=version, instance="one", rebalance_ms=rebalance_ms)
    two = joined(second).member_id
    waiting = groups.sync(two, 2, instance="two")
    groups.sync(one, 2, {one: b"1", two: b"2"}, instance="one")
    assert waiting.error is Error.NONE
    return one, two


def test_a_static_member_joins_at_once_in_any_version() -> None:
    groups = Groups()
    answer = groups.join(version=9, instance="mine")
    groups.runtime.pass_ms(0)

    assert joined(answer).member_id.startswith("mine-")


def test_static_members_that_are_started_together_are_in_the_first_generation_together() -> None:
    """librdkafka's test 0102 starts them 50 ms apart, too. With a delay of 0, the second one would wait for a
    heartbeat."""
    delay_ms = int(DEFAULTS["group.initial.rebalance.delay.ms"].value)
    groups = Groups(initial_rebalance_delay_ms=delay_ms)
    first = groups.join(version=9, instance="one")
    groups.runtime.pass_ms(50)
    second = groups.join(version=9, instance="two")
    groups.runtime.pass_ms(2 * delay_ms)

    assert (joined(first).generation_id, joined(second).generation_id) == (1, 1)
    leader = joined(first)
    assert {member.group_instance_id for member in leader.members} == {"one", "two"}


FENCING = [
    ("one", "one", Error.NONE),
    ("one", None, Error.NONE),
    ("one", "two", Error.FENCED_INSTANCE_ID),
    ("one", "three", Error.UNKNOWN_MEMBER_ID),
    ("nobody", "one", Error.FENCED_INSTANCE_ID),
    ("nobody", None, Error.UNKNOWN_MEMBER_ID),
]


@pytest.mark.parametrize(("member", "instance", "expected"), FENCING)
def test_member_and_instance_id_have_to_belong_together(
    member: str, instance: str | None, expected: Error
) -> None:
    groups = Groups()
    one, _ = pair(groups)
    member_id = one if member == "one" else member

    assert groups.heartbeat(member_id, 2, instance) is expected
    assert groups.sync(member_id, 2, instance=instance).error is expected
    assert groups.commit(("t", 0, 1), member_id=member_id, generation=2, instance=instance) == [expected]
    if expected is not Error.NONE:
        assert groups.join(member_id, instance=instance).error is expected
    assert groups.leave((member_id, instance)) == [expected]


def test_a_member_that_comes_back_keeps_generation_and_assignment() -> None:
    groups = Groups()
    _, two = pair(groups)

    answer = joined(groups.join(version=9, instance="two"))

    assert answer.error_code == Error.NONE
    assert answer.member_id != two
    assert (answer.generation_id, answer.skip_assignment, answer.members) == (2, False, [])
    assert groups.state == "Stable"
    synced = groups.sync(answer.member_id, 2, instance="two").sync
    assert synced is not None
    assert synced.assignment == b"2"


def test_the_old_id_is_fenced() -> None:
    groups = Groups()
    _, two = pair(groups)
    groups.join(version=9, instance="two")

    assert groups.heartbeat(two, 2, "two") is Error.FENCED_INSTANCE_ID
    assert groups.heartbeat(two, 2) is Error.UNKNOWN_MEMBER_ID


def test_the_new_id_is_recorded() -> None:
    groups = Groups()
    pair(groups)
    written = len(groups.runtime.log)
    new = joined(groups.join(version=9, instance="two")).member_id

    (record,) = groups.runtime.written()[written:]
    assert isinstance(record, GroupRecord)
    assert record.value is not None
    assert {member.group_instance_id: member.member_id for member in record.value.members}["two"] == new
    assert groups.restarted().heartbeat(new, 2, "two") is Error.NONE


def test_a_leader_that_comes_back_need_not_assign() -> None:
    groups = Groups()
    pair(groups)

    answer = joined(groups.join(version=9, instance="one"))

    assert (answer.leader, answer.skip_assignment) == (answer.member_id, True)
    assert len(answer.members) == 2


def test_before_v9_a_returning_leader_learns_that_its_old_id_leads() -> None:
    groups = Groups()
    one, _ = pair(groups, version=8)

    answer = joined(groups.join(version=8, instance="one"))

    assert (answer.leader, answer.members, answer.skip_assignment) == (one, [], False)
    assert groups.shard.groups.classic["g"].leader_id == answer.member_id


def test_a_new_id_that_can_not_be_recorded_leaves_the_old_one_in_place() -> None:
    groups = Groups()
    one, two = pair(groups)
    groups.runtime.failing = Error.NOT_COORDINATOR

    answer = joined(groups.join(version=9, instance="two", protocols=[("range", b"other")]))

    assert Error(answer.error_code) is Error.NOT_COORDINATOR
    assert (answer.member_id, answer.generation_id, answer.leader) == ("", 2, one)
    assert groups.heartbeat(two, 2, "two") is Error.NONE
    assert groups.shard.groups.classic["g"].members[two].protocols == [("range", b"r")]
    assert groups.shard.groups.classic["g"].parked_joins == 0


def test_a_change_of_the_voted_protocol_makes_a_rebalance() -> None:
    groups = Groups()
    both = [("range", b""), ("roundrobin", b"")]
    first = groups.join(version=9, instance="one", protocols=both)
    groups.runtime.pass_ms(0)
    groups.share([joined(first).member_id])

    answer = groups.join(version=9, instance="one", protocols=[("roundrobin", b"")])

    assert joined(answer).generation_id == 2
    assert joined(answer).protocol_name == "roundrobin"


def test_a_member_returning_during_a_sync_causes_a_rebalance() -> None:
    groups = Groups()
    one, two = pair(groups)
    for member_id, instance in ((two, "two"), (one, "one")):
        groups.join(member_id, version=9, instance=instance, protocols=[("range", b"new")])
    syncing = groups.sync(two, 3, instance="two")

    back = groups.join(version=9, instance="two")

    assert syncing.error is Error.FENCED_INSTANCE_ID
    assert back.is_parked
    assert groups.state == "PreparingRebalance"


def test_a_member_returning_during_a_join_replaces_its_parked_join() -> None:
    groups = Groups()
    one, two = pair(groups)
    waiting = groups.join(two, version=9, instance="two", protocols=[("range", b"new")])

    back = groups.join(version=9, instance="two")
    assert waiting.error is Error.FENCED_INSTANCE_ID
    assert back.is_parked
    groups.join(one, version=9, instance="one")

    assert joined(back).generation_id == 3


def test_a_returned_member_is_dropped_when_it_falls_silent() -> None:
    groups = Groups()
    one, _ = pair(groups)
    back = joined(groups.join(version=9, instance="two")).member_id
    groups.runtime.pass_ms(5_000)
    groups.heartbeat(one, 2, "one")

    groups.runtime.pass_ms(5_000)

    assert [*groups.shard.groups.classic["g"].members] == [one]
    assert groups.heartbeat(back, 2, "two") is Error.UNKNOWN_MEMBER_ID


def test_timeouts_are_those_of_the_return() -> None:
    groups = Groups()
    pair(groups)
    groups.join(version=9, instance="two", session_ms=7_000, rebalance_ms=90_000)

    assert groups.shard.groups.classic["g"].rebalance_timeout_ms == 90_000


def test_a_static_member_stays_over_a_rebalance_that_it_does_not_join() -> None:
    groups = Groups()
    one, two = pair(groups, rebalance_ms=5_000)
    answer = groups.join(two, version=9, instance="two", protocols=[("range", b"new")], rebalance_ms=5_000)
    groups.runtime.pass_ms(5_000)

    assert joined(answer).leader == two
    assert {member.member_id for member in joined(answer).members} == {one, two}


def test_absent_static_members_delay_the_rebalance_until_their_sessions_end() -> None:
    groups = Groups()
    one, two = pair(groups, rebalance_ms=4_000)
    dynamic = joined(groups.join(version=9)).member_id
    waiting = groups.join(dynamic, version=9, rebalance_ms=4_000)
    groups.leave(dynamic)
    assert waiting.error is Error.UNKNOWN_MEMBER_ID

    groups.runtime.pass_ms(4_000)
    assert groups.state == "PreparingRebalance"
    assert {*groups.shard.groups.classic["g"].members} == {one, two}
    groups.runtime.pass_ms(6_000)
    assert groups.state == "Empty"


def test_an_administrator_takes_a_static_member_out_by_its_instance_id() -> None:
    groups = Groups()
    pair(groups)

    assert groups.leave(("", "two"), ("", "two"), ("", "three")) == [
        Error.NONE,
        Error.UNKNOWN_MEMBER_ID,
        Error.UNKNOWN_MEMBER_ID,
    ]
    assert groups.state == "PreparingRebalance"

"""JoinGroup: the order of its checks, new members, pending ids, `group.max.size`."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.group.records import GroupRecord, ShareGroupRecord, encode_record
from protocol.errors import Error, KafkaError
from protocol.messages.group_records_share import ShareGroupMetadataKey, ShareGroupMetadataValue
from tests.unit.coordinator.runtime import START_MS, Groups

# Each request is wrong in the way of its own line and of all lines below. The first check that fails answers.
WRONG: dict[str, Any] = {
    "member_id": "nobody",
    "instance": "nobody",
    "protocols": [("unknown", b"")],
    "session_ms": 1,
    "group": "",
}
FIRST_FAILURES = [
    ({}, Error.INVALID_GROUP_ID),
    ({"group": "g"}, Error.INVALID_SESSION_TIMEOUT),
    ({"group": "g", "session_ms": 6000}, Error.INCONSISTENT_GROUP_PROTOCOL),
    ({"group": "g", "session_ms": 6000, "protocols": [("range", b"")]}, Error.UNKNOWN_MEMBER_ID),
]


@pytest.mark.parametrize(
    ("righted", "expected"), FIRST_FAILURES, ids=lambda value: getattr(value, "name", "")
)
def test_checks_are_made_in_kafkas_order(righted: dict[str, Any], expected: Error) -> None:
    groups = Groups()
    groups.stable()

    answer = groups.join(**WRONG | righted)

    assert answer.error is expected
    assert answer.join is not None
    assert answer.join.member_id == "nobody"


@pytest.mark.parametrize(
    ("session_ms", "allowed"), [(5999, False), (6000, True), (1_800_000, True), (1_800_001, False)]
)
def test_both_ends_of_the_session_timeouts_are_allowed(session_ms: int, allowed: bool) -> None:
    answer = Groups().join(session_ms=session_ms)

    assert answer.error is (Error.MEMBER_ID_REQUIRED if allowed else Error.INVALID_SESSION_TIMEOUT)


def test_a_member_id_of_a_group_that_is_not_there_is_unknown_and_makes_no_group() -> None:
    groups = Groups()

    assert groups.join("me").error is Error.UNKNOWN_MEMBER_ID
    assert groups.shard.groups.classic == {}
    assert groups.runtime.log == []


def test_a_group_is_recorded_by_the_first_join_even_where_that_fails() -> None:
    groups = Groups()

    assert groups.join(protocols=[]).error is Error.INCONSISTENT_GROUP_PROTOCOL

    (record,) = groups.runtime.written()
    assert isinstance(record, GroupRecord)
    assert record.value is not None
    value = record.value
    assert (value.generation, value.protocol_type, value.protocol, value.leader) == (0, "", None, None)
    assert value.current_state_timestamp == START_MS
    assert groups.state == "Empty"


def test_a_group_that_can_not_be_recorded_is_not_made() -> None:
    groups = Groups()
    groups.runtime.failing = Error.NOT_COORDINATOR

    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        groups.join()

    assert groups.shard.groups.classic == {}


@pytest.mark.parametrize("version", range(4))
def test_up_to_v3_a_member_joins_at_once(version: int) -> None:
    groups = Groups()
    answer = groups.join(version=version, client="me")
    groups.runtime.pass_ms(0)

    assert answer.join is not None
    assert answer.join.member_id == "me-00000000-0000-0000-0000-000000000001"
    assert answer.join.leader == answer.join.member_id
    assert [member.metadata for member in answer.join.members] == [b"r"]
    assert (answer.join.generation_id, answer.join.protocol_name) == (1, "range")


def test_from_v4_on_a_member_gets_its_id_first() -> None:
    groups = Groups()
    first = groups.join(version=4)
    assert first.error is Error.MEMBER_ID_REQUIRED
    assert first.join is not None
    assert groups.state == "Empty"

    second = groups.join(first.join.member_id, version=4)
    groups.runtime.pass_ms(0)

    assert second.error is Error.NONE


def test_in_v0_the_session_timeout_is_the_rebalance_timeout() -> None:
    groups = Groups()
    groups.join(version=0, session_ms=7000, rebalance_ms=-1)

    assert groups.shard.groups.classic["g"].rebalance_timeout_ms == 7000


def test_a_pending_id_that_does_not_come_back_is_forgotten_when_its_session_ends() -> None:
    groups = Groups()
    answer = groups.join(session_ms=6000).join
    assert answer is not None

    groups.runtime.pass_ms(5999)
    assert answer.member_id in groups.shard.groups.classic["g"].pending_joins
    groups.runtime.pass_ms(1)
    assert groups.shard.groups.classic["g"].pending_joins == {}
    assert groups.join(answer.member_id).error is Error.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_a_pending_id_until_its_session_ends() -> None:
    groups = Groups()
    (me,) = groups.stable()
    groups.join(session_ms=6000)  # the new member never uses its id
    mine = groups.join(me, protocols=[("range", b"new")])

    assert mine.is_parked
    groups.runtime.pass_ms(6000)
    assert mine.error is Error.NONE


def test_a_pending_id_with_an_instance_id_is_an_error_of_the_server() -> None:
    groups = Groups()
    answer = groups.join().join
    assert answer is not None

    assert groups.join(answer.member_id, instance="i").error is Error.UNKNOWN_SERVER_ERROR


def test_a_repeated_join_replaces_the_parked_one() -> None:
    groups = Groups()
    first, second = groups.stable(2)
    lost = groups.join(second, protocols=[("range", b"new")])
    found = groups.join(second, protocols=[("range", b"newer")])

    assert groups.join(first).error is Error.NONE
    assert lost.is_parked
    assert found.error is Error.NONE


def test_a_full_group_admits_no_new_member() -> None:
    groups = Groups(max_size=2)
    groups.stable(2)

    answer = groups.join(version=3)

    assert answer.error is Error.GROUP_MAX_SIZE_REACHED
    assert answer.join is not None
    assert answer.join.member_id == ""


def test_waiting_members_are_counted_during_a_join() -> None:
    groups = Groups(max_size=2, initial_rebalance_delay_ms=100)
    ids = [answer.join.member_id for answer in [groups.join() for _ in range(4)] if answer.join is not None]

    answers = [groups.join(member_id) for member_id in ids]
    groups.runtime.pass_ms(1000)

    assert [answer.error for answer in answers] == [
        Error.NONE,
        Error.NONE,
        *[Error.GROUP_MAX_SIZE_REACHED] * 2,
    ]
    assert len(groups.shard.groups.classic["g"].members) == 2


def test_a_member_that_joins_again_too_late_for_the_size_is_out() -> None:
    groups = Groups()
    first, second = groups.stable(2)
    groups = groups.restarted(max_size=1)
    groups.join(second, protocols=[("range", b"new")])

    assert groups.join(first).error is Error.GROUP_MAX_SIZE_REACHED
    assert [*groups.shard.groups.classic["g"].members] == [second]


def test_another_protocol_type_is_refused_and_no_common_protocol_too() -> None:
    groups = Groups()
    groups.stable(protocols=[("range", b""), ("roundrobin", b"")])

    for fields in ({"protocol_type": "connect"}, {"protocols": [("sticky", b"")]}, {"protocol_type": ""}):
        assert groups.join(**fields).error is Error.INCONSISTENT_GROUP_PROTOCOL  # type: ignore[arg-type]


def test_an_empty_group_may_change_its_protocol_type() -> None:
    groups = Groups()
    (me,) = groups.stable()
    groups.leave(me)

    groups.stable(protocol_type="connect", protocols=[("compatible", b"")])

    assert groups.shard.groups.classic["g"].protocol_type == "connect"
    assert groups.shard.groups.classic["g"].generation == 3


def test_a_group_of_another_kind_is_not_joined() -> None:
    groups = Groups()
    key, value = encode_record(
        ShareGroupRecord(ShareGroupMetadataKey(group_id="g"), ShareGroupMetadataValue(epoch=2))
    )
    groups.shard.replay(key, value, 0, -1)

    assert groups.join().error is Error.INCONSISTENT_GROUP_PROTOCOL

    groups.shard.replay(key, None, 1, -1)
    assert groups.join().error is Error.MEMBER_ID_REQUIRED

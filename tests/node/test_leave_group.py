"""LeaveGroup of many members is done in turns, and answered as if it were done at once."""

from __future__ import annotations

from typing import Any

import pytest

from broker.handlers import leave_group
from coordinator.group.consumer import migration as leaving
from protocol.errors import Error, KafkaError
from protocol.messages.groups import (
    ConsumerProtocolSubscription,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from protocol.waiting import Later
from protocol.wire.codec import encode
from tests.node.test_group_handlers import OneShard


def left(groups: OneShard, members: list[str]) -> LeaveGroupResponse:
    request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=each) for each in members])
    answer: Any = groups.handle(request, 5)
    response = answer.result() if isinstance(answer, Later) else answer
    assert isinstance(response, LeaveGroupResponse)
    return response


def joined(groups: OneShard, count: int) -> list[str]:
    for _ in range(count):
        groups.consumers.join(version=3)
    return [*groups.shard.groups.classic["g"].members]


def portions(groups: OneShard, monkeypatch: pytest.MonkeyPatch, at_once: int) -> list[int]:
    """Have so many members leave at once from now on. Returns the list of how many left together each time."""
    monkeypatch.setattr(leave_group, "PER_TURN", at_once)
    sizes: list[int] = []
    leave = groups.shard.leave

    def counted(request: LeaveGroupRequest) -> Any:
        sizes.append(len(request.members))
        return leave(request)

    monkeypatch.setattr(groups.shard, "leave", counted)
    return sizes


def test_many_members_leave_some_after_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = OneShard()
    first, second, third, fourth = joined(groups, 4)
    sizes = portions(groups, monkeypatch, 2)
    answer = left(groups, [first, "nobody", second, third, first])
    assert sizes == [2, 2, 1]
    assert answer.error_code == Error.NONE
    assert [(each.member_id, each.error_code) for each in answer.members] == [
        (first, Error.NONE),
        ("nobody", Error.UNKNOWN_MEMBER_ID),
        (second, Error.NONE),
        (third, Error.NONE),
        (first, Error.UNKNOWN_MEMBER_ID),
    ]
    assert [*groups.shard.groups.classic["g"].members] == [fourth]


@pytest.mark.limit("coordinator.group.consumer.migration.MOST_LEAVING_WORK")
def test_members_of_a_consumer_group_leave_by_how_much_its_topics_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = OneShard()
    groups.consumers.enter("new", "t")
    metadata = b"\0\1" + encode(ConsumerProtocolSubscription(topics=["t", "u"]), 1)
    classic: list[str] = []
    for _ in range(4):
        answer = groups.consumers.join(version=3, protocols=[("range", metadata)])
        assert answer.join is not None
        classic.append(answer.join.member_id)
    sizes = portions(groups, monkeypatch, 1_000)
    monkeypatch.setattr(leaving, "MOST_LEAVING_WORK", 2 * (50 + 5 * 2))
    answer_ = left(groups, classic[:3])
    assert sizes == [2, 1]
    assert [each.error_code for each in answer_.members] == [Error.NONE] * 3
    assert {*groups.consumers.group.members} == {"new", classic[3]}


def test_a_coordinator_that_moves_meanwhile_fails_all_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = OneShard()
    members = joined(groups, 5)
    sizes = portions(groups, monkeypatch, 2)
    leave = groups.shard.leave

    def refused(request: LeaveGroupRequest) -> Any:
        if len(sizes) == 1:
            raise KafkaError(Error.NOT_COORDINATOR)
        return leave(request)

    monkeypatch.setattr(groups.shard, "leave", refused)
    assert left(groups, members) == LeaveGroupResponse(error_code=Error.NOT_COORDINATOR)
    assert [*groups.shard.groups.classic["g"].members] == members[2:]

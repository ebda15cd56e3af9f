"""Heartbeats of share groups that take long to decide are decided beside the loop, with a copy of the group."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from coordinator.group.ports import Deferred
from coordinator.group.share import heartbeats as long_heartbeat
from protocol.errors import Error, KafkaError
from protocol.messages.groups_share import (
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from tests.support.wishes import drive
from tests.unit.coordinator.group.consumer.consumers import FakeTopics
from tests.unit.coordinator.group.share.sharers import Sharers
from tests.unit.coordinator.runtime import asker


def beat(member: str, epoch: int = 0, names: Sequence[str] | None = None) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id="g", member_id=member, member_epoch=epoch, subscribed_topic_names=names
    )


def join(member: str, *names: str) -> ShareGroupHeartbeatRequest:
    return beat(member, 0, [*names] or ["t"])


def begun(sharers: Sharers, request: ShareGroupHeartbeatRequest) -> Deferred[ShareGroupHeartbeatResponse]:
    answer = sharers.shard.share_groups.heartbeat(asker(), request)
    assert isinstance(answer, Deferred)
    return answer


@pytest.fixture
def all_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_heartbeat, "MOST_OF_SHARES_IN_PASSING", -1)


@pytest.mark.limit("coordinator.group.share.heartbeats.MOST_OF_SHARES_IN_PASSING")
@pytest.mark.parametrize("much", ["topics", "partitions", "members"])
def test_a_heartbeat_with_much_to_decide_waits_and_others_do_not(much: str) -> None:
    count = long_heartbeat.MOST_OF_SHARES_IN_PASSING // 10
    sharers = Sharers(FakeTopics(t=count if much == "partitions" else 1), share_max_size=1_000)
    names = ["t"]
    if much == "members":
        for number in range(long_heartbeat.MOST_OF_SHARES_IN_PASSING // long_heartbeat._PER_MEMBER):
            sharers.enter(f"m{number}")
    elif much == "topics":
        names += [f"absent{number}" for number in range(count)]
    begun(sharers, join("one", *names))
    little = Sharers()
    answer = little.shard.share_groups.heartbeat(asker(), join("one"))
    assert isinstance(answer, ShareGroupHeartbeatResponse)


def test_a_member_that_has_all_and_says_nothing_new_never_waits() -> None:
    sharers = Sharers(FakeTopics(t=1_000))
    sharers.enter("one")
    sharers.runtime.pass_ms(0)  # a few states are initialized at a time
    sharers.settle("one")
    epoch = sharers.group.epoch
    answer = sharers.shard.share_groups.heartbeat(asker(), beat("one", epoch))
    assert isinstance(answer, ShareGroupHeartbeatResponse)
    begun(sharers, beat("one", epoch, ["t", "u"]))


@pytest.mark.usefixtures("all_is_much")
def test_nothing_is_done_before_it_is_settled() -> None:
    sharers = Sharers()
    deferred = begun(sharers, join("one"))
    deferred.decide()
    assert (sharers.runtime.log, sharers.shard.groups.share, sharers.persister.asked) == ([], {}, [])
    answer = deferred.settle()
    assert answer is not None
    assert (answer.member_epoch, sharers.assigned(answer)) == (2, {})
    assert sharers.keys_since(0) == [10, 11, 13, 12, 14, 15, 15]
    assert len(sharers.persister.asked) == 3
    assert sharers.state_partitions() == ({}, {"t": [0, 1, 2]}, [])


@pytest.mark.usefixtures("all_is_much")
@pytest.mark.parametrize("change", ["left", "topics", "offsets"])
def test_a_decision_begins_again_if_the_group_has_changed_meanwhile(change: str) -> None:
    sharers = Sharers()
    sharers.enter("one")
    sharers.settle("one")
    if change == "offsets":
        sharers.beat("one", -1)
    deferred = begun(sharers, join("two"))
    deferred.decide()
    if change == "left":
        sharers.beat("one", -1)
    elif change == "topics":
        sharers.topics.create("t", 4)
        sharers.shard.topics_changed({"t"}, created=False)
    else:
        partition = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=5)
        asked = AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[partition])
        drive(sharers.shard.share_groups.offsets.alter("g", [asked]), lambda answer: None)
    before = len(sharers.runtime.log)
    assert deferred.settle() is None
    assert len(sharers.runtime.log) == before
    sharers.enter("two")
    members = [*sharers.group.members]
    sharers.settle(*members)
    held = {partition for member in members for partition in sharers.holds(member)}
    assert held == {*range(4 if change == "topics" else 3)}


@pytest.mark.usefixtures("all_is_much")
def test_partitions_initialized_meanwhile_are_not_begun_again() -> None:
    sharers = Sharers()
    sharers.persister.holds = True
    sharers.enter("one")
    deferred = begun(sharers, join("two"))
    deferred.decide()
    before = len(sharers.persister.asked)
    sharers.persister.answer()
    assert deferred.settle() is None
    sharers.enter("two")
    assert len(sharers.persister.asked) == before


@pytest.mark.usefixtures("all_is_much")
def test_a_group_without_anything_to_decide_has_settled() -> None:
    sharers = Sharers()
    sharers.enter("one")
    sharers.settle("one")
    group = sharers.group
    assert group.settled == group.changes
    deferred = begun(sharers, beat("one", group.epoch, ["t"]))
    deferred.decide()
    sharers.shard.topics_changed({"t"}, created=False)
    assert deferred.settle() is None
    assert group.settled != group.changes


@pytest.mark.usefixtures("all_is_much")
def test_topics_that_changed_meanwhile_are_examined_once_more() -> None:
    sharers = Sharers()
    sharers.enter("one")
    sharers.settle("one")
    deferred = begun(sharers, join("two", "u"))
    deferred.decide()
    sharers.topics.create("u", 2)
    sharers.shard.topics_changed({"u"}, created=True)  # no member has subscribed to it yet
    assert deferred.settle() is not None
    assert sharers.group.needs_refresh(sharers.runtime.now_ms())


@pytest.mark.usefixtures("all_is_much")
def test_a_failed_write_changes_nothing() -> None:
    sharers = Sharers()
    sharers.enter("one")
    deferred = begun(sharers, join("two"))
    deferred.decide()
    before = sharers.group
    sharers.runtime.failing = Error.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(KafkaError):
        deferred.settle()
    assert sharers.group is before
    assert [*sharers.group.members] == ["one"]


@pytest.mark.usefixtures("all_is_much")
def test_a_member_waiting_for_its_decision_is_not_late() -> None:
    sharers = Sharers()
    sharers.enter("one")
    with sharers.shard.member_waits(beat("one", 2)):
        sharers.runtime.pass_ms(100_000)
        assert [*sharers.group.members] == ["one"]
    sharers.runtime.pass_ms(1_000)
    assert not sharers.group.members

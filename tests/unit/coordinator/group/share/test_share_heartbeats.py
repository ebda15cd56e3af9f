"""Members of share groups join, stay, get partitions and leave."""

from __future__ import annotations

import pytest

from coordinator.group.member_memory import MOST_MEMBER_BYTES, MemberMemory
from coordinator.java.maps import JavaSet
from coordinator.settings import ShareTimeouts
from protocol.errors import Error
from tests.unit.coordinator.group.consumer.consumers import FakeTopics
from tests.unit.coordinator.group.share.sharers import Sharers
from tests.unit.coordinator.runtime import START_MS


def test_the_first_member_is_assigned_nothing_before_the_states_are_initialized() -> None:
    sharers = Sharers()
    answer = sharers.enter("m")
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("m", 2, 5_000)
    assert sharers.assigned(answer) == {}
    assert sharers.keys_since(0) == [10, 11, 13, 12, 14, 15, 15]
    assert sharers.persister.asked == [
        ("initialize", "g", sharers.topic_id(), partition, 2, -1) for partition in range(3)
    ]
    assert sharers.state_partitions() == ({}, {"t": [0, 1, 2]}, [])

    answer = sharers.beat("m", 2)
    assert (answer.member_epoch, sharers.assigned(answer)) == (3, {"t": [0, 1, 2]})
    assert sharers.keys_since(7) == [11, 13, 12, 14]
    answer = sharers.beat("m", 3)
    assert (answer.member_epoch, sharers.assigned(answer)) == (3, None)
    assert sharers.keys_since(11) == []


def test_a_target_is_computed_again_only_after_the_interval() -> None:
    sharers = Sharers(timeouts=ShareTimeouts(assignment_interval_ms=1_000))
    sharers.enter("m")
    first = len(sharers.runtime.log)
    answer = sharers.beat("m", 2)
    assert (answer.member_epoch, sharers.keys_since(first)) == (2, [11])
    sharers.runtime.pass_ms(999)
    assert sharers.beat("m", 2).member_epoch == 2
    assert sharers.enter("n").member_epoch == 2
    assert sharers.keys_since(first + 1) == [10, 11, 14]
    sharers.runtime.pass_ms(1)
    answer = sharers.beat("n", 2)
    assert answer.member_epoch == 4
    assert sharers.keys_since(first + 4) == [13, 13, 12, 14]


def test_several_members_share_a_partition() -> None:
    sharers = Sharers(FakeTopics(t=1))
    for member in ("one", "two", "three"):
        sharers.enter(member)
    sharers.settle("one", "two", "three")
    assert [sharers.holds(member) for member in ("one", "two", "three")] == [[0], [0], [0]]


def test_each_partition_has_a_member_and_each_member_a_partition() -> None:
    sharers = Sharers(FakeTopics(t=5, u=4))
    members = [f"m{number}" for number in range(4)]
    for member in members:
        sharers.enter(member, "t", "u")
    sharers.settle(*members)
    for topic, count in (("t", 5), ("u", 4)):
        held = {partition for member in members for partition in sharers.holds(member, topic)}
        assert held == {*range(count)}
    assert all(sharers.holds(member, "t") or sharers.holds(member, "u") for member in members)


def test_members_of_different_subscriptions_share_each_topic() -> None:
    sharers = Sharers(FakeTopics(t=2, u=2))
    sharers.enter("both", "t", "u")
    sharers.enter("one", "t")
    sharers.settle("both", "one")
    assert sorted([*sharers.holds("both"), *sharers.holds("one")]) == [0, 1]
    assert sharers.holds("both", "u") == [0, 1]


def test_a_member_that_changes_its_subscription_loses_its_partitions_at_once() -> None:
    sharers = Sharers(FakeTopics(t=2, u=2))
    sharers.enter("m")
    sharers.settle("m")
    answer = sharers.beat("m", 3, "u")
    assert (answer.member_epoch, sharers.assigned(answer)) == (4, {})
    sharers.settle("m")
    assert sharers.holds("m", "u") == [0, 1]


def test_an_empty_heartbeat_changes_nothing_and_a_full_one_gets_a_full_answer() -> None:
    sharers = Sharers()
    sharers.enter("m", rack="r")
    sharers.settle("m")
    first = len(sharers.runtime.log)
    assert sharers.assigned(sharers.beat("m", 3)) is None
    assert sharers.assigned(sharers.beat("m", 3, "t")) == {"t": [0, 1, 2]}
    assert sharers.group.members["m"].rack_id == "r"
    assert sharers.keys_since(first) == []
    sharers.beat("m", 3, client="other")
    assert sharers.keys_since(first) == [10]
    assert sharers.group.members["m"].client_id == "other"


def test_names_of_topics_that_arent_there_are_kept_until_they_are() -> None:
    sharers = Sharers(FakeTopics())
    assert sharers.assigned(sharers.enter("m", "later")) == {}
    assert sharers.persister.asked == []
    sharers.topics.create("later", 1)
    sharers.shard.topics_changed(frozenset({"later"}), created=True)
    sharers.settle("m")
    assert sharers.holds("m", "later") == [0]


def test_a_topic_that_grows_is_initialized_as_far_as_it_is_new() -> None:
    sharers = Sharers()
    sharers.enter("m")
    sharers.settle("m")
    sharers.persister.asked.clear()
    sharers.topics.create("t", 5)
    sharers.shard.topics_changed(frozenset({"t"}), created=False)
    sharers.settle("m")
    assert [asked[3] for asked in sharers.persister.asked] == [3, 4]
    assert sharers.holds("m") == [0, 1, 2, 3, 4]


def test_a_deleted_topic_goes_from_the_states_at_once_and_from_members_with_their_heartbeat() -> None:
    sharers = Sharers(FakeTopics(t=1, u=1))
    sharers.enter("m", "t", "u")
    sharers.settle("m")
    first = len(sharers.runtime.log)
    gone = sharers.topics.found.pop("t")
    assert [*sharers.shard.forget_topics([("t", gone.topic_id)], ["t"])] == [1]
    sharers.shard.topics_changed(frozenset({"t"}), created=False)
    assert sharers.state_partitions() == ({}, {"u": [0]}, [])
    answer = sharers.beat("m", 3)
    assert sharers.assigned(answer) == {"u": [0]}
    assert sharers.keys_since(first) == [15, 11, 13, 12, 14]


def test_a_settled_group_is_not_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    sharers = Sharers(FakeTopics(t=2, u=1))
    sharers.enter("m")
    sharers.enter("n")
    sharers.settle("m", "n")
    looked_at: list[str] = []
    by_name = sharers.topics.by_name

    def looking(name: str) -> object:
        looked_at.append(name)
        return by_name(name)

    monkeypatch.setattr(sharers.topics, "by_name", looking)
    for member in ("m", "n"):
        assert sharers.beat(member, sharers.group.members[member].epoch).error_code == 0
    assert looked_at == []
    sharers.beat("m", sharers.group.members["m"].epoch, client="other")
    assert looked_at != []
    sharers.settle("m", "n")
    looked_at.clear()
    sharers.shard.topics_changed(frozenset({"u"}), created=False)
    sharers.beat("m", sharers.group.members["m"].epoch)
    assert looked_at == []
    sharers.shard.topics_changed(frozenset({"t"}), created=False)
    sharers.beat("m", sharers.group.members["m"].epoch)
    assert looked_at != []


def test_a_group_has_not_settled_while_partitions_are_initializing() -> None:
    sharers = Sharers()
    sharers.persister.holds = True
    sharers.enter("m")
    sharers.beat("m", 2)
    sharers.beat("m", 2)
    assert len(sharers.persister.asked) == 3
    again = sharers.restarted()
    again.beat("m", 2)
    again.runtime.pass_ms(30_000)
    again.beat("m", 2)
    assert len(again.persister.asked) == 3


# --- refusals -----------------------------------------------------------------------------------------------


def test_an_unknown_member_is_refused() -> None:
    sharers = Sharers(share_max_size=1)
    assert sharers.refused("m", 1) is Error.GROUP_ID_NOT_FOUND
    assert sharers.refused("m", -1) is Error.GROUP_ID_NOT_FOUND
    sharers.enter("m")
    assert sharers.refused("n", -1) is Error.UNKNOWN_MEMBER_ID
    assert sharers.refused("n", 0, "t") is Error.GROUP_MAX_SIZE_REACHED
    assert sharers.refused("n", 7) is Error.GROUP_MAX_SIZE_REACHED
    assert sharers.refused("m", 0, "t") is Error.NONE
    sharers = Sharers()
    sharers.enter("m")
    assert sharers.refused("n", 7) is Error.UNKNOWN_MEMBER_ID


def test_a_group_of_another_protocol_stays_what_it_is() -> None:
    sharers = Sharers()
    sharers.commit(("t", 0, 7), group="committed")
    sharers.join(group="classic")
    for group in ("committed", "classic"):
        for epoch in (0, 3, -1):
            assert sharers.refused("m", epoch, "t", group=group) is Error.GROUP_ID_NOT_FOUND


def test_a_share_group_is_no_group_of_another_protocol() -> None:
    sharers = Sharers()
    sharers.enter("m")
    assert sharers.commit(("t", 0, 7)) == [Error.GROUP_ID_NOT_FOUND]
    assert sharers.join().error is Error.INCONSISTENT_GROUP_PROTOCOL
    assert sharers.shard.describe_group("g", api_version=6).error_code == Error.GROUP_ID_NOT_FOUND
    assert sharers.shard.list_groups([], ["share"])[0].group_id == "g"
    assert sharers.shard.list_groups(["stable"], [])[0].protocol_type == "share"
    sharers.shard.check_fetch("g", "m", 3)


def test_a_heartbeat_that_cant_be_recorded_changes_nothing() -> None:
    sharers = Sharers()
    sharers.runtime.failing = Error.COORDINATOR_NOT_AVAILABLE
    assert sharers.refused("m", 0, "t") is Error.COORDINATOR_NOT_AVAILABLE
    assert sharers.shard.groups.share == {}
    assert sharers.persister.asked == []


def test_members_that_hold_too_much_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sharers = Sharers(memory=MemberMemory())
    sharers.enter("m")
    monkeypatch.setattr("coordinator.group.member_memory.MOST_MEMBER_BYTES", 20_000)
    assert MOST_MEMBER_BYTES > 20_000
    many = [f"{'x' * 100}{number}" for number in range(100)]
    assert sharers.refused("n", 0, *many) is Error.GROUP_MAX_SIZE_REACHED
    assert sharers.refused("m", 2) is Error.NONE


# --- leaving ------------------------------------------------------------------------------------------------


def test_a_member_that_leaves_is_gone_and_its_partitions_go_to_others() -> None:
    sharers = Sharers()
    sharers.enter("m")
    sharers.enter("n")
    sharers.settle("m", "n")
    first = len(sharers.runtime.log)
    epoch = sharers.group.epoch
    answer = sharers.beat("m", -1)
    assert (answer.member_id, answer.member_epoch, answer.assignment) == ("m", -1, None)
    assert sharers.keys_since(first) == [-14, -13, -10, 11]
    assert sharers.group.epoch == epoch + 1
    assert sharers.refused("m", -1) is Error.UNKNOWN_MEMBER_ID
    sharers.settle("n")
    assert sharers.holds("n") == [0, 1, 2]


def test_without_members_the_hash_is_that_of_no_topics() -> None:
    sharers = Sharers()
    sharers.enter("m")
    assert sharers.group.metadata_hash != 0
    sharers.beat("m", -1)
    assert sharers.group.metadata_hash == 0
    assert sharers.group.topics == {}


def test_a_silent_member_is_fenced_and_each_heartbeat_restarts_its_session() -> None:
    sharers = Sharers(timeouts=ShareTimeouts(session_timeout_ms=10_000, assignment_interval_ms=0))
    sharers.enter("m")
    sharers.enter("n")
    sharers.runtime.pass_ms(9_000)
    sharers.settle("n")
    sharers.runtime.pass_ms(1_000)
    assert [*sharers.group.members] == ["n"]
    sharers.runtime.pass_ms(9_000)
    assert sharers.group.is_empty


def test_a_session_whose_end_cannot_be_recorded_ends_later() -> None:
    sharers = Sharers()
    sharers.enter("m")
    sharers.runtime.failing = Error.COORDINATOR_NOT_AVAILABLE
    sharers.runtime.pass_ms(45_000)
    assert not sharers.group.is_empty
    sharers.runtime.failing = None
    sharers.runtime.pass_ms(500)
    assert sharers.group.is_empty


def test_a_member_that_has_left_has_no_session_to_end() -> None:
    sharers = Sharers()
    sharers.enter("m")
    sharers.beat("m", -1)
    records = len(sharers.runtime.log)
    sharers.runtime.pass_ms(100_000)
    assert len(sharers.runtime.log) == records


# --- restart and description --------------------------------------------------------------------------------


def test_a_restart_knows_the_group_and_gives_everybody_a_whole_session() -> None:
    sharers = Sharers(FakeTopics(t=3, u=1))
    sharers.enter("m")
    sharers.enter("n", "t", "u", rack="r")
    sharers.settle("m", "n")
    sharers.enter("gone")
    sharers.beat("gone", -1)
    sharers.runtime.pass_ms(40_000)
    sharers.settle("m", "n")
    again = sharers.restarted()
    for name in (
        "epoch",
        "assignment_epoch",
        "assignment_timestamp_ms",
        "metadata_hash",
        "topics",
        "homogeneous",
    ):
        assert getattr(again.group, name) == getattr(sharers.group, name)
    assert dict(again.group.members.items()) == dict(sharers.group.members.items())
    assert again.group.targets == sharers.group.targets
    assert again.state_partitions() == sharers.state_partitions()
    again.runtime.pass_ms(44_999)
    assert len(again.group.members) == 2
    again.settle("m")
    again.runtime.pass_ms(1)
    assert [*again.group.members] == ["m"]


def test_a_group_is_described() -> None:
    sharers = Sharers()
    sharers.enter("m", rack="r")
    sharers.settle("m")
    described = sharers.shard.share_groups.describe("g")
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 3, 3)
    assert described.assignor_name == "simple"
    (member,) = described.members
    assert (member.member_id, member.rack_id, member.member_epoch, member.client_id) == ("m", "r", 3, "c")
    assert member.subscribed_topic_names == ["t"]
    (topic,) = member.assignment.topic_partitions
    assert (topic.topic_name, topic.partitions) == ("t", [0, 1, 2])


def test_names_are_sorted_when_a_member_sends_them_and_not_for_describing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"n{number}" for number in range(100)]
    sharers = Sharers()
    sharers.enter("m", *names)
    in_order = [*sharers.group.members["m"].names]
    assert in_order != names
    assert sharers.restarted().group.members["m"].listed_names == tuple(in_order)
    monkeypatch.setattr(JavaSet, "__iter__", None)
    (member,) = sharers.shard.share_groups.describe("g").members
    assert member.subscribed_topic_names == in_order


def test_a_share_group_expires_never() -> None:
    sharers = Sharers()
    sharers.enter("m")
    sharers.beat("m", -1)
    sharers.runtime.pass_ms(30 * 86_400_000)
    assert sharers.runtime.now_ms() > START_MS
    assert sharers.group.is_empty


def test_the_last_leave_writes_no_target_assignment_metadata_after_the_group() -> None:
    """KAFKA-20442."""
    sharers = Sharers()
    sharers.enter("one")
    sharers.enter("two")
    before = len(sharers.keys_since(0))
    sharers.beat("two", -1)
    assert sharers.keys_since(before)[-1] == 11
    sharers.beat("one", -1)
    assert sharers.keys_since(before)[-2:] == [11, 12]
    assert sharers.group.assignment_epoch == sharers.group.epoch

"""Heartbeats that take long to decide are decided beside the loop, with a copy of the group. If the group has changed,
they are decided anew."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from typing import Any

import pytest

from coordinator.group.classic.group import ClassicGroup
from coordinator.group.consumer import heartbeats as long_heartbeat
from coordinator.group.consumer import regexes as regex_results
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.heartbeats import MOST_IN_PASSING, LongHeartbeat
from coordinator.group.modern.topic_hashes import TopicHashes
from coordinator.group.shard_parts import RETRY_MS
from protocol.errors import Error, KafkaError
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest
from tests.unit.coordinator.group.consumer.consumers import Consumers, FakeTopics
from tests.unit.coordinator.runtime import asker

MANY = MOST_IN_PASSING // long_heartbeat._PER_PARTITION  # partitions; their topic takes it beyond the limit
MANY_MEMBERS = MOST_IN_PASSING // long_heartbeat._PER_MEMBER


def said(
    member: str, epoch: int = 0, names: Sequence[str] = ("t",), instance: str | None = None
) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        member_epoch=epoch,
        instance_id=instance,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[*names],
        topic_partitions=[],
    )


def long(
    groups: Consumers, member: str = "one", epoch: int = 0, names: Sequence[str] = ("t",)
) -> LongHeartbeat:
    heartbeat = groups.shard.consumer_heartbeat(asker(), said(member, epoch, names))
    assert isinstance(heartbeat, LongHeartbeat)
    return heartbeat


def history(seed: int) -> Consumers:
    """Have members join, leave, change their subscriptions and die."""
    luck = random.Random(seed)
    groups = Consumers(FakeTopics(t=5, u=3, v=1))
    epochs: dict[str, int] = {}
    owned: dict[str, dict[str, Any]] = {}
    for _ in range(60):
        member = f"m{luck.randrange(5)}"
        names = luck.sample(["t", "u", "v", "nowhere"], luck.randrange(1, 4))
        what = luck.randrange(8)
        if what == 0 and member in epochs:
            groups.beat(member, -1)
            epochs.pop(member)
        elif what == 1:
            groups.runtime.pass_ms(20_000)
        elif what == 2:
            groups.shard.topics_changed({"t"}, created=False)
        elif member not in epochs or what == 3:
            more = {"regex": "u|v"} if luck.randrange(3) == 0 else {}
            answer = groups.enter(member, *names, assignor=luck.choice([None, "range", "uniform"]), **more)
            epochs[member], owned[member] = answer.member_epoch, {}
        else:
            answer = groups.beat(member, epochs[member], owned=owned[member])
            if answer.error_code:
                epochs.pop(member)
                continue
            epochs[member] = answer.member_epoch
            owned[member] = groups.assigned(answer) or owned[member]
    return groups


@pytest.mark.parametrize("seed", range(10))
def test_the_same_is_written_and_known_whether_it_is_decided_in_passing_or_not(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_passing = history(seed)
    monkeypatch.setattr(long_heartbeat, "MOST_IN_PASSING", -1)
    monkeypatch.setattr(regex_results, "MOST_RECORDED_IN_PASSING", -1)
    beside = history(seed)
    assert beside.runtime.log == in_passing.runtime.log
    known = [
        {
            slot: getattr(groups.group, slot)
            for slot in (*type(groups.group).__slots__, *type(groups.group).__mro__[1].__slots__)
            if slot not in ("members", "server_assignors", "counted")
        }
        for groups in (beside, in_passing, beside.restarted())
    ]
    assert known[0] == known[1]
    assert [*beside.group.members.items()] == [*in_passing.group.members.items()]
    assert beside.group.server_assignors.items() == in_passing.group.server_assignors.items()


@pytest.mark.limit("coordinator.group.consumer.heartbeats.MOST_IN_PASSING")
def test_heartbeats_about_many_topics_partitions_or_members_are_long_and_settled_members_never_are() -> None:
    few = Consumers(FakeTopics(t=6))
    # this was decided in passing, or the answer would be of another class
    assert few.enter("one").error_code == Error.NONE
    for topics, members in ((FakeTopics(t=MANY), 1), (FakeTopics(t=6), MANY_MEMBERS)):
        groups = Consumers(topics)
        for number in range(members - 1):
            groups.enter(f"m{number}")
        heartbeat = long(groups)
        heartbeat.decide()
        answer = heartbeat.settle()
        assert answer is not None
        said = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="one", member_epoch=answer.member_epoch, subscribed_topic_names=None
        )
        groups.beat("one", answer.member_epoch)  # a new group's first heartbeat looks at the topics once more
        if members == 1:
            again = groups.shard.consumer_heartbeat(asker(), said)
            assert not isinstance(again, LongHeartbeat)
    groups = Consumers()
    names = [f"nowhere-{number}" for number in range(MOST_IN_PASSING // long_heartbeat._PER_TOPIC)]
    assert long(groups, names=names)


def test_a_group_is_not_copied_where_nothing_is_to_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group with a regular expression has no settled members."""
    groups = Consumers(FakeTopics(t=6))
    groups.enter("one", regex="t")
    for _ in range(3):
        groups.beat("one", groups.group.members["one"].epoch)
    written = len(groups.runtime.log)
    monkeypatch.setattr(long_heartbeat, "MOST_IN_PASSING", -1)
    before, changes = groups.group, groups.group.changes
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="one", member_epoch=before.members["one"].epoch, subscribed_topic_names=None
    )
    heartbeat = groups.shard.consumer_heartbeat(asker(), request)
    assert isinstance(heartbeat, LongHeartbeat)
    copied: list[ConsumerGroup] = []
    monkeypatch.setattr(ConsumerGroup, "copy", copied.append)
    heartbeat.decide()
    answer = heartbeat.settle()
    assert answer is not None
    assert answer.error_code == Error.NONE
    assert (groups.group, groups.group.changes, len(groups.runtime.log)) == (before, changes, written)
    assert not copied
    groups.runtime.pass_ms(44_999)  # the heartbeat counted for the session
    assert "one" in groups.group.members


def test_nothing_has_happened_before_it_is_settled() -> None:
    groups = Consumers(FakeTopics(t=MANY))
    heartbeat = long(groups)
    heartbeat.decide()
    assert not groups.runtime.log
    assert "g" not in groups.shard.groups.consumer
    assert groups.runtime.timers.next_ms is None
    assert heartbeat.settle() is not None
    assert len(groups.holds("one")) == MANY
    assert groups.restarted().holds("one") == groups.holds("one")


def test_the_groups_volatile_state_stays_with_it_until_the_decision_counts() -> None:
    groups = Consumers(FakeTopics(t=MANY))
    groups.enter("old", instance="i")
    groups.enter("two")
    groups.beat("old", -2, instance="i")
    before = groups.group
    before.awaited_joins |= {"old", "two"}
    request = said("new", instance="i")
    heartbeat = groups.shard.consumer_heartbeat(asker(), request)
    assert isinstance(heartbeat, LongHeartbeat)
    heartbeat.decide()
    assert before.awaited_joins == {"old", "two"}
    before.awaited_joins.add("told meanwhile")
    before.awaited_joins.discard("two")
    assert heartbeat.settle() is not None
    assert groups.group is not before
    assert groups.group.awaited_joins == {"told meanwhile"}


def test_the_log_reports_a_decisions_effects_once_and_nothing_of_a_discarded_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "barnabas.groups")
    groups = Consumers(FakeTopics(t=MANY))
    groups.enter("old", instance="i")
    groups.beat("old", -2, instance="i")
    request = said("new", names=("t", "u"), instance="i")
    caplog.clear()
    for counts in (False, True):
        heartbeat = groups.shard.consumer_heartbeat(asker(), request)
        assert isinstance(heartbeat, LongHeartbeat)
        heartbeat.decide()
        if not counts:
            groups.group.request_refresh()
        assert not caplog.messages
        assert (heartbeat.settle() is not None) is counts
    assert caplog.messages == [
        "group g: new takes the place of old",
        "group g is at epoch 3",
        "group g: assignment 3 by uniform",
    ]


def test_an_empty_classic_group_is_forgotten_where_the_decision_counts(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "barnabas.groups")
    groups = Consumers(FakeTopics(t=MANY))
    groups.shard.groups.classic["g"] = ClassicGroup("g", 0)
    forgotten: list[str] = []
    monkeypatch.setattr(groups.shard._rebalancing, "forget", forgotten.append)
    heartbeat = long(groups)
    heartbeat.decide()
    assert not caplog.messages
    assert not forgotten
    assert heartbeat.settle() is not None
    assert caplog.messages[0] == "group g is empty and becomes a consumer group"
    assert forgotten == ["g"]
    assert "g" not in groups.shard.groups.classic


def test_a_decision_is_discarded_once_the_group_has_changed() -> None:
    groups = Consumers(FakeTopics(t=MANY))
    groups.enter("two")
    changes: list[Any] = [
        lambda: groups.enter("three"),
        lambda: groups.beat("three", -1),
        lambda: groups.shard.topics_changed({"t"}, created=False),
        lambda: groups.runtime.pass_ms(46_000),
    ]
    for change in changes:
        heartbeat = long(groups)
        heartbeat.decide()
        change()
        written = len(groups.runtime.log)
        assert heartbeat.settle() is None
        assert len(groups.runtime.log) == written
    heartbeat = long(groups)
    heartbeat.decide()
    assert heartbeat.settle() is not None


def test_a_member_is_not_late_while_a_heartbeat_of_its_own_waits_to_be_decided() -> None:
    groups = Consumers(FakeTopics(t=MANY))
    groups.enter("one")
    heartbeat, request = long(groups), said("one")
    with groups.shard.member_waits(request), groups.shard.member_waits(request):
        heartbeat.decide()
        groups.runtime.pass_ms(100_000)
        assert heartbeat.settle() is not None
    groups.runtime.pass_ms(44_999)  # the whole session begins at that point
    assert "one" in groups.group.members
    groups.runtime.pass_ms(1)
    assert not groups.group.members


def test_a_late_member_that_was_refused_is_late_once_none_of_its_requests_waits() -> None:
    groups = Consumers(FakeTopics(t=MANY))
    groups.enter("one")
    with groups.shard.member_waits(said("one")):
        with groups.shard.member_waits(said("one")):
            groups.runtime.pass_ms(50_000)
        groups.runtime.pass_ms(50_000)
        assert "one" in groups.group.members
    groups.runtime.pass_ms(RETRY_MS)
    assert not groups.group.members


def test_a_member_with_partitions_to_give_up_is_not_late_before_it_is_heard() -> None:
    groups = Consumers(FakeTopics(t=6))
    first = groups.enter("one")
    groups.enter("two")
    assert groups.beat("one", first.member_epoch, owned={"t": range(6)}).error_code == Error.NONE
    kept = {"t": groups.holds("one")}
    assert len(kept["t"]) == 3  # the member has a minute to give up the others
    with groups.shard.member_waits(said("one")):
        for _ in range(9):
            groups.runtime.pass_ms(10_000)
            groups.beat("two", groups.group.members["two"].epoch)
        assert groups.beat("one", first.member_epoch, owned=kept).error_code == Error.NONE
    groups.runtime.pass_ms(RETRY_MS)
    assert "one" in groups.group.members


def test_a_group_that_came_or_went_meanwhile_is_another_one() -> None:
    groups = Consumers(FakeTopics(t=MANY))
    heartbeat = long(groups)
    heartbeat.decide()
    groups.enter("two")
    assert heartbeat.settle() is None
    heartbeat = long(groups)
    groups.shard.groups.consumer.clear()
    heartbeat.decide()
    assert heartbeat.settle() is None


def test_a_failed_write_leaves_the_group_as_it_was() -> None:
    groups = Consumers(FakeTopics(t=MANY))
    groups.enter("two")
    before = groups.group
    heartbeat = long(groups)
    heartbeat.decide()
    groups.runtime.failing = Error.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(KafkaError):
        heartbeat.settle()
    assert groups.group is before
    assert "one" not in before.members


def test_an_error_is_reported_unless_the_group_or_the_topics_changed_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = Consumers(FakeTopics(t=MANY))

    def fail(*_: Any) -> None:
        raise RuntimeError("dictionary changed size during iteration")

    heartbeats = groups.shard._consumer_heartbeats
    monkeypatch.setattr(heartbeats._steps.target, "take", fail)
    heartbeat = long(groups)
    heartbeat.decide()
    with pytest.raises(RuntimeError):
        heartbeat.settle()
    heartbeat = long(groups)
    heartbeat.decide()
    groups.topics.create("u", 1)
    assert heartbeat.settle() is None


@pytest.mark.parametrize("what", ["comes", "grows", "is made again"])
def test_a_topic_that_changes_while_its_first_subscriber_is_decided_is_looked_at_again(what: str) -> None:
    """The group wasn't yet subscribed to the topic, so it wasn't told of the change."""
    groups = Consumers(FakeTopics(t=MANY))
    groups.enter("two")
    groups.beat("two", 2)
    if what != "comes":
        groups.topics.create("u", 1)
        groups.shard.topics_changed({"u"}, created=True)
    heartbeat = long(groups, names=["u"])
    heartbeat.decide()
    if what == "is made again":
        del groups.topics.found["u"]
        groups.shard.topics_changed({"u"}, created=False)
    groups.topics.create("u", 3)
    groups.shard.topics_changed({"u"}, created=what != "grows")
    answer = heartbeat.settle()
    assert answer is not None
    groups.beat("one", answer.member_epoch)
    assert groups.holds("one", "u") == [0, 1, 2]


def test_metadata_of_no_topic_s_doesn_t_have_a_group_look_again() -> None:
    groups = Consumers(FakeTopics(t=MANY))
    groups.enter("two")
    groups.beat("two", 2)
    heartbeat = long(groups)
    heartbeat.decide()
    groups.topics.version += 1
    assert heartbeat.settle() is not None
    assert not groups.group.needs_refresh(groups.runtime.now_ms())


def test_a_hash_of_a_topic_that_changes_while_it_is_looked_at_isn_t_kept() -> None:
    topics = FakeTopics(t=1)
    hashes = TopicHashes(topics)
    hashed = hashes.look(["t"])
    topics.create("t", 2)
    hashes.forget({"t"})
    hashes.keep(hashed)
    assert hashes.of(["t"]) == TopicHashes(topics).of(["t"]) != hashed.value


def test_a_long_one_begins_no_second_resolution(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Consumers(FakeTopics(a1=1, a2=1))
    groups.beat("one", 0, owned={}, regex="a.", rebalance_ms=60_000)
    groups.runtime.pass_ms(0)
    for _ in range(3):  # until the member has settled
        groups.beat("one", groups.group.members["one"].epoch, owned={})
    groups.runtime.pass_ms(10_001)
    groups.topics.create("a3", 1)
    groups.shard.topics_changed({"a3"}, created=True)
    with monkeypatch.context() as now:
        now.setattr(long_heartbeat, "MOST_IN_PASSING", -1)
        long = groups.shard.consumer_heartbeat(asker(), said("two", 0, ["a1"]))
    assert isinstance(long, LongHeartbeat)
    long.decide()
    monkeypatch.setattr(regex_results, "MOST_RECORDED_IN_PASSING", -1)
    groups.runtime.holds = True
    groups.beat("one", groups.group.members["one"].epoch)
    groups.runtime.pass_ms(0)
    assert len(groups.runtime.held) == 1
    assert long.settle() is not None
    groups.runtime.pass_ms(5)
    assert len(groups.runtime.held) == 1
    assert groups.shard.regexes.resolving == {"g"}

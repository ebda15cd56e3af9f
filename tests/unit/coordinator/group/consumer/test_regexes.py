"""Subscriptions by regular expression: when the expressions are resolved, and what the result is."""

from __future__ import annotations

import pytest

from coordinator.group.consumer import regexes
from coordinator.group.consumer.heartbeats import MOST_IN_PASSING, LongHeartbeat
from coordinator.java import re2
from coordinator.java.re2_syntax import Chars
from protocol.errors import Error
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest
from protocol.waiting import turn
from tests.unit.coordinator.group.consumer.consumers import Consumers, FakeTopics
from tests.unit.coordinator.runtime import asker


def enter(groups: Consumers, member: str, regex: str) -> None:
    groups.beat(member, 0, owned={}, regex=regex, rebalance_ms=60_000)
    groups.runtime.pass_ms(0)


def topics_of(groups: Consumers, regex: str) -> list[str]:
    return sorted(groups.group.resolved[regex].topics)


def test_the_heartbeat_that_brings_one_is_answered_before_it_is_resolved() -> None:
    groups = Consumers(FakeTopics(a1=1, a2=1, b=1))

    answer = groups.beat("one", 0, owned={}, regex="a.", rebalance_ms=60_000)
    assert (answer.member_epoch, groups.assigned(answer), groups.group.resolved) == (1, {}, {})
    groups.runtime.pass_ms(0)

    assert topics_of(groups, "a.") == ["a1", "a2"]
    answer = groups.beat("one", 1)
    assert (answer.member_epoch, groups.assigned(answer)) == (2, {"a1": [0], "a2": [0]})


def test_a_resolution_that_fails_is_not_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Consumers(FakeTopics(a1=1))

    def no_memory(names: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(FakeTopics, "names", no_memory)
        with pytest.raises(MemoryError):
            enter(groups, "one", "a.")
    assert groups.group.resolved == {}
    groups.beat("one", 1, regex="a.")
    groups.runtime.pass_ms(0)

    assert topics_of(groups, "a.") == ["a1"]


def test_an_expression_matches_whole_names() -> None:
    groups = Consumers(FakeTopics(a=1, ab=1))
    enter(groups, "one", "a")

    assert topics_of(groups, "a") == ["a"]


def test_a_nonsense_expression_is_refused_and_changes_nothing() -> None:
    groups = Consumers()
    error = groups.refused("one", 0, "t", owned={}, rebalance_ms=1, regex="(")

    assert error is Error.INVALID_REGULAR_EXPRESSION
    assert groups.shard.groups.consumer == {}


@pytest.mark.limit("coordinator.group.consumer.regexes.MIN_REFRESH_INTERVAL_MS")
def test_a_new_topic_is_found_ten_seconds_after_the_last_resolution() -> None:
    groups = Consumers(FakeTopics(a1=1))
    enter(groups, "one", "a.")
    groups.topics.create("a2", 1)
    groups.shard.topics_changed({"a2"}, created=True)
    groups.runtime.pass_ms(10_000)
    groups.beat("one", 1)
    groups.runtime.pass_ms(0)
    assert topics_of(groups, "a.") == ["a1"]

    groups.runtime.pass_ms(1)
    groups.beat("one", 2)
    groups.runtime.pass_ms(0)

    assert topics_of(groups, "a.") == ["a1", "a2"]


def test_without_new_topics_it_is_resolved_again_after_the_refresh_interval() -> None:
    groups = Consumers(FakeTopics(a1=1))
    enter(groups, "one", "a.")
    first = groups.group.resolved["a."].timestamp_ms
    for passed_ms, expected in ((300_000, first), (300_001, first + 600_001)):
        while passed_ms:
            groups.runtime.pass_ms(min(passed_ms, 40_000))
            passed_ms -= min(passed_ms, 40_000)
            groups.beat("one", groups.group.members["one"].epoch)
            groups.runtime.pass_ms(0)
        assert groups.group.resolved["a."].timestamp_ms == expected


def test_an_expression_without_subscribers_goes() -> None:
    groups = Consumers(FakeTopics(a=1, b=1))
    enter(groups, "one", "a")
    enter(groups, "two", "a")
    groups.beat("one", groups.group.members["one"].epoch, regex="")
    assert [*groups.group.resolved] == ["a"]

    groups.beat("two", -1)

    assert groups.group.resolved == {}
    assert groups.group.topics == {}


def test_the_same_expression_of_another_member_is_not_resolved_again() -> None:
    groups = Consumers(FakeTopics(a=2))
    enter(groups, "one", "a")
    groups.runtime.pass_ms(20_000)
    groups.beat("one", 1)
    before = groups.group.resolved["a"]

    enter(groups, "two", "a")

    assert groups.group.resolved["a"] == before
    assert groups.group.homogeneous


def test_names_and_an_expression_subscribe_to_both() -> None:
    groups = Consumers(FakeTopics(a=1, b=1, c=1))
    groups.beat("one", 0, "c", owned={}, regex="[ab]", rebalance_ms=60_000)
    groups.runtime.pass_ms(0)

    assert groups.assigned(groups.beat("one", 2)) == {"a": [0], "b": [0], "c": [0]}


def test_a_resolution_for_a_group_that_is_gone_is_nothing() -> None:
    groups = Consumers(FakeTopics(a=1))
    groups.beat("one", 0, owned={}, regex="a", rebalance_ms=60_000)
    groups.beat("one", -1)
    groups.shard.delete_groups(["g"])

    groups.runtime.pass_ms(0)

    assert groups.shard.groups.consumer == {}


@pytest.mark.limit("coordinator.group.consumer.regexes.WORK_PER_TURN")
def test_resolving_takes_turns_so_that_others_are_served_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regexes, "WORK_PER_TURN", 200)
    groups = Consumers(FakeTopics(**{f"a{index:03}": 1 for index in range(300)}, b=1))
    for member, regex in (("one", "a.*"), ("two", "b")):
        groups.beat(member, 0, owned={}, regex=regex, rebalance_ms=60_000)
    started_ms = groups.runtime.now_ms()

    turns = 0
    while groups.shard.regexes.resolving:
        groups.runtime.elapsed_ms += 1
        groups.runtime.timers.fire_due()
        assert groups.group.resolved == {} or not groups.shard.regexes.resolving, (
            "all at once, when all is known"
        )
        turns += 1

    assert turns > 5
    assert topics_of(groups, "a.*") == [f"a{index:03}" for index in range(300)]
    assert groups.group.resolved["a.*"].timestamp_ms == started_ms + 1, "when it began"


def test_names_that_are_quickly_matched_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first character of each name shows that it doesn't match."""
    monkeypatch.setattr(regexes, "WORK_PER_TURN", 200)
    groups = Consumers(FakeTopics(**{f"b{index}": 1 for index in range(100)}))
    groups.beat("one", 0, owned={}, regex="a", rebalance_ms=60_000)
    tried: list[str] = []
    matches = re2.Pattern.matches
    monkeypatch.setattr(re2.Pattern, "matches", lambda self, name: tried.append(name) or matches(self, name))
    turns = []
    while groups.shard.regexes.resolving:
        before = len(tried)
        groups.runtime.elapsed_ms += 1
        groups.runtime.timers.fire_due()
        turns.append(len(tried) - before)
    assert sum(turns) == 100
    assert max(turns) <= 200 // regexes.WORK_PER_NAME + 1


LONG = "a" * (MOST_IN_PASSING // 5) + "|a1"


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets an entry for each step in which an expression is read."""
    steps: list[str] = []
    compiling = re2.compiling

    async def stepped(text: str, chars: Chars | None = None) -> re2.Pattern:
        reading = compiling(text, chars)
        while True:
            steps.append(text)
            try:
                reading.send(None)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            await turn()

    monkeypatch.setattr(re2, "compiling", stepped)
    return steps


def test_a_long_expression_is_compiled_once_with_its_heartbeat_which_is_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = counted(monkeypatch)
    groups = Consumers(FakeTopics(a1=1))
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="one",
        rebalance_timeout_ms=60_000,
        subscribed_topic_regex=LONG,
        topic_partitions=[],
    )
    heartbeat = groups.shard.consumer_heartbeat(asker(), request)
    assert isinstance(heartbeat, LongHeartbeat)
    heartbeat.decide()
    assert heartbeat.settle() is not None
    before = len(steps)
    groups.runtime.pass_ms(0)
    assert topics_of(groups, LONG) == ["a1"]
    assert len(steps) == before > 2
    request.member_id = "two"
    again = groups.shard.consumer_heartbeat(asker(), request)
    assert not isinstance(again, LongHeartbeat)


def test_resolving_again_compiles_little_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Consumers(FakeTopics(a1=1))
    enter(groups, "one", LONG)
    groups.topics.create("a2", 1)
    groups.shard.topics_changed({"a2"}, created=True)
    groups.runtime.pass_ms(10_001)
    steps = counted(monkeypatch)
    groups.beat("one", 1)
    turns = []
    while groups.shard.regexes.resolving:
        before = len(steps)
        groups.runtime.elapsed_ms += 1
        groups.runtime.timers.fire_due()
        turns.append(len(steps) - before)
    assert max(turns) == 1
    assert sum(turns) > 4


def test_a_topic_that_is_made_while_it_is_resolved_is_found_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(regexes, "WORK_PER_TURN", 1)
    groups = Consumers(FakeTopics(a1=1, a2=1))
    groups.beat("one", 0, owned={}, regex="a.", rebalance_ms=60_000)
    version = groups.topics.version
    groups.runtime.timers.fire_due()
    groups.runtime.timers.fire_due()

    groups.topics.create("a3", 1)
    groups.runtime.pass_ms(0)

    assert topics_of(groups, "a.") == ["a1", "a2"]
    assert groups.group.resolved["a."].version == version


def test_a_group_that_goes_while_it_is_resolved_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regexes, "WORK_PER_TURN", 1)
    groups = Consumers(FakeTopics(a1=1, a2=1))
    groups.beat("one", 0, owned={}, regex="a.", rebalance_ms=60_000)
    groups.runtime.timers.fire_due()
    groups.beat("one", -1)
    groups.shard.delete_groups(["g"])

    groups.runtime.pass_ms(0)

    assert groups.shard.groups.consumer == {}
    assert groups.shard.regexes.resolving == set()

"""Matches of regular expressions become records. If there are many, this happens beside the loop, and anew if the group
has changed meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from coordinator.group.consumer import regexes as regex_results
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.regexes import MOST_RECORDED_IN_PASSING
from coordinator.group.ports import MOST_TRIES
from protocol.errors import Error
from protocol.waiting import Waiting
from tests.support.wishes import wishes
from tests.unit.coordinator.group.consumer.consumers import Consumers, FakeTopics

A, AB = "a.", "[ab]."
"""Regular expressions."""


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Consumers:
    """Make any number of records count as many. A member has joined with an expression that is matched, but not
    recorded yet."""
    monkeypatch.setattr(regex_results, "MOST_RECORDED_IN_PASSING", -1)
    groups = Consumers(FakeTopics(a1=1, a2=1, b1=1))
    groups.runtime.holds = True
    groups.beat("one", 0, owned={}, regex=A, rebalance_ms=60_000)
    groups.runtime.pass_ms(0)
    return groups


def steps_of(groups: Consumers) -> Waiting[None]:
    (steps,) = groups.runtime.held
    return steps


def begun(groups: Consumers) -> Callable[[], object]:
    """Return what is to be computed."""
    return steps_of(groups).send(None)


def goes_on(groups: Consumers) -> bool:
    """Take up what was computed, and return whether the work begins again."""
    return next(wishes(steps_of(groups)), None) is not None


def recorded(groups: Consumers) -> dict[str, list[str]]:
    return {regex: sorted(resolved.topics) for regex, resolved in groups.group.resolved.items()}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def many(what: str) -> tuple[FakeTopics, list[str]]:
    """Return topics and expressions, one kind of which alone is too many."""
    if what == "topics":
        return FakeTopics(**{f"a{number}": 1 for number in range(MOST_RECORDED_IN_PASSING // 40)}), ["a.*"]
    if what == "partitions":
        return FakeTopics(a=MOST_RECORDED_IN_PASSING // 8), ["a"]
    return FakeTopics(a=1), [f"b{number}" for number in range(MOST_RECORDED_IN_PASSING // 40 + 1)]


@pytest.mark.limit("coordinator.group.consumer.regexes.MOST_RECORDED_IN_PASSING")
@pytest.mark.parametrize("what", ["topics", "partitions", "expressions"])
def test_many_matches_are_recorded_beside_the_loop_and_few_in_passing(
    what: str,
) -> None:
    few = Consumers(FakeTopics(a1=1))
    few.runtime.holds = True
    few.beat("one", 0, owned={}, regex=A, rebalance_ms=60_000)
    few.runtime.pass_ms(0)
    assert not few.runtime.held
    assert recorded(few) == {A: ["a1"]}

    topics, regexes = many(what)
    groups = Consumers(topics)
    groups.runtime.holds = True
    for number, regex in enumerate(regexes):
        groups.beat(f"m{number}", 0, owned={}, regex=regex, rebalance_ms=60_000)
    groups.runtime.pass_ms(0)
    if len(regexes) > 1:  # the first expression is recorded here
        groups.runtime.pass_ms(10_001)
        groups.beat("m0", groups.group.members["m0"].epoch)
        groups.runtime.pass_ms(0)
    written, before = len(groups.runtime.log), [*groups.group.resolved]
    compute = begun(groups)
    compute()
    assert (len(groups.runtime.log), [*groups.group.resolved]) == (written, before)
    assert not goes_on(groups)
    assert {*groups.group.resolved} == {*regexes}


def test_the_turn_that_writes_it_applies_no_record(
    groups: Consumers, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(groups)()
    applied: list[object] = []
    monkeypatch.setattr(ConsumerGroup, "set_resolved", applied.append)
    assert not goes_on(groups)
    assert not applied
    assert recorded(groups) == {A: ["a1", "a2"]}
    monkeypatch.undo()
    again = groups.restarted()
    assert recorded(again) == recorded(groups)
    assert (again.group.epoch, again.group.topics) == (groups.group.epoch, groups.group.topics)


def test_no_other_resolution_begins_before_it_is_recorded(groups: Consumers) -> None:
    compute = begun(groups)
    for passed_ms in (0, 20_000):
        groups.runtime.pass_ms(passed_ms)
        groups.beat("one", 1)
        groups.runtime.pass_ms(0)
    assert len(groups.runtime.held) == 1
    compute()
    assert not goes_on(groups)
    assert not groups.shard.regexes.resolving


def test_a_member_that_joins_meanwhile_is_not_lost(groups: Consumers) -> None:
    begun(groups)()
    groups.beat("two", 0, owned={}, regex=AB, rebalance_ms=60_000)
    steps = steps_of(groups)
    compute = steps.send(None)
    assert recorded(groups) == {}
    compute()
    assert not goes_on(groups)
    assert {*groups.group.members} == {"one", "two"}
    assert recorded(groups) == {A: ["a1", "a2"]}
    assert recorded(groups.restarted()) == recorded(groups)


def test_an_expression_without_subscribers_by_then_is_not_recorded(groups: Consumers) -> None:
    begun(groups)()
    groups.beat("one", 1, "b1", regex="")
    compute = steps_of(groups).send(None)
    compute()
    assert not goes_on(groups)
    assert groups.group.resolved == {}
    assert {*groups.group.topics} == {"b1"}


def test_if_the_group_keeps_changing_a_warning_appears_and_it_is_matched_again(
    groups: Consumers, caplog: pytest.LogCaptureFixture
) -> None:
    compute = begun(groups)
    for tries in range(1, MOST_TRIES + 1):
        compute()
        groups.group.request_refresh()
        found = next(wishes(steps_of(groups)), None)
        assert (found is None) == (tries == MOST_TRIES)
        compute = found or compute
    assert len(warnings(caplog)) == 1
    assert "changes all the time" in warnings(caplog)[0]
    assert groups.group.resolved == {}
    assert not groups.shard.regexes.resolving

    groups.runtime.held.clear()
    groups.beat("one", 1)
    groups.runtime.pass_ms(0)
    begun(groups)()
    assert not goes_on(groups)
    assert recorded(groups) == {A: ["a1", "a2"]}


def test_a_failed_write_is_logged_and_the_expression_matched_again(
    groups: Consumers, caplog: pytest.LogCaptureFixture
) -> None:
    begun(groups)()
    epoch = groups.group.epoch
    groups.runtime.failing = Error.NOT_COORDINATOR
    assert not goes_on(groups)
    assert len(warnings(caplog)) == 1
    assert (groups.group.resolved, groups.group.epoch) == ({}, epoch)
    assert not groups.shard.regexes.resolving

    groups.runtime.failing = None
    groups.runtime.held.clear()
    groups.beat("one", 1)
    groups.runtime.pass_ms(0)
    begun(groups)()
    assert not goes_on(groups)
    assert recorded(groups) == {A: ["a1", "a2"]}


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("what", ["deleted", "classic", "unloaded"])
def test_nothing_is_written_for_a_group_that_is_gone_by_then(
    groups: Consumers, what: str, computed: bool
) -> None:
    compute = begun(groups)
    if computed:
        compute()
    if what == "unloaded":
        groups.shard.unload()
    else:
        groups.beat("one", -1)
        if what == "deleted":
            groups.shard.delete_groups(["g"])
        else:
            groups.join()
    written = len(groups.runtime.log)
    if not computed:
        compute()
    assert not goes_on(groups)
    assert len(groups.runtime.log) == written
    assert groups.shard.groups.consumer == {}
    assert (what == "classic") == ("g" in groups.shard.groups.classic)
    assert not groups.shard.regexes.resolving


def test_a_group_recreated_meanwhile_has_its_own_subscriptions_recorded(groups: Consumers) -> None:
    begun(groups)()
    groups.beat("one", -1)
    groups.shard.delete_groups(["g"])
    groups.beat("two", 0, owned={}, regex=A, rebalance_ms=60_000)
    compute = steps_of(groups).send(None)
    compute()
    assert not goes_on(groups)
    assert recorded(groups) == {A: ["a1", "a2"]}


def test_a_topic_that_changes_while_it_is_decided_is_looked_at_again(groups: Consumers) -> None:
    """The group subscribes to the topic only with this decision, so it wasn't told of the change."""
    compute = begun(groups)
    compute()
    groups.topics.create("a1", 5)
    groups.shard.topics_changed({"a1"}, created=False)
    if goes_on(groups):
        pytest.fail("the group hasn't changed")
    assert groups.group.needs_refresh(groups.runtime.now_ms())
    epoch = groups.group.epoch
    answer = groups.beat("one", 1)
    assert answer.member_epoch == groups.group.epoch == epoch + 1
    assert groups.assigned(answer) == {"a1": [0, 1, 2, 3, 4], "a2": [0]}


def test_an_unforeseen_error_lets_the_next_resolution_begin(
    groups: Consumers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.delattr(regex_results, "regex_record")
        begun(groups)()
        with pytest.raises(NameError):
            goes_on(groups)
    assert not groups.shard.regexes.resolving


def test_few_matches_are_recorded_in_their_own_turn_after_the_last_matching_one() -> None:
    groups = Consumers(FakeTopics(a1=1))
    groups.beat("one", 0, owned={}, regex=A, rebalance_ms=60_000)
    written = len(groups.runtime.log)
    groups.runtime.timers.fire_due()
    assert (len(groups.runtime.log), groups.shard.regexes.resolving) == (written, {"g"})
    groups.runtime.timers.fire_due()
    assert recorded(groups) == {A: ["a1"]}
    assert not groups.shard.regexes.resolving

"""Classic groups whose move to the consumer protocol takes long to decide. It is decided beside the loop, and anew if
the group has changed meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from coordinator.group.classic.group import ClassicGroup
from coordinator.group.consumer import heartbeats as long_heartbeat
from coordinator.group.consumer import regexes
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.heartbeats import MOST_IN_PASSING, LongHeartbeat
from coordinator.group.shard_parts import RETRY_MS
from protocol.errors import Error, KafkaError
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from tests.unit.coordinator.group.consumer.consumers import Consumers, FakeTopics
from tests.unit.coordinator.group.consumer.test_migration import (
    answered,
    assignment,
    classic_group,
    joined,
    joined_id,
    subscription,
)
from tests.unit.coordinator.runtime import asker


@pytest.fixture(autouse=True)
def whatever_is_decided_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_heartbeat, "MOST_IN_PASSING", -1)


def joining(regex: str | None = None, instance: str | None = None) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="new",
        instance_id=instance,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        subscribed_topic_regex=regex,
        topic_partitions=[],
    )


def asked(
    groups: Consumers, request: ConsumerGroupHeartbeatRequest | None = None
) -> ConsumerGroupHeartbeatResponse | LongHeartbeat:
    answer = groups.shard.consumer_heartbeat(asker(), request or joining())
    assert isinstance(answer, ConsumerGroupHeartbeatResponse | LongHeartbeat)
    return answer


def long(groups: Consumers, request: ConsumerGroupHeartbeatRequest | None = None) -> LongHeartbeat:
    heartbeat = asked(groups, request)
    assert isinstance(heartbeat, LongHeartbeat)
    return heartbeat


def of_two(groups: Consumers, old: str) -> tuple[str, int]:
    """Have a second member join until the group is stable, and return the member and the generation."""
    waiting = joined(groups, "", instance="i")
    joined(groups, old)
    second, generation = joined_id(waiting), answered(waiting).generation_id
    groups.sync(second, generation)
    leader = groups.shard.groups.classic["g"].leader_id
    assert leader == old
    groups.sync(old, generation, {old: assignment(groups, 0, 1, 2), second: assignment(groups, 3, 4, 5)})
    assert groups.shard.groups.classic["g"].state.value == "Stable"
    return second, generation


def test_nothing_has_happened_before_it_is_settled() -> None:
    groups, old = classic_group()
    waiting = joined(groups, "")
    written, timers = [*groups.runtime.log], len(groups.runtime.timers)
    heartbeat = long(groups)
    heartbeat.decide()
    assert waiting.is_parked
    assert groups.runtime.log == written
    assert len(groups.runtime.timers) == timers
    assert [*groups.shard.groups.classic] == ["g"]
    assert groups.heartbeat(old, 1) is Error.REBALANCE_IN_PROGRESS  # a classic group answers so

    answer = heartbeat.settle()

    assert answer is not None
    assert answer.member_epoch == 2
    assert waiting.error is Error.REBALANCE_IN_PROGRESS
    assert not groups.shard.groups.classic
    assert {*groups.group.members} == {old, "new", joined_id(waiting)}
    assert groups.holds(old) == [0, 1, 2, 3, 4, 5]
    again = groups.restarted()
    assert [*again.group.members.items()] == [*groups.group.members.items()]
    assert not again.shard.groups.classic


@pytest.mark.parametrize("instance", [None, "i"])
def test_the_same_is_written_whether_it_is_decided_in_passing_or_not(
    monkeypatch: pytest.MonkeyPatch, instance: str | None
) -> None:
    """In one case the new member takes the place of the group's static member, in the other it doesn't."""
    logs = []
    for most in (-1, MOST_IN_PASSING):
        monkeypatch.setattr(long_heartbeat, "MOST_IN_PASSING", most)
        groups, old = classic_group()
        of_two(groups, old)
        answer = asked(groups, joining(instance=instance))
        if most < 0:
            assert isinstance(answer, LongHeartbeat)
            answer.decide()
            answer.settle()
        assert len(groups.group.members) == (3 if instance is None else 2)
        # A member that takes a place with the same subscription causes no new assignment.
        assert groups.group.members["new"].epoch == (3 if instance is None else 2)
        groups.runtime.pass_ms(44_999)  # the session of a new member
        late = [*groups.group.members]
        groups.runtime.pass_ms(1)
        logs.append((groups.runtime.log, late, groups.shard.groups.classic, groups.shard.groups.consumer))
    assert logs[0][0] == logs[1][0]
    assert logs[0][1] == logs[1][1] == ["new"]  # the others' sessions were ten seconds


CHANGES: dict[str, Callable[[Consumers, str, str], object]] = {
    "somebody joins": lambda groups, old, second: joined(groups, ""),
    "a member joins again with something else": lambda groups, old, second: groups.join(
        old, version=3, protocols=[("range", subscription("t", "u"))]
    ),
    "a member leaves": lambda groups, old, second: groups.leave(second),
    "a session ends": lambda groups, old, second: groups.runtime.pass_ms(10_000),
    "a static member comes back": lambda groups, old, second: joined(groups, "", instance="i"),
    "a consumer group takes its place": lambda groups, old, second: groups.enter("another"),
    "it is deleted": lambda groups, old, second: (
        groups.leave(old, second),
        groups.shard.delete_groups(["g"]),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_decision_is_discarded_once_the_classic_group_has_changed(change: str) -> None:
    groups, old = classic_group()
    second, _ = of_two(groups, old)
    heartbeat = long(groups)
    heartbeat.decide()
    CHANGES[change](groups, old, second)
    written, timers = [*groups.runtime.log], len(groups.runtime.timers)
    assert heartbeat.settle() is None
    assert (groups.runtime.log, len(groups.runtime.timers)) == (written, timers)
    heartbeat = long(groups)
    heartbeat.decide()
    assert heartbeat.settle() is not None
    assert "new" in groups.group.members


def test_another_group_of_the_same_id_is_another_one() -> None:
    groups, _ = classic_group()
    heartbeat = long(groups)
    heartbeat.decide()
    again = groups.shard.groups.classic["g"] = ClassicGroup("g", 0)
    again.changes = heartbeat._seen[3]
    assert heartbeat.settle() is None


def test_the_objects_of_a_decision_are_freed_beside_the_loop() -> None:
    """Freeing a large group takes as long as writing it."""

    def groups_made() -> int:
        gc.collect()
        return sum(isinstance(each, ConsumerGroup) for each in gc.get_objects())

    groups, _ = classic_group()
    heartbeat = long(groups)
    before = groups_made() - 1  # `groups` already has an empty one
    heartbeat.decide()
    assert groups_made() - before == 1
    assert not heartbeat._decision.records
    assert heartbeat.settle() is not None


def test_an_assignment_made_by_a_rebalance_meanwhile_counts() -> None:
    groups, old = classic_group()
    waiting = joined(groups, "")
    joined(groups, old)
    second, generation = joined_id(waiting), answered(waiting).generation_id
    groups.sync(second, generation)
    heartbeat = long(groups)
    heartbeat.decide()
    groups.sync(old, generation, {old: assignment(groups, 0, 1), second: assignment(groups, 2, 3, 4, 5)})
    assert heartbeat.settle() is None
    heartbeat = long(groups)
    heartbeat.decide()
    assert heartbeat.settle() is not None
    assert (groups.holds(old), groups.holds(second)) == ([0, 1], [2, 3, 4, 5])


def test_members_waiting_since_then_have_to_rejoin_and_plain_heartbeats_change_nothing() -> None:
    groups, old = classic_group()
    waiting = joined(groups, "")
    joined(groups, old)
    second, generation = joined_id(waiting), answered(waiting).generation_id
    heartbeat = long(groups)
    heartbeat.decide()
    assert groups.heartbeat(old, generation) is Error.NONE
    parked = groups.sync(second, generation)
    groups.join("", version=4, protocols=[("range", subscription("t"))])  # the member is given an id
    assert heartbeat.settle() is not None
    assert parked.error is Error.REBALANCE_IN_PROGRESS
    assert {*groups.group.members} == {old, second, "new"}


def test_a_migration_that_cannot_be_written_leaves_a_classic_group() -> None:
    """In Kafka, too, members that wait in the group are told to join again before anything is written."""
    groups, old = classic_group()
    waiting = joined(groups, "")
    heartbeat = long(groups)
    heartbeat.decide()
    groups.runtime.failing = Error.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(KafkaError):
        heartbeat.settle()
    assert not groups.shard.groups.consumer
    assert {*groups.shard.groups.classic["g"].members} == {old, joined_id(waiting)}
    assert waiting.error is Error.REBALANCE_IN_PROGRESS
    groups.runtime.failing = None
    again = joined(groups, joined_id(waiting))
    assert answered(joined(groups, old)).generation_id == answered(again).generation_id == 2


@pytest.mark.parametrize("most", [-1, MOST_IN_PASSING])
@pytest.mark.parametrize("why", ["a subscription can't be read", "it has no protocol yet"])
def test_if_a_group_cannot_migrate_its_waiting_members_rejoin_too(
    why: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_heartbeat, "MOST_IN_PASSING", most)
    groups = Consumers()
    waiting = groups.join(version=3, protocols=[("range", b"\0\1?")])
    if why == "a subscription can't be read":
        groups.runtime.pass_ms(0)
        waiting = groups.sync(joined_id(waiting), 2)
        waiting = joined(groups, "")
    written = len(groups.runtime.log)

    def ask() -> None:
        heartbeat = asked(groups)
        assert isinstance(heartbeat, LongHeartbeat)
        heartbeat.decide()
        assert waiting.is_parked
        heartbeat.settle()

    with pytest.raises(KafkaError) as refused:
        ask()
    unreadable = why == "a subscription can't be read"
    assert refused.value.error is (Error.GROUP_ID_NOT_FOUND if unreadable else Error.UNKNOWN_SERVER_ERROR)
    assert waiting.error is Error.REBALANCE_IN_PROGRESS
    assert len(groups.runtime.log) == written
    assert [*groups.shard.groups.classic] == ["g"]


def test_one_member_too_many_is_refused() -> None:
    groups, _ = classic_group(consumer_max_size=1)
    heartbeat = long(groups)
    heartbeat.decide()
    with pytest.raises(KafkaError) as refused:
        heartbeat.settle()
    assert refused.value.error is Error.GROUP_MAX_SIZE_REACHED
    assert [*groups.shard.groups.classic] == ["g"]


def test_the_second_of_two_migrations_begins_again() -> None:
    groups, old = classic_group()
    first, second = long(groups), long(groups)
    first.decide()
    second.decide()
    assert first.settle() is not None
    written = len(groups.runtime.log)
    assert second.settle() is None
    assert len(groups.runtime.log) == written
    assert {*groups.group.members} == {old, "new"}


def of_a_static_member() -> tuple[Consumers, str, str]:
    """Return a group of two. The second member is static, and has been silent for nine seconds of its ten."""
    groups, old = classic_group()
    second, generation = of_two(groups, old)
    groups.runtime.pass_ms(9_000)
    assert groups.heartbeat(old, generation) is Error.NONE
    return groups, old, second


def test_a_static_member_of_a_classic_group_is_not_late_while_its_return_is_decided() -> None:
    groups, old, _ = of_a_static_member()
    request = joining(instance="i")
    with groups.shard.member_waits(request):
        heartbeat = long(groups, request)
        heartbeat.decide()
        groups.runtime.pass_ms(2_000)
        assert heartbeat.settle() is not None
    assert {*groups.group.members} == {old, "new"}
    assert groups.target("new") == [3, 4, 5]


def test_a_member_is_late_once_none_of_its_requests_waits() -> None:
    groups, old, second = of_a_static_member()
    with groups.shard.member_waits(joining(instance="i")):
        groups.runtime.pass_ms(2_000)
        assert {*groups.shard.groups.classic["g"].members} == {old, second}
    groups.runtime.pass_ms(RETRY_MS)
    assert {*groups.shard.groups.classic["g"].members} == {old}


def test_a_topic_that_changes_meanwhile_is_examined_again() -> None:
    groups, old = classic_group()
    heartbeat = long(groups)
    heartbeat.decide()
    groups.topics.create("t", 8)
    groups.shard.topics_changed({"t"}, created=False)
    answer = heartbeat.settle()
    assert answer is not None
    groups.beat("new", answer.member_epoch)
    assert sorted(groups.target(old) + groups.target("new")) == [*range(8)]


@pytest.mark.parametrize("is_valid", [True, False])
def test_a_long_expression_is_compiled_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch, is_valid: bool
) -> None:
    monkeypatch.setattr(long_heartbeat, "MOST_IN_PASSING", MOST_IN_PASSING)
    groups, old = classic_group()
    check = regexes.checked
    monkeypatch.delattr(regexes, "checked")
    heartbeat = long(groups, joining(regex="t|" * 1_000 + "t" + ("" if is_valid else "(")))
    monkeypatch.setattr(regexes, "checked", check, raising=False)
    heartbeat.decide()
    monkeypatch.delattr(regexes, "checked")
    if is_valid:
        assert heartbeat.settle() is not None
        assert {*groups.group.members} == {old, "new"}
    else:
        with pytest.raises(KafkaError) as refused:
            heartbeat.settle()
        assert refused.value.error is Error.INVALID_REGULAR_EXPRESSION
    monkeypatch.setattr(regexes, "checked", check, raising=False)


@pytest.mark.limit("coordinator.group.consumer.heartbeats.MOST_IN_PASSING")
@pytest.mark.parametrize("what", ["nothing", "members", "partitions", "what they say of themselves"])
def test_a_little_group_goes_over_in_passing_and_a_large_one_doesn_t(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(long_heartbeat, "MOST_IN_PASSING", MOST_IN_PASSING)
    count = 500 if what == "partitions" else 6
    groups = Consumers(FakeTopics(t=count))
    more = b" " * 5_000 if what == "what they say of themselves" else b""
    answers = [
        groups.join(version=3, protocols=[("range", subscription("t") + more)])
        for _ in range(100 if what == "members" else 3)
    ]
    groups.runtime.pass_ms(0)
    ids = [joined_id(answer) for answer in answers]
    for each in reversed(ids):
        groups.sync(each, 1, {ids[0]: assignment(groups, *range(count))})
    answer = asked(groups)
    assert isinstance(answer, LongHeartbeat) is (what != "nothing")
    if isinstance(answer, LongHeartbeat):
        answer.decide()
        assert answer.settle() is not None
    assert {*groups.group.members} == {*ids, "new"}

"""Groups that move from one protocol to the other, and members of the classic protocol in a consumer group."""

from __future__ import annotations

import logging

import pytest

from coordinator.group.consumer.migration import POLICIES, write_assignment
from coordinator.java.maps import JavaMap, JavaSet
from protocol.errors import Error, KafkaError
from protocol.messages.groups import ConsumerProtocolSubscription, JoinGroupResponse, TopicPartition
from protocol.wire.codec import encode
from tests.unit.coordinator.group.consumer.consumers import Consumers
from tests.unit.coordinator.runtime import Answer


def subscription(*topics: str, owned: tuple[int, ...] = ()) -> bytes:
    message = ConsumerProtocolSubscription(
        topics=[*topics], owned_partitions=[TopicPartition(topic="t", partitions=[*owned])] if owned else []
    )
    return b"\0\1" + encode(message, 1)


def assignment(groups: Consumers, *partitions: int) -> bytes:
    target: JavaMap[bytes, JavaSet[int]] = JavaMap()
    target[groups.topic_id("t")] = JavaSet.of(partitions)
    return write_assignment(target, groups.topics, 1)  # type: ignore[arg-type]


def classic_group(**settings: object) -> tuple[Consumers, str]:
    """Return a stable classic group of one member that has all partitions."""
    groups = Consumers(**settings)  # type: ignore[arg-type]
    answer = joined(groups, "")
    groups.runtime.pass_ms(0)
    member = joined_id(answer)
    groups.sync(member, 1, {member: assignment(groups, 0, 1, 2, 3, 4, 5)})
    assert groups.shard.groups.classic["g"].state.value == "Stable"
    return groups, member


def joined(groups: Consumers, member: str, owned: tuple[int, ...] = (), **more: object) -> Answer:
    protocols = [("range", subscription("t", owned=owned))]
    return groups.join(member, **{"version": 3, "protocols": protocols} | more)  # type: ignore[arg-type]


def answered(answer: Answer) -> JoinGroupResponse:
    assert answer.join is not None
    return answer.join


def joined_id(answer: Answer) -> str:
    return answered(answer).member_id


def test_members_keep_their_partitions_as_the_group_migrates() -> None:
    groups, old = classic_group()

    answer = groups.enter("new")

    assert answer.member_epoch == 2
    assert "g" not in groups.shard.groups.classic
    member = groups.group.members[old]
    assert (member.epoch, member.is_classic) == (1, True)
    assert groups.holds(old) == [0, 1, 2, 3, 4, 5]
    assert sorted((groups.target(old), groups.target("new"))) == [[0, 1, 2], [3, 4, 5]]


def test_a_classic_member_has_to_rejoin_and_gives_up_first() -> None:
    groups, old = classic_group()
    groups.enter("new")

    with pytest.raises(KafkaError) as told:
        groups.sync(old, 1)
    assert told.value.error is Error.REBALANCE_IN_PROGRESS
    assert groups.heartbeat(old, 1) is Error.REBALANCE_IN_PROGRESS
    answer = answered(joined(groups, old, (0, 1, 2, 3, 4, 5)))
    assert (answer.generation_id, answer.leader, answer.members) == (1, "", [])
    assert groups.heartbeat(old, 1) is Error.REBALANCE_IN_PROGRESS
    answer = answered(joined(groups, old, tuple(groups.holds(old))))
    assert answer.generation_id == 2
    synced = groups.sync(old, 2).sync
    assert synced is not None
    assert synced.assignment == assignment(groups, *groups.holds(old))
    assert groups.heartbeat(old, 2) is Error.NONE
    assert groups.assigned(groups.beat("new", 2)) == {"t": groups.target("new")}


def test_a_classic_member_has_its_rebalance_timeout_to_join_from_the_first_telling_on() -> None:
    groups, old = classic_group()
    groups.enter("new")
    assert groups.heartbeat(old, 1) is Error.REBALANCE_IN_PROGRESS
    for _ in range(11):
        groups.runtime.pass_ms(5_000)
        assert groups.heartbeat(old, 1) is Error.REBALANCE_IN_PROGRESS
        groups.beat("new", 2)
    groups.runtime.pass_ms(4_999)
    assert old in groups.group.members

    groups.runtime.pass_ms(1)

    assert old not in groups.group.members


def test_a_classic_member_has_its_rebalance_timeout_to_sync() -> None:
    groups, old = classic_group()
    groups.enter("new")
    joined(groups, old, (0, 1, 2, 3, 4, 5), rebalance_ms=20_000)
    joined(groups, old, tuple(groups.holds(old)), rebalance_ms=20_000)
    for _ in range(3):
        groups.runtime.pass_ms(5_000)
        groups.heartbeat(old, 2)
    groups.runtime.pass_ms(4_999)
    assert old in groups.group.members

    groups.runtime.pass_ms(1)

    assert old not in groups.group.members


def test_the_last_new_member_that_leaves_takes_the_group_down() -> None:
    groups, old = classic_group()
    groups.enter("new")

    groups.beat("new", -1)

    assert "g" not in groups.shard.groups.consumer
    group = groups.shard.groups.classic["g"]
    assert (group.state.value, group.generation, [*group.members]) == ("PreparingRebalance", 2, [old])
    assert answered(joined(groups, old)).generation_id == 3


def test_the_last_new_member_whose_session_ends_downgrades_the_group() -> None:
    groups, old = classic_group()
    groups.enter("new")
    joined(groups, old, (0, 1, 2, 3, 4, 5))
    joined(groups, old, tuple(groups.holds(old)))
    groups.sync(old, 2)
    for _ in range(8):
        groups.runtime.pass_ms(5_000)
        assert groups.heartbeat(old, 2) is Error.NONE
    assert "g" not in groups.shard.groups.classic

    groups.runtime.pass_ms(5_000)

    assert [*groups.shard.groups.classic["g"].members] == [old]


def test_a_downgraded_group_is_the_same_after_a_restart() -> None:
    groups, old = classic_group()
    groups.enter("new")
    groups.beat("new", -1)

    again = groups.restarted()

    assert again.shard.groups.consumer == {}
    assert [*again.shard.groups.classic["g"].members] == [old]
    assert again.shard.groups.classic["g"].generation == 2


@pytest.mark.parametrize(
    ("policy", "up", "down"),
    [
        ("bidirectional", True, True),
        ("upgrade", True, False),
        ("downgrade", False, True),
        ("disabled", False, False),
    ],
)
def test_the_policy_says_which_ways_are_open(
    policy: str, up: bool, down: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups, _old = classic_group(migration_policy=policy)
    error = groups.refused("new", 0, "t", owned={}, rebalance_ms=1)
    assert error is (Error.NONE if up else Error.GROUP_ID_NOT_FOUND)

    with monkeypatch.context() as patch:
        patch.setitem(POLICIES, policy, POLICIES["bidirectional"])
        groups.enter("new")
    groups.beat("new", -1)
    assert ("g" in groups.shard.groups.classic) is down


def test_a_group_with_parked_joins_answers_them_before_it_goes_over() -> None:
    groups, _old = classic_group()
    waiting = joined(groups, "")
    assert waiting.is_parked

    groups.enter("new")

    assert waiting.error is Error.REBALANCE_IN_PROGRESS
    assert len(groups.group.members) == 3


def test_empty_groups_go_over_whatever_the_policy() -> None:
    groups = Consumers(migration_policy="disabled")
    groups.enter("new")
    groups.beat("new", -1)
    answer = joined(groups, "")
    groups.runtime.pass_ms(0)
    assert answered(answer).generation_id == 1
    assert "g" not in groups.shard.groups.consumer

    groups.leave(joined_id(answer))
    assert groups.enter("new").member_epoch == 2
    assert "g" not in groups.shard.groups.classic


def test_offsets_stay_as_a_group_goes_over() -> None:
    groups, old = classic_group()
    groups.commit(("t", 0, 7), member_id=old, generation=1)
    groups.enter("new")
    assert groups.committed() == 7
    groups.beat("new", -1)
    assert groups.committed() == 7
    assert groups.restarted().committed() == 7


def test_a_refused_newcomer_logs_no_migration(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    groups, _ = classic_group(consumer_max_size=1)
    caplog.clear()
    assert groups.enter("new").error_code == Error.GROUP_MAX_SIZE_REACHED
    assert caplog.messages == []
    groups, _ = classic_group()
    caplog.clear()
    assert groups.enter("new").error_code == Error.NONE
    assert "group g is converted to the consumer protocol" in caplog.messages


@pytest.mark.parametrize("malformed", [b"", b"\0", b"\0\1", b"\0\1\0\0\0\7"])
def test_a_nonsense_subscription_joins_no_group_of_the_new_protocol(malformed: bytes) -> None:
    """KAFKA-20662."""
    groups = Consumers()
    groups.enter("new")
    before = len(groups.runtime.written())
    with pytest.raises(KafkaError) as refused:
        joined(groups, "", protocols=[("range", malformed)])
    assert refused.value.error is Error.INCONSISTENT_GROUP_PROTOCOL
    assert len(groups.runtime.written()) == before

"""The memory of a node's consumer group members has the same bound as that of classic group members."""

from __future__ import annotations

import pytest

from coordinator.group import member_memory
from coordinator.group.member_memory import BETWEEN_COUNTS_MS
from protocol.errors import Error, KafkaError
from protocol.messages.groups import ConsumerProtocolSubscription
from protocol.wire.codec import encode
from tests.unit.coordinator.group.consumer.consumers import Consumers, FakeTopics

KIB = 1024
FULL = Error.GROUP_MAX_SIZE_REACHED
LONG = [str(number) * 30 * KIB for number in range(10)]
"""Names that take some 300 KiB."""


@pytest.fixture(autouse=True)
def _a_mebibyte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_memory, "MOST_MEMBER_BYTES", KIB * KIB)
    monkeypatch.setattr(member_memory, "_LITTLE_BYTES", 64 * KIB)


def joined(groups: Consumers, *numbers: int, names: list[str] = LONG) -> list[Error]:
    """Have each member join a group of its own, and return the error codes."""
    errors = [Error(groups.enter(f"m{number}", *names, group=f"g{number}").error_code) for number in numbers]
    groups.runtime.pass_ms(1)
    return errors


@pytest.mark.limit("coordinator.group.member_memory.MOST_MEMBER_BYTES")
def test_joins_past_it_are_refused_whichever_group_they_are_for() -> None:
    groups = Consumers()
    assert joined(groups, *range(6)) == [*[Error.NONE] * 3, *[FULL] * 3]
    assert [*groups.shard.groups.consumer] == ["g0", "g1", "g2"]
    assert groups.join(version=3, protocols=[("range", bytes(200 * KIB))]).error is FULL


@pytest.mark.parametrize("by", ["client", "regex", "rack", "names"])
def test_a_member_goes_on_though_there_is_too_much_unless_it_brings_more(
    monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    groups = Consumers()
    joined(groups, 0, names=["t"])
    before = groups.shard.groups.consumer["g0"].members["m0"]
    monkeypatch.setattr(member_memory, "MOST_MEMBER_BYTES", KIB)  # as if a log with more had been read
    assert groups.refused("m0", before.epoch, group="g0") is Error.NONE
    assert groups.refused("m0", before.epoch, "t", group="g0") is Error.NONE
    assert joined(groups, 0, names=["t"]) == [Error.NONE]
    epoch = groups.shard.groups.consumer["g0"].members["m0"].epoch
    more = {
        "client": {"client": "c" * 100},
        "rack": {"rack": "r" * 100},
        "regex": {"regex": "a" * 100},
        "names": {},
    }
    names = ["t", "u"] if by == "names" else []
    assert groups.refused("m0", epoch, *names, group="g0", **more[by]) is FULL
    assert {*groups.shard.groups.consumer["g0"].members["m0"].names} == {"t"}


def test_a_static_member_takes_its_place_though_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Consumers()
    groups.enter("old", instance="i")
    groups.beat("old", -2, instance="i")
    monkeypatch.setattr(member_memory, "MOST_MEMBER_BYTES", KIB)
    assert groups.enter("new", instance="i").error_code == Error.NONE
    assert groups.enter("other", instance="j").error_code == FULL
    assert [*groups.group.members] == ["new"]


@pytest.mark.parametrize("how", ["left", "deleted", "unloaded"])
def test_a_group_that_has_gone_makes_room(how: str) -> None:
    groups = Consumers()
    assert joined(groups, 0, 1, 2, 3)[-1] is FULL
    if how == "unloaded":
        other = Consumers(memory=groups.memory)
        groups.shard.unload()
        groups = other
    else:
        groups.beat("m0", -1, group="g0")
        if how == "deleted":
            groups.shard.delete_groups(["g0"])
    assert joined(groups, 4)[0] is FULL  # memory isn't counted again at each attempt
    groups.runtime.pass_ms(BETWEEN_COUNTS_MS)
    assert joined(groups, 4, 5)[0] is Error.NONE


def test_groups_without_members_count_unless_they_have_offsets() -> None:
    for commits in (False, True):
        groups = Consumers()
        for number in range(500):
            if joined(groups, number, names=["u"]) == [FULL]:
                break
            groups.beat(f"m{number}", -1, group=f"g{number}")
            if commits:
                assert groups.commit(("t", 0, 5), group=f"g{number}") == [Error.NONE]
            groups.runtime.pass_ms(10)
        assert (len(groups.shard.groups.consumer) == 500) is commits


def test_a_future_assignment_counts() -> None:
    groups = Consumers(FakeTopics(t=500))
    assert joined(groups, *range(5), names=["t"]) == [*[Error.NONE] * 3, *[FULL] * 2]
    (error,) = joined(groups, 6, names=["u"])
    assert error is Error.NONE
    groups.runtime.pass_ms(BETWEEN_COUNTS_MS)
    # a member that joins a group with this topic adds no partitions
    assert groups.refused("more", 0, "t", owned={}, rebalance_ms=1, group="g0") is Error.NONE


@pytest.mark.parametrize("by_regex", [False, True])
def test_partitions_that_come_later_count(by_regex: bool) -> None:
    groups = Consumers(FakeTopics(t=1))
    for number in range(3):
        member, group = f"m{number}", f"g{number}"
        assert groups.refused(member, 0, "t", owned={}, rebalance_ms=1, group=group) is Error.NONE
        if by_regex:
            epoch = groups.shard.groups.consumer[group].members[member].epoch
            assert groups.refused(member, epoch, regex="l.*", group=group) is Error.NONE
    groups.runtime.pass_ms(BETWEEN_COUNTS_MS)
    if by_regex:
        groups.topics.create("large", 1000)
        groups.shard.topics_changed({"large"}, created=True)
    else:
        groups.topics.create("t", 1000)
        groups.shard.topics_changed({"t"}, created=False)
    for number in range(3):
        for _ in range(3):
            member = groups.shard.groups.consumer[f"g{number}"].members[f"m{number}"]
            groups.beat(member.member_id, member.epoch, group=f"g{number}", owned={})
            groups.runtime.pass_ms(5_000)
    groups.runtime.pass_ms(BETWEEN_COUNTS_MS)
    assert joined(groups, 7, names=["u"]) == [FULL]


def test_groups_found_at_a_start_count() -> None:
    groups = Consumers()
    joined(groups, 0, 1, 2)
    again = groups.restarted()
    assert joined(again, 3, 0) == [FULL, Error.NONE]


def test_a_member_that_joins_a_consumer_group_by_the_classic_protocol_counts() -> None:
    groups = Consumers(consumer_max_size=1000)
    groups.enter("new")
    subscription = b"\0\1" + encode(ConsumerProtocolSubscription(topics=LONG[:7]), 1)
    for _ in range(2):
        assert groups.join(version=3, protocols=[("range", subscription)]).error is Error.NONE
    with pytest.raises(KafkaError) as refused:
        groups.join(version=3, protocols=[("range", subscription)])
    assert refused.value.error is FULL
    assert len(groups.group.members) == 3

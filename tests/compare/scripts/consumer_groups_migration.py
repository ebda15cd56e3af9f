"""Groups that move between the classic and the consumer protocol while they have members (KIP-848)."""

from __future__ import annotations

from typing import Any

from ..consumer_requests import beat, describe, first_beat, protocol_subscription, records_of
from ..group_requests import (
    Member,
    commit,
    coordinator_is_there,
    heartbeat,
    join,
    leave,
    subscription,
    sync,
)
from ..play import Play, script
from ..scene import Topic


def assignment(*topics: tuple[str, tuple[int, ...]], user_data: bytes | None = None) -> bytes:
    """ConsumerProtocolAssignment, version 0."""
    out = (0).to_bytes(2, "big") + len(topics).to_bytes(4, "big")
    for name, partitions in topics:
        out += len(name).to_bytes(2, "big") + name.encode() + len(partitions).to_bytes(4, "big")
        out += b"".join(partition.to_bytes(4, "big") for partition in partitions)
    if user_data is None:
        return out + (-1).to_bytes(4, "big", signed=True)
    return out + len(user_data).to_bytes(4, "big") + user_data


def classic_member(
    play: Play, group: str, topic: Topic, partitions: tuple[int, ...], *, version: int = 5, **fields: Any
) -> Member:
    """Form a stable classic group whose only member owns everything."""
    fields = {"protocols": [("range", protocol_subscription(1, topic.name))]} | fields
    member = Member(play, group, "classic", version=version, **fields)
    if "group_instance_id" not in fields:
        member.quiet_id()
    member.quiet_join()
    instance = {"group_instance_id": fields.get("group_instance_id")}
    member.quiet_sync({member.member_id: assignment((topic.name, partitions))}, **instance)
    return member


@script(properties="consumers")
def up_and_down(play: Play) -> None:
    """A classic member stays, while a member of the new protocol joins and leaves."""
    topic = play.topic("t", partitions=4)
    group = play.name("g")
    coordinator_is_there(play, group)
    old = classic_member(play, group, topic, (0, 1, 2, 3))

    def ask(case: str, epoch: int, **more: Any) -> Any:
        return play.ask(case, "ConsumerGroupHeartbeat", 1, beat(group, "new", epoch, **more))

    def old_lives(case: str) -> None:
        play.ask(case, "Heartbeat", 4, heartbeat(group, old.generation, old.member_id))

    def old_joins(case: str, *partitions: int) -> None:
        fields = join(
            group,
            old.member_id,
            protocols=[("range", protocol_subscription(1, topic.name, owned=[(topic.name, partitions)]))],
        )
        answer = play.ask(case, "JoinGroup", 7, fields)
        old.generation = answer.generation_id

    def old_syncs(case: str) -> None:
        fields = sync(group, old.generation, old.member_id)
        play.ask(case, "SyncGroup", 5, fields)

    ask("a heartbeat that doesn't join", 1)
    play.ask("the new one joins", "ConsumerGroupHeartbeat", 1, first_beat(group, "new", topic.name))
    describe(play, "upgraded", group)
    old_syncs("the old one syncs before it joins")
    old_lives("the old one is told")
    old_joins("the old one joins", 0, 1, 2, 3)
    old_syncs("the old one syncs")
    describe(play, "the old one gives up", group)
    old_lives("the old one has to join again")
    old_joins("the old one joins again", 0, 1)
    old_syncs("the old one syncs again")
    ask("the new one gets its part", 2)
    describe(play, "both have a part", group)
    old_lives("all is well")
    for case, member, generation in (
        ("as it should be", old.member_id, old.generation),
        ("an older generation", old.member_id, old.generation - 1),
        ("a newer generation", old.member_id, old.generation + 1),
        ("nobody", "nobody", old.generation),
        ("the new one", "new", 2),
    ):
        play.ask(f"heartbeat: {case}", "Heartbeat", 4, heartbeat(group, generation, member))
        play.ask(f"sync: {case}", "SyncGroup", 5, sync(group, generation, member))
        for version in (5, 9):
            fields = commit(group, (topic, 0, 3), member_id=member, generation=generation)
            play.ask(f"commit: {case} (v{version})", "OffsetCommit", version, fields)
    for case, how in (
        ("another type", {"protocol_type": "connect"}),
        ("another name", {"protocol_name": "roundrobin"}),
        ("another name and type", {"protocol_type": "connect", "protocol_name": "roundrobin"}),
    ):
        play.ask(f"sync: {case}", "SyncGroup", 5, sync(group, old.generation, old.member_id, **how))
    for version in (3, 4, 7, 9):
        for case, how in (
            ("a type that it hasn't", {"protocol_type": "connect"}),
            ("no protocol in common", {"protocols": [("mine", subscription(topic.name))]}),
            ("a session too short", {"session_timeout_ms": 1}),
            ("another's instance", {"group_instance_id": "i", "member_id": "x"}),
        ):
            if version < 5 and "group_instance_id" in how:
                continue
            fields = join(group, **{"protocols": [("range", subscription(topic.name))], **how})
            play.ask(f"another one joins: {case} (v{version})", "JoinGroup", version, fields)
    answer = play.ask(
        "another one is given an id",
        "JoinGroup",
        7,
        join(group, protocols=[("range", subscription(topic.name))]),
    )
    play.note("its length", len(answer.member_id))
    ask("the new one leaves", -1)
    describe(play, "downgraded", group)
    play.ask("described as a classic group", "DescribeGroups", 6, {"groups": [group]})
    old_lives("the old one has to join")
    old_joins("the old one joins a classic group", 0, 1)
    play.ask("described once more", "DescribeGroups", 6, {"groups": [group]})
    play.note("records", records_of(play, group, topic, in_runs=True))
    play.drop("classic")


@script(properties="consumers")
def static_ones(play: Play) -> None:
    """A static member switches its protocol back and forth."""
    topic = play.topic("t", partitions=4)
    group = play.name("g")
    coordinator_is_there(play, group)
    old = classic_member(play, group, topic, (0, 1, 2, 3), group_instance_id="i")
    play.ask(
        "it comes as a new one",
        "ConsumerGroupHeartbeat",
        1,
        first_beat(group, "n", topic.name, instance_id="i"),
    )
    describe(play, "upgraded", group)
    fields = heartbeat(group, old.generation, old.member_id, "i")
    play.ask("the old id is fenced", "Heartbeat", 4, fields)
    play.ask("it lives", "ConsumerGroupHeartbeat", 1, beat(group, "n", 2, instance_id="i"))
    fields = join(group, group_instance_id="i", protocols=[("range", protocol_subscription(1, topic.name))])
    answer = play.ask("it comes as an old one", "JoinGroup", 7, fields)
    play.ask("described as a classic group", "DescribeGroups", 6, {"groups": [group]})
    play.ask(
        "it lives as an old one",
        "Heartbeat",
        4,
        heartbeat(group, answer.generation_id, answer.member_id, "i"),
    )
    play.ask(
        "it syncs as an old one",
        "SyncGroup",
        5,
        sync(group, answer.generation_id, answer.member_id, group_instance_id="i"),
    )
    play.ask("it leaves", "LeaveGroup", 4, leave(group, ("", "i")))
    play.note("records", records_of(play, group, topic, in_runs=True))
    play.drop("classic")


@script(properties="consumers")
def static_one_changes(play: Play) -> None:
    """A static member comes back with another subscription, so that the downgrade rebalances."""
    topic, other = play.topic("t", partitions=2), play.topic("u", partitions=2)
    group = play.name("g")
    coordinator_is_there(play, group)
    play.quietly("ConsumerGroupHeartbeat", 1, first_beat(group, "n", topic.name, instance_id="i"))
    fields = join(group, group_instance_id="i", protocols=[("range", protocol_subscription(1, other.name))])
    answer = play.ask("it comes as an old one", "JoinGroup", 7, fields)
    play.ask("described as a classic group", "DescribeGroups", 6, {"groups": [group]})
    play.ask(
        "it lives as an old one",
        "Heartbeat",
        4,
        heartbeat(group, answer.generation_id, answer.member_id, "i"),
    )
    play.note("records", records_of(play, group, topic, other, in_runs=True))


@script(properties="consumers")
def that_are_not_upgraded(play: Play) -> None:
    topic = play.topic("t")
    groups = {case: play.name(case) for case in ("connect", "user-data", "malformed", "empty", "simple")}
    coordinator_is_there(play, *groups.values())

    def ask(case: str) -> None:
        play.ask(case, "ConsumerGroupHeartbeat", 1, first_beat(groups[case], "new", topic.name))
        describe(play, f"{case}, after", groups[case])

    connect = Member(play, groups["connect"], "c", protocol_type="connect")
    connect.quiet_id()
    connect.quiet_join()
    ask("connect")
    member = Member(play, groups["user-data"], "u", protocols=[("range", subscription(topic.name))])
    member.quiet_id()
    member.quiet_join()
    member.quiet_sync({member.member_id: assignment((topic.name, (0,)), user_data=b"mine")})
    ask("user-data")
    member = Member(play, groups["malformed"], "m", protocols=[("range", b"?")])
    member.quiet_id()
    member.quiet_join()
    ask("malformed")
    old = classic_member(play, groups["empty"], topic, (0,))
    play.quietly(
        "OffsetCommit", 8, commit(groups["empty"], (topic, 0, 5), member_id=old.member_id, generation=1)
    )
    play.quietly("LeaveGroup", 4, leave(groups["empty"], (old.member_id, None)))
    ask("empty")
    play.quietly("OffsetCommit", 8, commit(groups["simple"], (topic, 0, 6)))
    ask("simple")
    for case in ("empty", "simple"):
        fields = {"group_id": groups[case], "topics": None}
        play.ask(f"{case}: its offsets are there", "OffsetFetch", 7, fields)
        play.note(f"{case}: records", records_of(play, groups[case], topic, in_runs=True))
    group = groups["simple"]
    play.quietly("ConsumerGroupHeartbeat", 1, beat(group, "new", -1))
    # An unknown member id would make Kafka forget the group, though only in memory.
    fields = join(group, protocols=[("range", subscription(topic.name))])
    play.ask("a classic member joins the empty group", "JoinGroup", 5, fields)
    # Kafka asks for the member id before it has written the group's change, and describes the committed state.
    play.ask_until(
        "it is a classic one",
        lambda answer: answer.groups[0].group_state == "Empty",
        "DescribeGroups",
        6,
        {"groups": [group]},
    )
    play.note("records", records_of(play, group, topic, in_runs=True))
    for name in ("c", "u", "m", "classic"):
        play.drop(name)

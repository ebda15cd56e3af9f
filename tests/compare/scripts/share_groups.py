"""Share groups: heartbeats, refusals, the states of their partitions, offsets by request (KIP-932)."""

from __future__ import annotations

from ..group_requests import commit, fetch_offsets, join
from ..play import Play, script
from ..share_group_requests import (
    alter,
    beat,
    coordinators_are_there,
    describe,
    forget,
    offsets,
    share_group_records,
    until_initialized,
)

NEEDS = (
    "ShareGroupHeartbeat",
    "ShareGroupDescribe",
    "DescribeShareGroupOffsets",
    "AlterShareGroupOffsets",
    "DeleteShareGroupOffsets",
)


@script(properties="shares", needs=NEEDS)
def refused(play: Play) -> None:
    topic = play.topic("t")
    group, none, classic = play.name("g"), play.name("none"), play.name("classic")
    coordinators_are_there(play, topic, group, none, classic)
    play.quietly("JoinGroup", 3, join(classic))
    play.quietly("ShareGroupHeartbeat", 1, beat(group, "m", 0, topic.name))
    until_initialized(play, group, **{topic.name: 1})
    for case, fields in {
        "no member id": beat(group, "", 0, topic.name),
        "a blank member id": beat(group, " ", 0, topic.name),
        "a member id of 36 characters": beat(group, "m" * 36, 7),
        "a member id of 37": beat(group, "m" * 37, 7),
        "no group id": beat("", "m", 0, topic.name),
        "a blank group id": beat(" ", "m", 0, topic.name),
        "an empty rack": beat(group, "m", 0, topic.name, rack_id=""),
        "no names": beat(group, "m", 0),
        "empty names": beat(group, "m", 0, subscribed_topic_names=[]),
        "epoch -2": beat(group, "m", -2),
        "an unknown group": beat(none, "m", 1),
        "an unknown group to leave": beat(none, "m", -1),
        "a classic group": beat(classic, "m", 0, topic.name),
        "a classic group later": beat(classic, "m", 1),
        "a classic group to leave": beat(classic, "m", -1),
        "an unknown member": beat(group, "nobody", 1),
        "an unknown member to leave": beat(group, "nobody", -1),
        "an epoch too great": beat(group, "m", 77),
        "an epoch too small": beat(group, "m", 1),
    }.items():
        play.ask(case, "ShareGroupHeartbeat", 1, fields)
    play.ask("as it should be", "ShareGroupHeartbeat", 1, beat(group, "m", 2))
    play.ask("the epoch before", "ShareGroupHeartbeat", 1, beat(group, "m", 2))
    play.ask("an epoch before that", "ShareGroupHeartbeat", 1, beat(group, "m", 1))
    for operations in (False, True):
        fields = {
            "group_ids": [group, none, classic, "", group],
            "include_authorized_operations": operations,
        }
        play.ask(f"described ({operations})", "ShareGroupDescribe", 1, fields)
    play.ask("nothing described", "ShareGroupDescribe", 1, {"group_ids": []})
    for number in range(3):
        fields = beat(group, f"m{number}", 0, topic.name)
        play.ask(f"one more than {number + 1}", "ShareGroupHeartbeat", 1, fields)
    play.ask("an unknown member of a full group", "ShareGroupHeartbeat", 1, beat(group, "nobody", 3))
    play.ask("one of the full group again", "ShareGroupHeartbeat", 1, beat(group, "m", 0, topic.name))
    play.note("records", share_group_records(play, group, topic))


@script(properties="shares", needs=NEEDS)
def a_life(play: Play) -> None:
    """Members join, share, change their subscriptions and leave. Topics grow and are deleted."""
    topic, other = play.topic("t", partitions=3), play.topic("u")
    group = play.name("g")
    coordinators_are_there(play, topic, group)

    def ask(case: str, member: str, epoch: int, *names: str, **more: object) -> None:
        play.ask(case, "ShareGroupHeartbeat", 1, beat(group, member, epoch, *names, **more))

    ask("one joins", "one", 0, topic.name, rack_id="r")
    until_initialized(play, group, **{topic.name: 3})
    describe(play, "nothing is assigned yet", group)
    ask("one is assigned", "one", 2)
    ask("one says nothing new", "one", 3)
    ask("one says all", "one", 3, topic.name)
    ask("the answer was lost", "one", 2)
    ask("another rack", "one", 3, rack_id="s")
    ask("one joins again", "one", 0, topic.name)
    ask("one wants another topic", "one", 3, other.name)
    until_initialized(play, group, **{other.name: 1})
    ask("one has it", "one", 4)
    ask("one wants one that isn't there", "one", 5, play.name("nowhere"))
    ask("one wants the first again", "one", 6, topic.name)
    describe(play, "one has the first again", group)
    ask("two joins for the other topic", "two", 0, other.name)
    ask("two lives", "two", 8)
    ask("one lives", "one", 7)
    describe(play, "two have a topic each", group)
    play.quietly(
        "CreatePartitions",
        3,
        {"topics": [{"name": topic.name, "count": 5, "assignments": None}], "timeout_ms": 20_000},
    )
    play.until_there(topic.name, 5)

    def grown() -> bool:
        answer = play.quietly("ShareGroupHeartbeat", 1, beat(group, "two", 0, other.name))
        return bool(answer.member_epoch >= 9)

    play.until("the coordinator knows of the partitions", grown)
    until_initialized(play, group, **{topic.name: 5})
    ask("two finds them initialized", "two", 0, other.name)
    ask("one has them", "one", 0, topic.name)
    describe(play, "one has five", group)
    ask("two leaves", "two", -1)
    ask("two leaves again", "two", -1)
    ask("one after that", "one", 0, topic.name)
    describe(play, "one alone", group)
    play.ask("listed", "ListGroups", 5, {"types_filter": ["share"]})
    play.ask("listed by its state", "ListGroups", 5, {"states_filter": ["stable"], "types_filter": ["Share"]})
    ask("one leaves", "one", -1)
    describe(play, "nobody", group)
    play.ask("listed as empty", "ListGroups", 5, {"states_filter": ["empty"]})
    play.note("records", share_group_records(play, group, topic, other))


@script(properties="shares", needs=NEEDS)
def seen_as_another_group(play: Play) -> None:
    topic = play.topic("t")
    group = play.name("g")
    coordinators_are_there(play, topic, group)
    play.quietly("ShareGroupHeartbeat", 1, beat(group, "m", 0, topic.name))
    until_initialized(play, group, **{topic.name: 1})
    for state in ("stable", "empty"):
        for version in (5, 6):
            play.ask(f"described (v{version}, {state})", "DescribeGroups", version, {"groups": [group]})
        play.ask(
            f"described as a consumer group ({state})", "ConsumerGroupDescribe", 1, {"group_ids": [group]}
        )
        fields = {
            "group_id": group,
            "member_id": "c",
            "member_epoch": 0,
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": [topic.name],
            "topic_partitions": [],
        }
        play.ask(f"a consumer joins ({state})", "ConsumerGroupHeartbeat", 1, fields)
        play.ask(f"a classic member joins ({state})", "JoinGroup", 9, join(group))
        for version in (8, 9):
            play.ask(
                f"committed (v{version}, {state})", "OffsetCommit", version, commit(group, (topic, 0, 7))
            )
            play.ask(
                f"fetched (v{version}, {state})",
                "OffsetFetch",
                version,
                fetch_offsets(version, group, [(topic, (0,))]),
            )
        fields = {"group_id": group, "topics": [{"name": topic.name, "partitions": [{"partition_index": 0}]}]}
        play.ask(f"offsets deleted ({state})", "OffsetDelete", 0, fields)
        if state == "stable":
            play.ask("deleted with a member", "DeleteGroups", 2, {"groups_names": [group]})
            play.ask("the member leaves", "ShareGroupHeartbeat", 1, beat(group, "m", -1))
    play.ask("deleted", "DeleteGroups", 2, {"groups_names": [group]})
    play.ask("deleted again", "DeleteGroups", 2, {"groups_names": [group]})
    describe(play, "gone", group)
    play.note("records", share_group_records(play, group, topic))


@script(properties="shares", needs=NEEDS)
def offsets_by_request(play: Play) -> None:
    topic, other = play.topic("t", partitions=2), play.topic("u")
    group, none, classic = play.name("g"), play.name("none"), play.name("classic")
    coordinators_are_there(play, topic, group, none, classic)
    play.quietly("JoinGroup", 3, join(classic))
    first, second = topic.name, other.name

    def ask_all(state: str) -> None:
        for version in (0, 1):
            play.ask(f"all ({state}, v{version})", "DescribeShareGroupOffsets", version, offsets(group, None))
            fields = offsets(group, {first: [0, 1], second: [0], "absent": [0]})
            play.ask(f"some ({state}, v{version})", "DescribeShareGroupOffsets", version, fields)
            play.ask(f"none ({state}, v{version})", "DescribeShareGroupOffsets", version, offsets(group, {}))

    ask_all("no group")
    play.ask("described of no group id", "DescribeShareGroupOffsets", 1, offsets("", {first: [0]}))
    for case, fields in {
        "a classic group": alter(classic, {first: {0: 1}}),
        "no group id": alter("", {first: {0: 1}}),
        "nothing": alter(none, {}),
        "what isn't there": alter(none, {"absent": {0: 1}}),
        "a partition that isn't there": alter(none, {first: {7: 1}}),
        "a group that isn't there": alter(group, {first: {0: 7, 5: 1}, "absent": {0: 1}}),
        "beyond the log": alter(group, {first: {1: 500}}),
        "below it": alter(group, {first: {1: -5}}),
    }.items():
        play.ask(f"alter {case}", "AlterShareGroupOffsets", 0, fields)
        until_initialized(play, group)
    until_initialized(play, group, **{first: 2})
    ask_all("altered")
    describe(play, "an empty group", group)
    play.quietly("ShareGroupHeartbeat", 1, beat(group, "m", 0, first, second))
    until_initialized(play, group, **{first: 2, second: 1})
    play.ask("alter with members", "AlterShareGroupOffsets", 0, alter(group, {first: {0: 1}}))
    play.ask("delete with members", "DeleteShareGroupOffsets", 0, forget(group, first))
    play.quietly("ShareGroupHeartbeat", 1, beat(group, "m", -1))
    for case, fields in {
        "of a classic group": forget(classic, first),
        "of no group id": forget("", first),
        "of a group that isn't there": forget(play.name("nobody"), first),
        "nothing": forget(group),
        "one that isn't there": forget(group, "absent"),
        "one": forget(group, first, "absent"),
        "it again": forget(group, first),
    }.items():
        play.ask(f"delete {case}", "DeleteShareGroupOffsets", 0, fields)
    ask_all("deleted")
    play.quietly("ShareGroupHeartbeat", 1, beat(group, "m", 0, first))
    until_initialized(play, group, **{first: 2})
    ask_all("begun afresh")
    play.note("records", share_group_records(play, group, topic, other))


@script(properties="shares", needs=NEEDS)
def topics_deleted(play: Play) -> None:
    topic, other = play.topic("t"), play.topic("u")
    group = play.name("g")
    coordinators_are_there(play, topic, group)
    play.quietly("ShareGroupHeartbeat", 1, beat(group, "m", 0, topic.name))
    until_initialized(play, group, **{topic.name: 1})
    play.quietly("ShareGroupHeartbeat", 1, beat(group, "n", 0, other.name))
    until_initialized(play, group, **{topic.name: 1, other.name: 1})
    play.ask("m", "ShareGroupHeartbeat", 1, beat(group, "m", 0, topic.name))
    play.ask("n", "ShareGroupHeartbeat", 1, beat(group, "n", 0, other.name))
    fields = {"topics": [{"name": topic.name, "topic_id": bytes(16)}], "timeout_ms": 20_000}
    play.quietly("DeleteTopics", 6, fields)
    play.until_gone(topic.name)

    def forgotten() -> bool:
        found = share_group_records(play, group, topic, other)[-1]
        return bool(
            found[0] == "ShareGroupStatePartitionMetadataKey" and len(found[2]["initialized_topics"]) == 1
        )

    play.until("its state is gone", forgotten)
    play.ask("all", "DescribeShareGroupOffsets", 1, offsets(group, None))
    play.ask("m afterwards", "ShareGroupHeartbeat", 1, beat(group, "m", 0, topic.name))
    play.ask("n afterwards", "ShareGroupHeartbeat", 1, beat(group, "n", 0, other.name))
    describe(play, "in the end", group)
    play.note("records", share_group_records(play, group, topic, other))


@script(properties="second", needs=NEEDS)
def a_restart(play: Play) -> None:
    topic = play.topic("t", partitions=2)
    group = play.name("g")
    coordinators_are_there(play, topic, group)
    play.quietly("ShareGroupHeartbeat", 1, beat(group, "m", 0, topic.name, rack_id="r"))
    until_initialized(play, group, **{topic.name: 2})
    play.tick()
    for kill in (False, True):
        play.restart(kill=kill)
        coordinators_are_there(play, topic, group)
        how = "killed" if kill else "stopped"
        describe(play, f"afterwards ({how})", group)
        play.ask(f"all ({how})", "DescribeShareGroupOffsets", 1, offsets(group, None))
    play.ask("who isn't known", "ShareGroupHeartbeat", 1, beat(group, "n", 2))
    play.note("records", share_group_records(play, group, topic))

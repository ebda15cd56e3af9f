"""OffsetCommit, OffsetFetch and OffsetDelete."""

from __future__ import annotations

from ..group_requests import (
    Member,
    commit,
    coordinator_is_there,
    fetch_offsets,
    first_is_told,
    stable_group,
    subscription,
)
from ..play import Play, script, versions
from ..requests import UNKNOWN_ID, unknown


@script
def without_members(play: Play) -> None:
    """A client that isn't a member of the group commits."""
    topic = play.topic("t", partitions=3)
    for version in versions("OffsetCommit"):
        group = play.name(f"v{version}")
        coordinator_is_there(play, group)
        for case, fields in {
            "generation 0, and no such group": commit(group, (topic, 0, 1), generation=0),
            "a member id and generation 0, and no such group": commit(
                group, (topic, 0, 1), member_id="me", generation=0
            ),
            "metadata too long, and no such group": commit(group, (topic, 0, 1, "m" * 4097)),
            "one offset": commit(group, (topic, 0, 1, "one")),
            "metadata null": commit(group, (topic, 1, 2, None)),
            "metadata as long as can be": commit(group, (topic, 2, 3, "ü" * 4096)),
            "metadata too long": commit(group, (topic, 0, 4, "m" * 4097), (topic, 1, 5)),
            "metadata too long in UTF-16": commit(group, (topic, 0, 4, "\U0001f600" * 2049)),
            "a negative offset": commit(group, (topic, 2, -7)),
            "a leader epoch": {
                **commit(group, (topic, 2, 8)),
                "topics": [
                    {
                        "name": topic.name,
                        "topic_id": topic.topic_id,
                        "partitions": [
                            {"partition_index": 2, "committed_offset": 8, "committed_leader_epoch": 6}
                        ],
                    }
                ],
            },
            "no such partition": commit(group, (topic, 3, 1), (topic, 0, 11)),
            "no such topic": commit(group, (unknown("none"), 0, 1), (topic, 0, 12)),
            "no such topic alone, and a generation": commit(group, (unknown("none"), 0, 1), generation=9),
            "a topic twice": commit(group, (topic, 0, 13), (topic, 1, 14), (topic, 0, 15)),
            "nothing": commit(group),
            "nothing, and a generation": commit(group, generation=3),
            "a generation": commit(group, (topic, 0, 1), generation=1),
            "a member id": commit(group, (topic, 0, 16), member_id="me"),
            "a member id and a generation": commit(group, (topic, 0, 1), member_id="me", generation=0),
            "a group without a name": commit("", (topic, 0, 17)),
            "a generation, and a group without a name": commit("", (topic, 0, 18), generation=1),
        }.items():
            play.ask(f"{case} (v{version})", "OffsetCommit", version, fields)
        if version >= 7:
            fields = commit(group, (topic, 0, 19), group_instance_id="i")
            play.ask(f"an instance id (v{version})", "OffsetCommit", version, fields)
            fields = commit(group, (topic, 0, 20), group_instance_id="i", generation=4)
            play.ask(f"an instance id and a generation (v{version})", "OffsetCommit", version, fields)
        if version <= 4:
            fields = commit(group, (topic, 1, 21), retention_time_ms=1_000_000)
            play.ask(f"a retention time (v{version})", "OffsetCommit", version, fields)
        if version == 10:
            fields = commit(group, (unknown("", bytes(16)), 0, 1))
            play.ask("the zero topic id", "OffsetCommit", version, fields)
        play.ask(
            f"what is committed (v{version})",
            "OffsetFetch",
            8,
            fetch_offsets(8, group, [(topic, (0, 1, 2, 3))]),
        )
        play.ask(f"the group (v{version})", "DescribeGroups", 6, {"groups": [group]})
    play.ask("the groups", "ListGroups", 5, {})


@script
def with_members(play: Play) -> None:
    topic = play.topic("t")
    for version in versions("OffsetCommit"):
        group = play.name(f"v{version}")
        coordinator_is_there(play, group)
        (me,) = stable_group(play, group, f"me{version}")
        other = Member(play, group, f"other{version}")
        other.quiet_id()

        def cases(state: str, version: int = version, group: str = group, me: Member = me) -> None:
            for case, member_id, generation in (
                ("as it should be", me.member_id, me.generation),
                ("the last generation", me.member_id, me.generation - 1),
                ("the next generation", me.member_id, me.generation + 1),
                ("generation -1", me.member_id, -1),
                ("another member", "nobody", me.generation),
                ("another member and generation", "nobody", 77),
                ("a generation alone", "", me.generation),
                ("nothing", "", -1),
            ):
                fields = commit(group, (topic, 0, 1), member_id=member_id, generation=generation)
                play.ask(f"{case} ({state}, v{version})", "OffsetCommit", version, fields)

        cases("stable")
        joining = other.send_join()
        play.until("the rebalance has begun", lambda me=me: first_is_told(play, me))
        cases("preparing")
        me.quiet_join()
        other.quiet_join(joining)
        cases("completing")
        play.drop(other.name)


@script
def fetching(play: Play) -> None:
    one = play.topic("one", partitions=3)
    two = play.topic("two", partitions=2)
    group, other, none = play.name("g"), play.name("other"), play.name("none")
    coordinator_is_there(play, group, other, none)
    play.quietly("OffsetCommit", 6, commit(group, (one, 0, 1), (one, 2, 3, "m"), (two, 1, 9)))
    play.quietly("OffsetCommit", 6, commit(other, (two, 0, 5)))
    nowhere = unknown("nowhere")
    for version in versions("OffsetFetch"):
        for case, name, parts in (
            ("some partitions", group, [(one, (0, 1, 2, 7)), (two, (1,))]),
            ("a topic twice", group, [(one, (0, 0)), (one, (0, 2))]),
            ("no partitions", group, [(one, ())]),
            ("no topics", group, []),
            ("no such topic", group, [(nowhere, (0, 1)), (one, (0,))]),
            ("no such group", none, [(one, (0,))]),
            ("no group id", "", [(one, (0,))]),
        ):
            play.ask(f"{case} (v{version})", "OffsetFetch", version, fetch_offsets(version, name, parts))
        if version >= 2:
            for case, name in (("all", group), ("all of no such group", none)):
                play.ask(f"{case} (v{version})", "OffsetFetch", version, fetch_offsets(version, name, None))
        if version >= 7:
            fields = fetch_offsets(version, group, [(one, (0, 1))]) | {"require_stable": True}
            play.ask(f"stable ones (v{version})", "OffsetFetch", version, fields)
        if version >= 8:
            groups = [
                fetch_offsets(version, name, parts)["groups"][0]
                for name, parts in ((other, None), (group, [(one, (2,))]), (none, None), (group, None))
            ]
            play.ask(f"several groups (v{version})", "OffsetFetch", version, {"groups": groups})
            play.ask(f"no groups (v{version})", "OffsetFetch", version, {"groups": []})
        if version >= 9:
            fields = fetch_offsets(version, group, [(one, (0,))], member_id="me", member_epoch=4)
            play.ask(f"a member id and an epoch (v{version})", "OffsetFetch", version, fields)
        if version == 10:
            parts = [(unknown("", UNKNOWN_ID), (0,)), (one, (0,)), (unknown("", bytes(16)), (1,))]
            play.ask(
                "unknown topic ids, and the zero one",
                "OffsetFetch",
                version,
                fetch_offsets(version, group, parts),
            )


@script
def of_a_topic_that_was_deleted(play: Play) -> None:
    topic, other = play.topic("t"), play.topic("u")
    group = play.name("g")
    coordinator_is_there(play, group)
    play.quietly("OffsetCommit", 6, commit(group, (topic, 0, 5), (other, 0, 6)))
    play.quietly("DeleteTopics", 5, {"topic_names": [topic.name], "timeout_ms": 10_000})
    play.until_gone(topic.name)
    play.until(
        "its offsets are gone",
        lambda: len(play.quietly("OffsetFetch", 7, fetch_offsets(7, group, None)).topics) == 1,
    )
    play.ask("all that is left", "OffsetFetch", 7, fetch_offsets(7, group, None))
    again = play.topic("t")
    play.ask("the new topic's", "OffsetFetch", 10, fetch_offsets(10, group, [(again, (0,)), (other, (0,))]))


@script
def deleting(play: Play) -> None:
    one = play.topic("one", partitions=2)
    two = play.topic("two")
    group, none = play.name("g"), play.name("none")
    coordinator_is_there(play, group, none, "")

    def delete(case: str, name: str, *parts: tuple[str, int]) -> None:
        fields = {
            "group_id": name,
            "topics": [{"name": topic, "partitions": [{"partition_index": index}]} for topic, index in parts],
        }
        play.ask(case, "OffsetDelete", 0, fields)

    delete("no such group", none, (one.name, 0))
    delete("no such group and no such topic", none, ("nowhere", 0))
    delete("no group id", "", (one.name, 0))
    play.quietly("OffsetCommit", 6, commit(group, (one, 0, 1), (one, 1, 2), (two, 0, 3)))
    delete("nothing", group)
    delete("one that is there", group, (one.name, 0))
    delete("one that isn't there any more", group, (one.name, 0))
    delete("no such partition, no such topic", group, (one.name, 2), ("nowhere", 0), (one.name, 1))
    play.ask("what is left", "OffsetFetch", 7, fetch_offsets(7, group, None))
    (me,) = stable_group(play, group, "me", protocols=[("range", subscription(one.name))])
    play.quietly(
        "OffsetCommit",
        6,
        commit(group, (one, 0, 1), (two, 0, 3), member_id=me.member_id, generation=me.generation),
    )
    delete("a topic that members consume, and another", group, (one.name, 0), (two.name, 0))
    play.ask("what is left with members", "OffsetFetch", 7, fetch_offsets(7, group, None))
    unreadable = play.name("unreadable")
    coordinator_is_there(play, unreadable)
    stable_group(play, unreadable, "u", protocols=[("range", b"?")])
    delete("a subscription that can't be read", unreadable, (one.name, 0))
    connect = play.name("connect")
    coordinator_is_there(play, connect)
    stable_group(play, connect, "c", protocol_type="connect", protocols=[("range", b"?")], version=3)
    delete("members that aren't consumers", connect, (one.name, 0))

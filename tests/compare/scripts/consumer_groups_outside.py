"""Offsets of consumer groups, and what the older requests show of such groups (KIP-848)."""

from __future__ import annotations

from ..consumer_requests import beat, describe, first_beat, records_of
from ..group_requests import commit, coordinator_is_there, fetch_offsets, leave, stable_group
from ..play import Play, script


@script(properties="consumers")
def offsets(play: Play) -> None:
    topic, other = play.topic("t", partitions=4), play.topic("u")
    group = play.name("g")
    coordinator_is_there(play, group)
    play.quietly("ConsumerGroupHeartbeat", 1, first_beat(group, "one", topic.name))
    play.quietly("ConsumerGroupHeartbeat", 1, first_beat(group, "two", topic.name))
    play.quietly("ConsumerGroupHeartbeat", 1, beat(group, "one", 2, owned=[(topic, (0, 1, 2, 3))]))
    describe(play, "one gives up", group)

    def commits(state: str) -> None:
        for version in range(2, 11):
            for case, member, epoch in (
                ("its epoch", "one", 2),
                ("an older epoch", "one", 1),
                ("the next epoch", "one", 3),
                ("another member", "two", 3),
                ("another member's older epoch", "two", 2),
                ("nobody", "nobody", 2),
                ("nobody at all", "", -1),
                ("an epoch alone", "", 2),
            ):
                fields = commit(group, (topic, 0, 7), (topic, 3, 8), member_id=member, generation=epoch)
                play.ask(f"{case} ({state}, v{version})", "OffsetCommit", version, fields)

    commits("unrevoked")
    play.quietly("ConsumerGroupHeartbeat", 1, beat(group, "one", 2, owned=[(topic, (0, 1))]))
    play.quietly("ConsumerGroupHeartbeat", 1, beat(group, "two", 3))
    commits("stable")
    for case, member, epoch, parts in (
        ("its own since long", "one", 2, [(topic, 0, 1)]),
        ("one of its own and another's", "one", 2, [(topic, 0, 1), (topic, 3, 1)]),
        ("another topic's", "one", 2, [(other, 0, 1)]),
        ("with too long metadata for another's", "one", 2, [(topic, 0, 1), (topic, 3, 1, "m" * 4097)]),
    ):
        fields = commit(group, *parts, member_id=member, generation=epoch)
        play.ask(f"the epoch before: {case}", "OffsetCommit", 9, fields)
    for version in range(8, 11):
        for case, member, epoch in (
            ("nobody", None, -1),
            ("nobody with an epoch", None, 3),
            ("itself", "one", 3),
            ("an older epoch", "one", 2),
            ("a later epoch", "one", 4),
            ("no such member", "nobody", 3),
            ("an empty id", "", -1),
        ):
            fields = fetch_offsets(version, group, [(topic, (0, 3))], member_id=member, member_epoch=epoch)
            if version == 8:
                fields = fetch_offsets(version, group, [(topic, (0, 3))])
            play.ask(f"fetched by {case} (v{version})", "OffsetFetch", version, fields)
            fields = fetch_offsets(9, group, None, member_id=member, member_epoch=epoch)
            play.ask(f"all fetched by {case} (v{version})", "OffsetFetch", 9, fields)
    for case, name in (("a topic that is subscribed to", topic.name), ("another topic", other.name)):
        deleted = {"name": name, "partitions": [{"partition_index": 0}]}
        play.ask(f"deleted: {case}", "OffsetDelete", 0, {"group_id": group, "topics": [deleted]})
    play.ask("the group can't be deleted", "DeleteGroups", 2, {"groups_names": [group]})
    for member in ("one", "two"):
        play.quietly("ConsumerGroupHeartbeat", 1, beat(group, member, -1))
    fields = commit(group, (topic, 1, 5))
    play.ask("committed to an empty group", "OffsetCommit", 9, fields)
    fields = commit(group, (topic, 1, 5), member_id="one", generation=3)
    play.ask("committed to an empty group by who has left", "OffsetCommit", 9, fields)
    deleted = {"name": topic.name, "partitions": [{"partition_index": 0}]}
    play.ask("deleted from an empty group", "OffsetDelete", 0, {"group_id": group, "topics": [deleted]})
    play.ask("the empty group is deleted", "DeleteGroups", 2, {"groups_names": [group]})
    play.ask("nothing is left of it", "OffsetFetch", 9, fetch_offsets(9, group, None))
    describe(play, "it is gone", group)
    play.note("records", records_of(play, group, topic, other))


@script(properties="consumers")
def seen_from_outside(play: Play) -> None:
    """ListGroups, DescribeGroups, and the requests of classic groups' members."""
    topic = play.topic("t", partitions=2)
    names = {state: play.name(state) for state in ("empty", "assigning", "reconciling", "stable", "classic")}
    coordinator_is_there(play, *names.values())
    for name in ("empty", "assigning", "reconciling", "stable"):
        play.quietly("ConsumerGroupHeartbeat", 1, first_beat(names[name], "one", topic.name))
    play.quietly("ConsumerGroupHeartbeat", 1, beat(names["empty"], "one", -1))
    for name in ("assigning", "reconciling"):
        play.quietly("ConsumerGroupHeartbeat", 1, first_beat(names[name], "two", topic.name))
    play.quietly("ConsumerGroupHeartbeat", 1, beat(names["assigning"], "two", -1))
    stable_group(play, names["classic"], "c")
    groups = list(names.values())
    describe(play, "described", *groups)
    for version in (5, 6):
        play.ask(f"described as classic groups (v{version})", "DescribeGroups", version, {"groups": groups})
    for case, states, types in (
        ("all", [], []),
        ("consumer groups", [], ["Consumer"]),
        ("classic ones", [], ["classic"]),
        ("stable ones", ["STABLE"], []),
        ("stable consumer groups", ["stable"], ["consumer"]),
        ("those on the way", [" assigning", "Reconciling"], []),
        ("empty ones", ["empty"], []),
    ):
        fields = {"states_filter": states, "types_filter": types}
        play.ask(f"listed: {case}", "ListGroups", 5, fields)
    group = names["stable"]
    for member in ("one", "nobody"):
        beaten = {"group_id": group, "generation_id": 2, "member_id": member}
        play.ask(f"a classic heartbeat of {member}", "Heartbeat", 4, beaten)
        synced = beaten | {"protocol_type": "consumer", "protocol_name": "range"}
        play.ask(f"a sync of {member}", "SyncGroup", 5, synced)
    for member in ("nobody", "one"):
        play.ask(f"{member} leaves by LeaveGroup", "LeaveGroup", 4, leave(group, (member, None)))
    play.ask("an instance leaves by LeaveGroup", "LeaveGroup", 4, leave(group, ("", "i")))
    for name in ("empty", "none"):
        beaten = {"group_id": play.name(name), "generation_id": 2, "member_id": "one"}
        play.ask(f"a classic heartbeat, {name}", "Heartbeat", 4, beaten)
        play.ask(
            f"a sync, {name}",
            "SyncGroup",
            5,
            beaten | {"protocol_type": "consumer", "protocol_name": "range"},
        )
        play.ask(f"a leave, {name}", "LeaveGroup", 4, leave(play.name(name), ("one", None)))
    play.quietly("ConsumerGroupHeartbeat", 1, first_beat(names["empty"], "one", topic.name, instance_id="i"))
    play.ask("an instance leaves", "LeaveGroup", 4, leave(names["empty"], ("", "i"), ("one", "i")))
    play.drop("c")

"""What version 1 of the streams groups' APIs brings, and descriptions of topologies without a plugin that keeps them
(KIP-1071, KIP-1331)."""

from __future__ import annotations

from ..consumer_requests import records_of
from ..group_requests import Fields, coordinator_is_there
from ..play import Play, script
from ..streams_requests import (
    describe_streams,
    set_for_group,
    streams_beat,
    streams_join,
    subtopology,
    task_offsets,
    topic_info,
    topology,
    until_internal_topics_are_there,
)


@script(properties="streams")
def versions(play: Play) -> None:
    topic = play.topic("t", partitions=2)
    group, none = play.name("g"), play.name("none")
    coordinator_is_there(play, group, none)
    of = topology(subtopology("0", topic.name))
    for version in (0, 1):

        def ask(case: str, fields: Fields, version: int = version) -> None:
            play.ask(f"{case}, {version}", "StreamsGroupHeartbeat", version, fields)

        ask("one joins", streams_join(group, "one", of))
        ask("one lives", streams_beat(group, "one", 2 + version))
        ask("nobody lives", streams_beat(group, "nobody", 2))
        ask("no group", streams_beat(none, "one", 2))
        ask("nonsense", streams_beat(group, "one", -3))
        ask("one has another topology", streams_join(group, "one", topology(epoch=1)))
        play.ask(f"described, {version}", "StreamsGroupDescribe", version, {"group_ids": [group, none, ""]})
        ask("one goes", streams_beat(group, "one", -1))
        play.ask(f"described, empty, {version}", "StreamsGroupDescribe", version, {"group_ids": [group]})
    describe_streams(play, "with the description", group, none, "", version=1)
    play.note("records", records_of(play, group, topic))


@script(properties="streams")
def told_offsets(play: Play) -> None:
    """The last reported offsets are kept and shown. The most advanced member gets the copy."""
    topic = play.topic("t", partitions=2)
    group = play.name("g")
    coordinator_is_there(play, group)
    of = topology(subtopology("0", topic.name, changelogs=[topic_info(play.name("store"))]))

    def ask(case: str, fields: Fields) -> None:
        play.ask(case, "StreamsGroupHeartbeat", 1, fields)
        describe_streams(play, f"{case}, described", group, version=1)

    first = {
        "task_offsets": task_offsets({"0": {1: 3}}),
        "task_end_offsets": task_offsets({"9": {7: 5}, "0": {0: 2}}),
    }
    ask("one makes the group", streams_join(group, "one", of, "p1", **first))
    until_internal_topics_are_there(play, streams_beat(group, "one", 2))
    ask("one tells", streams_beat(group, "one", 3, **first))
    ask("one says nothing", streams_beat(group, "one", 3))
    ask(
        "one tells others",
        streams_beat(group, "one", 3, task_offsets=task_offsets({"2": {1: -1}, "10": {3: 0}})),
    )
    ask("one tells of none", streams_beat(group, "one", 3, task_offsets=[]))
    twice = task_offsets({"0": {1: 3}}, {"0": {1: 4}})
    ask("one tells twice", streams_beat(group, "one", 3, task_offsets=[], task_end_offsets=twice))
    ask(
        "two joins with some",
        streams_join(group, "two", of, "p2", task_offsets=task_offsets({"0": {0: 4, 1: 9}})),
    )
    ask("three joins", streams_join(group, "three", of, "p3", task_offsets=task_offsets({"0": {0: 5, 1: 8}})))
    ask("four joins, a static one", streams_join(group, "four", of, "p4", instance_id="i", **first))
    set_for_group(play, group, num_standby_replicas="1")
    ask("with copies", streams_beat(group, "two", 4))
    ask("four goes", streams_beat(group, "four", -2, instance_id="i"))
    ask(
        "four comes back",
        streams_join(group, "four", of, "p4", instance_id="i", task_offsets=task_offsets({"0": {0: 1}})),
    )
    ask("four goes again", streams_beat(group, "four", -2, instance_id="i"))
    ask("and comes back as another one", streams_join(group, "cinque", of, "p4", instance_id="i", **first))
    ask("two leaves", streams_beat(group, "two", -1))
    ask("two is back", streams_join(group, "two", of, "p2"))
    play.note("records", records_of(play, group, topic))


@script(properties="streams_many")
def back_at_once(play: Play) -> None:
    """A member that leaves and comes back before the next assignment has its old tasks."""
    topic = play.topic("t", partitions=4)
    group = play.name("g")
    coordinator_is_there(play, group)
    of = topology(subtopology("0", topic.name))

    def ask(case: str, fields: Fields) -> None:
        play.ask(case, "StreamsGroupHeartbeat", 1, fields)
        describe_streams(play, f"{case}, described", group, version=1)

    ask("one joins", streams_join(group, "one", of, "p1"))
    ask("two joins", streams_join(group, "two", of, "p2"))
    ask("one gives up", streams_beat(group, "one", 2, active={"0": [0, 1, 2, 3]}))
    ask("one has given up", streams_beat(group, "one", 2, active={"0": [0, 1]}))
    ask("two has its part", streams_beat(group, "two", 3, active={}))
    set_for_group(play, group, assignment_interval_ms="15000")
    ask("two leaves", streams_beat(group, "two", -1))
    ask("two is back", streams_join(group, "two", of, "p2"))
    ask("three joins", streams_join(group, "three", of, "p3"))
    ask("three leaves", streams_beat(group, "three", -1))
    ask("three is back", streams_join(group, "three", of, "p3"))
    play.note("records", records_of(play, group, topic))


@script(properties="streams")
def topology_descriptions(play: Play) -> None:
    topic = play.topic("t", partitions=2)
    group, none = play.name("g"), play.name("none")
    coordinator_is_there(play, group, none)
    of = topology(subtopology("0", topic.name))
    play.quietly("StreamsGroupHeartbeat", 1, streams_join(group, "one", of))
    node = {
        "name": "n",
        "node_type": 1,
        "source_topics": [topic.name],
        "sink_topic": None,
        "stores": [],
        "successors": [],
    }
    description: Fields = {
        "subtopologies": [{"subtopology_id": "0", "nodes": [node]}],
        "global_stores": [],
    }
    for case, group_id, member, epoch in (
        ("as it should be", group, "one", 0),
        ("of another epoch", group, "one", 1),
        ("of nobody", group, "nobody", 0),
        ("of no member", group, "", 0),
        ("of an unknown group", none, "one", 0),
        ("of no group", "", "one", 0),
    ):
        fields = {
            "group_id": group_id,
            "member_id": member,
            "topology_epoch": epoch,
            "topology_description": description,
        }
        play.ask(case, "StreamsGroupTopologyDescriptionUpdate", 0, fields)
    describe_streams(play, "described", group, version=1)
    play.note("records", records_of(play, group, topic))

"""StreamsGroupHeartbeat and StreamsGroupDescribe: refusals, topologies, tasks, standbys, leaving (KIP-1071)."""

from __future__ import annotations

from typing import Any

from ..consumer_requests import first_beat, records_of
from ..group_requests import Fields, commit, coordinator_is_there, fetch_offsets, join
from ..play import Play, script
from ..streams_requests import (
    describe_streams,
    of_two,
    set_for_group,
    streams_beat,
    streams_join,
    subtopology,
    task_offsets,
    topic_info,
    topology,
    until_internal_topics_are_there,
)


def _beats(play: Play, group: str) -> Any:
    def ask(case: str, member: str, epoch: int, **more: Any) -> Any:
        return play.ask(case, "StreamsGroupHeartbeat", 0, streams_beat(group, member, epoch, **more))

    return ask


def _ask(play: Play, case: str, fields: Fields) -> Any:
    return play.ask(case, "StreamsGroupHeartbeat", 0, fields)


@script(properties="streams")
def refused(play: Play) -> None:
    topic = play.topic("t", partitions=2)
    group, none = play.name("g"), play.name("none")
    coordinator_is_there(play, group, none)
    plain = topology(subtopology("0", topic.name))
    changelog = topic_info(play.name("c"), 2)
    first = streams_join(group, "m", plain)
    play.quietly("StreamsGroupHeartbeat", 0, first)
    for case, fields in {
        "an empty instance id": first | {"instance_id": ""},
        "offsets of a task twice": first | {"task_offsets": task_offsets({"0": {0: 1}}, {"0": {0: 2}})},
        "end offsets of a task twice": first
        | {"task_end_offsets": task_offsets({"7": {9: 1}}, {"7": {9: 1}})},
        "warm-up tasks": first | {"warmup_tasks": [{"subtopology_id": "0", "partitions": [0]}]},
        "an expression": streams_join(group, "m", topology(subtopology("0", topic.name, regex=["t.*"]))),
        "no member id": first | {"member_id": ""},
        "a blank member id": first | {"member_id": " "},
        "no group id": first | {"group_id": ""},
        "an empty rack": first | {"rack_id": ""},
        "no rebalance timeout": first | {"rebalance_timeout_ms": -1},
        "some active tasks": first | {"active_tasks": [{"subtopology_id": "0", "partitions": [0]}]},
        "null active tasks": first | {"active_tasks": None},
        "null standby tasks": first | {"standby_tasks": None},
        "null warm-up tasks": first | {"warmup_tasks": None},
        "no topology": first | {"topology": None},
        "a changelog with partitions": streams_join(
            group, "m", topology(subtopology("0", topic.name, changelogs=[changelog]))
        ),
        "an internal topic": streams_join(group, "m", topology(subtopology("0", "__consumer_offsets"))),
        "an illegal name": streams_join(group, "m", topology(subtopology("0", "a b"))),
        "an illegal name, not to join": streams_beat(
            group, "m", 2, topology=topology(subtopology("0", "a b"))
        ),
        "a topology later": streams_beat(group, "m", 2, topology=plain),
        "to leave for a while": streams_beat(group, "m", -2),
        "an unknown instance": streams_beat(group, "m", 2, instance_id="i"),
        "an unknown instance to leave": streams_beat(group, "m", -1, instance_id="i"),
        "an unknown instance to leave for a while": streams_beat(group, "m", -2, instance_id="i"),
        "a warm-up beyond the last one": streams_beat(group, "m", 2, active={})
        | {"warmup_tasks": [{"subtopology_id": "0", "partitions": [2]}]},
        "a warm-up that it hasn't": streams_beat(group, "m", 2, active={})
        | {"warmup_tasks": [{"subtopology_id": "0", "partitions": [1]}]},
        "epoch -3": streams_beat(group, "m", -3),
        "one kind of tasks": streams_beat(group, "m", 2, active={}) | {"standby_tasks": None},
        "another kind of tasks": streams_beat(group, "m", 2) | {"warmup_tasks": []},
        "an unknown group": streams_beat(none, "m", 1),
        "an unknown group to leave": streams_beat(none, "m", -1),
        "an unknown member": streams_beat(group, "nobody", 1),
        "an unknown member to leave": streams_beat(group, "nobody", -1),
        "an epoch too great": streams_beat(group, "m", 77),
        "an epoch too small": streams_beat(group, "m", 1),
        "an epoch too small, with nothing owned": streams_beat(group, "m", 1, active={}),
        "a task of an unknown subtopology": streams_beat(group, "m", 2, active={"9": [0]}),
        "a task beyond the last one": streams_beat(group, "m", 2, active={"0": [2]}),
        "a task below the first one": streams_beat(group, "m", 2, standby={"0": [-1]}),
        "a topology epoch below 0": streams_join(none, "m", topology(subtopology("0", topic.name), epoch=-1)),
        "a subtopology twice": streams_join(
            none, "m", topology(subtopology("0", topic.name), subtopology("0", topic.name))
        ),
        "a tag twice": first | {"client_tags": [{"key": "k", "value": "1"}, {"key": "k", "value": "2"}]},
        "an index beyond the last topic": streams_join(
            none, "m", topology(subtopology("0", topic.name, copartitioned=[([1], [])]))
        ),
    }.items():
        _ask(play, case, fields)
    _ask(play, "as it should be", streams_beat(group, "m", 2))
    for operations in (False, True):
        fields = {"group_ids": [group, none, "", group], "include_authorized_operations": operations}
        play.ask(f"described ({operations})", "StreamsGroupDescribe", 0, fields)
    play.ask("none described", "StreamsGroupDescribe", 0, {"group_ids": []})
    play.note("records", records_of(play, group, topic))


@script(properties="streams")
def a_life(play: Play) -> None:
    """Two processes join, share tasks, and leave."""
    topic = play.topic("t", partitions=3)
    group = play.name("g")
    coordinator_is_there(play, group)
    of = topology(subtopology("0", topic.name))
    beat = _beats(play, group)
    _ask(play, "one joins", streams_join(group, "one", of, "p1"))
    describe_streams(play, "one alone, its topology as it sent it", group)
    beat("one lives", "one", 2)
    describe_streams(play, "its topology as it was configured", group)
    beat("one says what it has", "one", 2, active={"0": [0, 1, 2]})
    _ask(play, "one joins again", streams_join(group, "one", of, "p1"))
    _ask(play, "two joins", streams_join(group, "two", of, "p2"))
    describe_streams(play, "one has to give up something", group)
    beat("two has to wait", "two", 3)
    beat("one doesn't say what it has", "one", 2)
    beat("one is told what is left to it", "one", 2, active={"0": [0, 1, 2]})
    beat("one still has it", "one", 2, active={"0": [0, 1, 2]})
    beat("one has given it up", "one", 2, active={"0": [0, 1]})
    describe_streams(play, "two has to fetch it", group)
    beat("two gets it", "two", 3)
    beat("the answer was lost", "one", 2, active={"0": [0, 1]})
    beat("one", "one", 3, active={"0": [0, 1]})
    describe_streams(play, "all is well", group)
    _ask(play, "two has another tag", streams_beat(group, "two", 3, client_tags=[{"key": "z", "value": "1"}]))
    _ask(play, "two is elsewhere", streams_beat(group, "two", 4, rack_id="r"))
    beat("one notices", "one", 3)
    beat("two leaves", "two", -1)
    beat("two leaves twice", "two", -1)
    describe_streams(play, "without two", group)
    beat("one comes to have all", "one", 5)
    beat("one has all", "one", 6, active={"0": [0, 1, 2]})
    beat("one leaves", "one", -1)
    describe_streams(play, "empty", group)
    beat("one lives in an empty group", "one", 7)
    _ask(play, "one joins an empty group", streams_join(group, "one", of, "p1"))
    _ask(
        play,
        "another topology for an empty group",
        streams_join(group, "one", topology(subtopology("1", topic.name))),
    )
    play.note("records", records_of(play, group, topic))


@script(properties="streams")
def internal_topics(play: Play) -> None:
    """The broker creates the internal topics, and assigns tasks once they exist."""
    topic = play.topic("t", partitions=3)
    group = play.name("g")
    coordinator_is_there(play, group)
    of = of_two(play, topic)
    first = _ask(play, "one joins", streams_join(group, "one", of, "p1"))
    until_internal_topics_are_there(play, streams_beat(group, "one", first.member_epoch))
    describe_streams(play, "all is there", group)
    play.ask(
        "how they were made",
        "DescribeConfigs",
        4,
        {
            "resources": [
                {
                    "resource_type": 2,
                    "resource_name": play.name(each),
                    "configuration_keys": ["cleanup.policy"],
                }
                for each in ("through", "store")
            ]
        },
    )
    beat = _beats(play, group)
    beat("one lives", "one", 3)
    _ask(play, "two joins", streams_join(group, "two", of, "p2"))
    beat("one gives up", "one", 3, active={"0": [0, 1, 2], "1": [0, 1, 2]})
    describe_streams(play, "one has given up nothing yet", group)
    play.note("records", records_of(play, group, topic))


@script(properties="streams")
def standbys(play: Play) -> None:
    """Copies of state, and what happens to them when their number changes."""
    topic = play.topic("t", partitions=2)
    group = play.name("g")
    coordinator_is_there(play, group)
    set_for_group(play, group, num_standby_replicas="1")
    of = topology(subtopology("0", topic.name, changelogs=[topic_info(play.name("store"))]))
    beat = _beats(play, group)
    _ask(play, "one joins", streams_join(group, "one", of, "p1"))
    until_internal_topics_are_there(play, streams_beat(group, "one", 2))
    beat("one has all", "one", 3, active={"0": [0, 1]})
    _ask(play, "another one of its process joins", streams_join(group, "mate", of, "p1"))
    beat("one gives up", "one", 3, active={"0": [0, 1]})
    beat("one has given up", "one", 3, active={"0": [0]})
    beat("its mate gets it", "mate", 4)
    _ask(play, "two joins", streams_join(group, "two", of, "p2"))
    describe_streams(play, "with two", group)
    for turn in range(3):
        for member in ("one", "mate", "two"):
            known = play.quietly("StreamsGroupDescribe", 0, {"group_ids": [group]}).groups[0]
            (found,) = [each for each in known.members if each.member_id == member]
            has = found.assignment
            active = {each.subtopology_id: each.partitions for each in has.active_tasks}
            standby = {each.subtopology_id: each.partitions for each in has.standby_tasks}
            beat(f"{member}, {turn}", member, found.member_epoch, active=active, standby=standby)
    describe_streams(play, "as it should be", group)
    set_for_group(play, group, num_standby_replicas="0")
    beat("without copies", "two", 5)
    describe_streams(play, "they have to be given back", group)
    play.note("records", records_of(play, group, topic))


@script(properties="streams")
def endpoints(play: Play) -> None:
    topic = play.topic("t", partitions=3)
    small = play.topic("u", partitions=1)
    group = play.name("g")
    coordinator_is_there(play, group)
    of = topology(subtopology("0", topic.name, small.name))

    def at(port: int) -> Fields:
        return {"user_endpoint": {"host": "h", "port": port}, "endpoint_information_epoch": -1}

    _ask(play, "one joins", streams_join(group, "one", of, "p1", **at(1)))
    _ask(play, "one, later", streams_beat(group, "one", 2, endpoint_information_epoch=-1))
    _ask(play, "one knows", streams_beat(group, "one", 2, endpoint_information_epoch=0))
    _ask(play, "two joins", streams_join(group, "two", of, "p2", **at(65535)))
    _ask(play, "a third one, without", streams_join(group, "three", of, "p3", endpoint_information_epoch=-1))
    _ask(play, "one is elsewhere", streams_beat(group, "one", 2, **at(2)))
    _ask(play, "one says the same again", streams_beat(group, "one", 2, **at(2)))
    _ask(
        play, "one joins again, without", streams_join(group, "one", of, "p1", endpoint_information_epoch=-1)
    )
    _ask(play, "and with one", streams_join(group, "one", of, "p1", **at(3)))
    _ask(play, "and with the same", streams_join(group, "one", of, "p1", **at(3)))
    beat = _beats(play, group)
    beat("one gives up", "one", 2, active={"0": [0, 1, 2]}, endpoint_information_epoch=1)
    beat("one has given up", "one", 2, active={"0": [0]}, endpoint_information_epoch=1)
    beat("two gets it", "two", 4, endpoint_information_epoch=-1)
    beat("three gets it", "three", 4, endpoint_information_epoch=-1)
    beat("one asks once more", "one", 4, active={"0": [0]}, endpoint_information_epoch=-1)
    play.note("records", records_of(play, group, topic))


@script(properties="streams")
def shutdown(play: Play) -> None:
    topic = play.topic("t", partitions=2)
    group = play.name("g")
    coordinator_is_there(play, group)
    of = topology(subtopology("0", topic.name))
    _ask(play, "asked for by the first one, at once", streams_join(group, "a", of, shutdown_application=True))
    _ask(play, "nobody remembers", streams_beat(group, "a", 2))
    _ask(play, "another one joins", streams_join(group, "b", of, "q"))
    _ask(play, "asked for", streams_beat(group, "b", 3, shutdown_application=True))
    _ask(play, "asked for by another", streams_beat(group, "a", 2, shutdown_application=True))
    _ask(play, "told", streams_beat(group, "a", 2))
    _ask(play, "a newcomer is told", streams_join(group, "c", of, "r"))
    for member in "abc":
        _ask(play, f"{member} leaves", streams_beat(group, member, -1))
    _ask(play, "forgotten", streams_join(group, "a", of))
    _ask(play, "asked for by a stranger who leaves", streams_beat(group, "x", -1, shutdown_application=True))
    _ask(play, "told of the stranger", streams_beat(group, "a", 9))


@script(properties="streams")
def full(play: Play) -> None:
    topic = play.topic("t", partitions=2)
    group = play.name("g")
    coordinator_is_there(play, group)
    of = topology(subtopology("0", topic.name))
    for member in "abcde":
        _ask(play, f"{member} joins", streams_join(group, member, of, member))
    _ask(play, "a joins again", streams_join(group, "a", of, "a"))
    _ask(play, "a lives", streams_beat(group, "a", 2))
    describe_streams(play, "full", group)


@script(properties="streams")
def other_kinds(play: Play) -> None:
    """Groups of other kinds, and requests of other kinds."""
    topic = play.topic("t", partitions=2)
    of = topology(subtopology("0", topic.name))
    group, consumers, offsets, classic = (
        play.name(each) for each in ("g", "consumers", "offsets", "classic")
    )
    coordinator_is_there(play, group, consumers, offsets, classic)
    play.quietly("ConsumerGroupHeartbeat", 1, first_beat(consumers, "m", topic.name))
    _ask(play, "to join a consumer group", streams_join(consumers, "m", of))
    _ask(play, "to live in a consumer group", streams_beat(consumers, "m", 2))
    _ask(play, "to leave a consumer group", streams_beat(consumers, "m", -1))
    describe_streams(play, "a consumer group described", consumers)
    play.quietly("OffsetCommit", 9, commit(offsets, (topic, 0, 7)))
    _ask(play, "to live in a group of offsets", streams_beat(offsets, "m", 1))
    endpoint = {"user_endpoint": {"host": "h", "port": 1}}
    _ask(play, "a group of offsets becomes one", streams_join(offsets, "m", of, **endpoint))
    _ask(play, "and goes on", streams_beat(offsets, "m", 2))
    play.ask("its offsets stay", "OffsetFetch", 8, fetch_offsets(8, offsets, [(topic, (0,))]))
    play.note("records of it", records_of(play, offsets, topic))
    play.quietly("JoinGroup", 5, join(classic))
    _ask(play, "an empty classic group becomes one", streams_join(classic, "m", of))
    play.note("records of that", records_of(play, classic, topic))
    _ask(play, "a group", streams_join(group, "m", of))
    play.ask("JoinGroup, with members", "JoinGroup", 5, join(group))
    play.ask("Heartbeat", "Heartbeat", 4, {"group_id": group, "generation_id": 2, "member_id": "m"})
    play.ask("LeaveGroup", "LeaveGroup", 4, {"group_id": group, "members": [{"member_id": "m"}]})
    play.ask("ConsumerGroupHeartbeat", "ConsumerGroupHeartbeat", 1, first_beat(group, "m", topic.name))
    play.ask("ConsumerGroupDescribe", "ConsumerGroupDescribe", 1, {"group_ids": [group]})
    play.ask("DescribeGroups", "DescribeGroups", 6, {"groups": [group]})
    for state in ("stable", "Stable", "not_ready", "NotReady", "notready"):
        play.ask(f"listed, {state}", "ListGroups", 5, {"states_filter": [state], "types_filter": ["Streams"]})
    play.ask("to delete it with members", "DeleteGroups", 2, {"groups_names": [group]})
    play.quietly("StreamsGroupHeartbeat", 0, streams_beat(group, "m", -1))
    play.ask("ConsumerGroupHeartbeat, empty", "ConsumerGroupHeartbeat", 1, first_beat(group, "m", topic.name))
    refused_id = play.ask("JoinGroup, empty", "JoinGroup", 5, join(group))
    play.note("how it is refused", refused_id.error_code)
    play.note("records", records_of(play, group, topic))


@script(properties="streams")
def offsets(play: Play) -> None:
    """Who may commit which offsets, by epochs."""
    topic, outside = play.topic("t", partitions=3), play.topic("u")
    group = play.name("g")
    coordinator_is_there(play, group)
    of = topology(subtopology("0", topic.name))
    _ask(play, "one joins", streams_join(group, "one", of, "p1"))
    _ask(play, "two joins", streams_join(group, "two", of, "p2"))
    play.quietly("StreamsGroupHeartbeat", 0, streams_beat(group, "one", 2, active={"0": [0, 1, 2]}))
    play.quietly("StreamsGroupHeartbeat", 0, streams_beat(group, "one", 2, active={"0": [0, 1]}))
    play.quietly("StreamsGroupHeartbeat", 0, streams_beat(group, "two", 3))
    describe_streams(play, "who has what", group)
    for member in ("one", "two", "nobody", ""):
        for epoch in (-1, 0, 1, 2, 3, 4):
            for place in ((topic, 0, 5), (topic, 2, 5), (outside, 0, 5)):
                for version in (8, 9):
                    play.ask(
                        f"{member or 'none'} at {epoch} for {place[0] is topic}, {place[1]} (v{version})",
                        "OffsetCommit",
                        version,
                        commit(group, place, member_id=member, generation=epoch),
                    )
            fields = fetch_offsets(9, group, [(topic, (0, 2))], member_id=member or None, member_epoch=epoch)
            if member or epoch < 0:
                play.ask(f"{member or 'none'} at {epoch} fetches", "OffsetFetch", 9, fields)
    for each in (topic, outside):
        deleted = {"name": each.name, "partitions": [{"partition_index": 0}]}
        fields = {"group_id": group, "topics": [deleted]}
        play.ask(f"deleted: {each is topic}", "OffsetDelete", 0, fields)
    for member in ("one", "two"):
        play.quietly("StreamsGroupHeartbeat", 0, streams_beat(group, member, -1))
    play.ask("by nobody", "OffsetCommit", 9, commit(group, (topic, 0, 9)))
    play.ask(
        "by who was there", "OffsetCommit", 9, commit(group, (topic, 0, 9), member_id="one", generation=3)
    )
    deleted = {"name": topic.name, "partitions": [{"partition_index": 0}]}
    play.ask("deleted, empty", "OffsetDelete", 0, {"group_id": group, "topics": [deleted]})
    play.ask("the group deleted", "DeleteGroups", 2, {"groups_names": [group]})
    play.note("records", records_of(play, group, topic))

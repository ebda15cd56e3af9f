"""Static members of streams groups: each request to each instance, leaving for a while, and coming back (KIP-1071)."""

from __future__ import annotations

from typing import Any

from ..consumer_requests import records_of
from ..group_requests import Fields, commit, coordinator_is_there
from ..play import Play, script
from ..streams_requests import (
    describe_streams,
    set_for_group,
    streams_beat,
    streams_join,
    subtopology,
    topic_info,
    topology,
    until_internal_topics_are_there,
)


def _ask(play: Play, case: str, fields: Fields, version: int = 1) -> Any:
    return play.ask(case, "StreamsGroupHeartbeat", version, fields)


@script(properties="streams")
def cells(play: Play) -> None:
    """An unknown instance, a live one and one that is away meet each request: with its own member id, with another
    member's, and with an unknown one."""
    topic = play.topic("t", partitions=2)
    of = topology(subtopology("0", topic.name))
    asked = {
        "it joins": lambda group, member: streams_join(group, member, of, "p1", instance_id="i"),
        "it joins, dynamic": lambda group, member: streams_join(group, member, of, "p1"),
        "it joins as another instance": lambda group, member: streams_join(
            group, member, of, "p1", instance_id="j"
        ),
        "it lives": lambda group, member: streams_beat(group, member, 2, instance_id="i"),
        "it lives, dynamic": lambda group, member: streams_beat(group, member, 2),
        "it lives as another instance": lambda group, member: streams_beat(group, member, 2, instance_id="j"),
        "it has all": lambda group, member: streams_beat(
            group, member, 2, active={"0": [0, 1]}, instance_id="i"
        ),
        "it is ahead": lambda group, member: streams_beat(group, member, 7, instance_id="i"),
        "it is behind": lambda group, member: streams_beat(group, member, 1, active={}, instance_id="i"),
        "it leaves": lambda group, member: streams_beat(group, member, -1, instance_id="i"),
        "it leaves, dynamic": lambda group, member: streams_beat(group, member, -1),
        "it leaves for a while": lambda group, member: streams_beat(group, member, -2, instance_id="i"),
        "another instance leaves for a while": lambda group, member: streams_beat(
            group, member, -2, instance_id="j"
        ),
    }
    for state in ("unknown", "alive", "away"):
        for member in ("one", "two", "new"):
            for what, fields_of in asked.items():
                case = f"{state}, {member}: {what}"
                group = play.name(case.replace(" ", "-").replace(",", "").replace(":", ""))
                coordinator_is_there(play, group)
                play.quietly("StreamsGroupHeartbeat", 1, streams_join(group, "two", of, "p2"))
                if state != "unknown":
                    first = streams_join(group, "one", of, "p1", instance_id="i")
                    play.quietly("StreamsGroupHeartbeat", 1, first)
                    play.quietly("StreamsGroupHeartbeat", 1, streams_beat(group, "two", 2, active={"0": [0]}))
                    play.quietly("StreamsGroupHeartbeat", 1, streams_beat(group, "two", 3, active={"0": [0]}))
                if state == "away":
                    play.quietly("StreamsGroupHeartbeat", 1, streams_beat(group, "one", -2, instance_id="i"))
                _ask(play, case, fields_of(group, member))
                describe_streams(play, f"{case}, described", group, version=1)
                play.note(f"{case}, records", records_of(play, group, topic))


@script(properties="streams")
def a_life(play: Play) -> None:
    """A member leaves and comes back, as itself and as other members, with the same fields and with other ones."""
    topic = play.topic("t", partitions=3)
    group = play.name("g")
    coordinator_is_there(play, group)
    of = topology(subtopology("0", topic.name))

    def comes(case: str, member: str, process: str = "p1", **more: Any) -> Any:
        return _ask(play, case, streams_join(group, member, of, process, instance_id="i", **more))

    def goes(case: str, member: str) -> None:
        _ask(play, case, streams_beat(group, member, -2, instance_id="i"))
        describe_streams(play, f"{case}, described", group, version=1)

    endpoint = {"user_endpoint": {"host": "h", "port": 1}, "endpoint_information_epoch": -1}
    comes("one joins", "one", **endpoint)
    _ask(play, "two joins", streams_join(group, "two", of, "p2", endpoint_information_epoch=-1))
    _ask(play, "one gives up", streams_beat(group, "one", 2, active={"0": [0, 1, 2]}, instance_id="i"))
    goes("one goes amid a reconciliation", "one")
    play.ask("it commits", "OffsetCommit", 9, commit(group, (topic, 0, 5), member_id="one", generation=2))
    _ask(play, "two waits", streams_beat(group, "two", 3, endpoint_information_epoch=-1))
    comes("it comes back as another one", "uno", **endpoint)
    _ask(play, "the one before", streams_beat(group, "one", 3, instance_id="i"))
    _ask(play, "the one before, dynamic", streams_beat(group, "one", 3))
    _ask(
        play,
        "two has its part",
        streams_beat(group, "two", 3, active={"0": [2]}, endpoint_information_epoch=-1),
    )
    _ask(play, "uno lives", streams_beat(group, "uno", 3, active={"0": [0, 1]}, instance_id="i"))
    describe_streams(play, "all is well", group, version=1)
    goes("uno goes", "uno")
    goes("uno goes twice", "uno")
    comes("it comes back as itself", "uno", endpoint_information_epoch=-1)
    goes("and goes", "uno")
    comes("it comes back elsewhere", "uno", rack_id="r")
    goes("and goes again", "uno")
    comes("it comes back with a tag", "due", client_tags=[{"key": "z", "value": "1"}])
    goes("due goes", "due")
    comes("it comes back in another process", "due", "p3")
    _ask(play, "with more time", streams_beat(group, "due", 6, rebalance_timeout_ms=5, instance_id="i"))
    goes("due goes once more", "due")
    comes("it comes back as a member that is there", "two", "p3")
    describe_streams(play, "in the place of two", group, version=1)
    _ask(play, "two leaves", streams_beat(group, "two", -1, instance_id="i"))
    describe_streams(play, "empty", group, version=1)
    play.note("records", records_of(play, group, topic))


@script(properties="streams")
def full(play: Play) -> None:
    """A known member may join again; `group.streams.max.size` is 4."""
    topic = play.topic("t", partitions=2)
    group = play.name("g")
    coordinator_is_there(play, group)
    of = topology(subtopology("0", topic.name))
    for member in "abcd":
        instance = f"i{member}" if member in "ab" else None
        _ask(play, f"{member} joins", streams_join(group, member, of, member, instance_id=instance))
    _ask(play, "e joins", streams_join(group, "e", of, "e"))
    _ask(play, "e joins as an unknown instance", streams_join(group, "e", of, "e", instance_id="ie"))
    _ask(play, "e joins as a", streams_join(group, "e", of, "e", instance_id="ia"))
    _ask(play, "c joins again", streams_join(group, "c", of, "c"))
    _ask(play, "c joins as an unknown instance", streams_join(group, "c", of, "c", instance_id="ic"))
    _ask(play, "a goes", streams_beat(group, "a", -2, instance_id="ia"))
    _ask(play, "f joins", streams_join(group, "f", of, "f"))
    _ask(play, "e joins as a once more", streams_join(group, "e", of, "e", instance_id="ia"))
    describe_streams(play, "full", group, version=1)
    play.note("records", records_of(play, group, topic))


@script(properties="streams")
def copies(play: Play) -> None:
    """A copy becomes an active task and back, without a round of giving up."""
    topic = play.topic("t", partitions=2)
    group = play.name("g")
    coordinator_is_there(play, group)
    set_for_group(play, group, num_standby_replicas="1")
    of = topology(subtopology("0", topic.name, changelogs=[topic_info(play.name("store"))]))
    _ask(play, "one joins", streams_join(group, "one", of, "p1"))
    until_internal_topics_are_there(play, streams_beat(group, "one", 2))
    _ask(play, "two joins", streams_join(group, "two", of, "p2"))

    def turns(case: str, *members: str) -> None:
        for turn in range(3):
            for member in members:
                known = play.quietly("StreamsGroupDescribe", 0, {"group_ids": [group]}).groups[0]
                (found,) = [each for each in known.members if each.member_id == member]
                has = found.assignment
                active = {each.subtopology_id: each.partitions for each in has.active_tasks}
                standby = {each.subtopology_id: each.partitions for each in has.standby_tasks}
                fields = streams_beat(group, member, found.member_epoch, active=active, standby=standby)
                _ask(play, f"{case}: {member}, {turn}", fields)
        describe_streams(play, f"{case}: in the end", group, version=1)

    turns("with two", "one", "two")
    _ask(play, "two leaves", streams_beat(group, "two", -1))
    turns("one alone", "one")
    _ask(play, "two is back", streams_join(group, "two", of, "p2"))
    turns("with two again", "one", "two")
    _ask(play, "three joins", streams_join(group, "three", of, "p3"))
    turns("with three", "one", "two", "three")
    _ask(play, "one leaves", streams_beat(group, "one", -1))
    turns("without one", "two", "three")
    play.note("records", records_of(play, group, topic))

"""Topologies of streams groups: which one a group accepts, topics that don't fit, partitions of internal topics, and
time limits (KIP-1071)."""

from __future__ import annotations

from typing import Any

from ..consumer_requests import records_of
from ..group_requests import LONG_MS, Fields, coordinator_is_there
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


def _ask(play: Play, case: str, fields: Fields) -> Any:
    return play.ask(case, "StreamsGroupHeartbeat", 0, fields)


@script(properties="streams")
def statuses(play: Play) -> None:
    """Topics that are missing, or don't fit."""
    three, two = play.topic("t3", partitions=3), play.topic("t2", partitions=2)
    other = play.topic("store-there", partitions=7)
    missing = [play.name(f"missing{index}") for index in range(5)]
    flexible, fixed = topic_info(play.name("flexible")), topic_info(play.name("fixed"), 5)
    sinks = [flexible["name"], fixed["name"]]
    writes = subtopology("w", two.name, sinks=sinks)
    cases = {
        "a source is missing": topology(subtopology("0", missing[0])),
        "five sources are missing": topology(subtopology("0", *missing), subtopology("1", three.name)),
        "sources that don't fit": topology(
            subtopology("0", three.name, two.name, copartitioned=[([0, 1], [])])
        ),
        "a changelog that doesn't fit": topology(
            subtopology("0", three.name, changelogs=[topic_info(other.name)])
        ),
        "a fixed one beside a source": topology(
            writes, subtopology("0", three.name, repartitions=[fixed], copartitioned=[([0], [0])])
        ),
        "fixed ones that differ": topology(
            subtopology("w", two.name, sinks=[play.name("f1"), play.name("f2")]),
            subtopology(
                "0",
                repartitions=[topic_info(play.name("f1"), 2), topic_info(play.name("f2"), 3)],
                copartitioned=[([], [0, 1])],
            ),
        ),
        "nobody writes it": topology(subtopology("0", repartitions=[flexible])),
        "a loop": topology(
            subtopology("0", repartitions=[topic_info(play.name("l1"))], sinks=[play.name("l2")]),
            subtopology("1", repartitions=[topic_info(play.name("l2"))], sinks=[play.name("l1")]),
        ),
        "no sources": topology(subtopology("0", three.name), subtopology("1")),
        "no subtopologies": topology(),
        "an empty copartition group": topology(subtopology("0", three.name, copartitioned=[([], [])])),
    }
    for number, (case, of) in enumerate(cases.items()):
        group = play.name(f"g{number}")
        coordinator_is_there(play, group)
        _ask(play, case, streams_join(group, "m", of))
        _ask(play, f"{case}, the next time", streams_beat(group, "m", 2))
        _ask(
            play,
            f"{case}, with an epoch of endpoints",
            streams_beat(group, "m", 2, endpoint_information_epoch=7),
        )
        describe_streams(play, f"{case}, described", group)
        play.note(f"{case}, records", records_of(play, group, three))


@script(properties="streams")
def partition_counts(play: Play) -> None:
    """How many partitions internal topics get."""
    three, two = play.topic("t3", partitions=3), play.topic("t2", partitions=2)

    def named(suffix: str, partitions: int = 0) -> Fields:
        return topic_info(play.name(suffix), partitions)

    cases = {
        "the largest input": topology(
            subtopology("0", three.name, two.name, sinks=[play.name("a")]),
            subtopology("1", repartitions=[named("a")], changelogs=[named("a-store")]),
        ),
        "along a chain": topology(
            subtopology("2", repartitions=[named("b2")], changelogs=[named("b-store")]),
            subtopology("1", repartitions=[named("b1", 4)], sinks=[play.name("b2")]),
            subtopology("0", two.name, sinks=[play.name("b1")]),
        ),
        "with a source": topology(
            subtopology("0", two.name, sinks=[play.name("c")]),
            subtopology("1", three.name, repartitions=[named("c")], copartitioned=[([0], [0])]),
        ),
        "with a fixed one": topology(
            subtopology("0", two.name, sinks=[play.name("d1"), play.name("d2")]),
            subtopology("1", repartitions=[named("d1"), named("d2", 5)], copartitioned=[([], [0, 1])]),
        ),
        "the largest of some": topology(
            subtopology("0", two.name, sinks=[play.name("e1")]),
            subtopology("1", three.name, sinks=[play.name("e2")]),
            subtopology("2", repartitions=[named("e1"), named("e2")], copartitioned=[([], [0, 1])]),
        ),
    }
    for number, (case, of) in enumerate(cases.items()):
        group = play.name(f"g{number}")
        coordinator_is_there(play, group)
        play.quietly("StreamsGroupHeartbeat", 0, streams_join(group, "m", of))
        until_internal_topics_are_there(play, streams_beat(group, "m", 2))
        describe_streams(play, case, group)


@script(properties="streams")
def topologies(play: Play) -> None:
    """Which topology a group accepts, and for how long."""
    topic, other = play.topic("t", partitions=2), play.topic("u", partitions=2)
    group = play.name("g")
    coordinator_is_there(play, group)
    one, two = subtopology("0", topic.name, other.name), subtopology("1", other.name)
    _ask(play, "the first one", streams_join(group, "a", topology(one, two, epoch=5)))
    _ask(play, "the same, in another order", streams_join(group, "b", topology(two, one, epoch=5)))
    swapped = subtopology("0", other.name, topic.name)
    _ask(play, "sources in another order", streams_join(group, "c", topology(swapped, two, epoch=5)))
    _ask(play, "a smaller one", streams_join(group, "c", topology(one, epoch=5)))
    _ask(play, "a greater epoch", streams_join(group, "c", topology(one, two, epoch=6)))
    _ask(play, "a smaller epoch, and another one", streams_join(group, "c", topology(one, epoch=4)))
    _ask(play, "it is told that", streams_beat(group, "c", 4))
    describe_streams(play, "the group", group)
    for member in "abc":
        play.quietly("StreamsGroupHeartbeat", 0, streams_beat(group, member, -1))
    _ask(play, "another one once all have left", streams_join(group, "a", topology(one, epoch=5)))
    play.ask("deleted", "DeleteGroups", 2, {"groups_names": [group]})
    _ask(play, "another one after that", streams_join(group, "a", topology(one, epoch=0)))
    play.note("records", records_of(play, group, topic))


@script(properties="streams")
def delays(play: Play) -> None:
    """The first assignment waits for other members until its delay is over. Later ones keep their distance."""
    topic = play.topic("t", partitions=2)
    group = play.name("g")
    coordinator_is_there(play, group)
    set_for_group(play, group, initial_rebalance_delay_ms="700", assignment_interval_ms="15000")
    of = topology(subtopology("0", topic.name))
    _ask(play, "one joins", streams_join(group, "one", of, "p1"))
    _ask(play, "one lives", streams_beat(group, "one", 1, active={}))
    _ask(play, "two joins", streams_join(group, "two", of, "p2"))
    _ask(play, "two lives", streams_beat(group, "two", 1, active={}))
    describe_streams(play, "delayed", group)

    def is_assigned() -> bool:
        (found,) = play.quietly("StreamsGroupDescribe", 0, {"group_ids": [group]}).groups
        return bool(found.assignment_epoch > 1)

    play.until("it is assigned", is_assigned)
    describe_streams(play, "assigned by itself", group)
    _ask(play, "one gets its own", streams_beat(group, "one", 1, active={}))
    _ask(play, "two gets its own", streams_beat(group, "two", 1, active={}))
    _ask(play, "a third one is early", streams_join(group, "three", of, "p3"))
    _ask(play, "one is told", streams_beat(group, "one", 3, active={"0": [0]}))
    describe_streams(play, "assigning", group)
    alone = play.name("alone")
    coordinator_is_there(play, alone)
    set_for_group(play, alone, initial_rebalance_delay_ms="1")
    first = _ask(play, "another group's first one", streams_join(alone, "one", of, "p1"))
    play.note("its epoch", first.member_epoch)
    play.note("records", records_of(play, group, topic))


@script(properties="streams")
def timeouts(play: Play) -> None:
    """A member that sends no heartbeat is dropped, and so is one that doesn't give up its tasks in time."""
    topic = play.topic("t", partitions=2)
    group = play.name("g")
    coordinator_is_there(play, group)
    of = topology(subtopology("0", topic.name))

    def members() -> list[str]:
        (found,) = play.quietly("StreamsGroupDescribe", 0, {"group_ids": [group]}).groups
        return [each.member_id for each in found.members]

    _ask(play, "one joins", streams_join(group, "one", of, "p1", rebalance_timeout_ms=300))
    _ask(play, "two joins", streams_join(group, "two", of, "p2", rebalance_timeout_ms=LONG_MS))
    _ask(play, "one has to give up", streams_beat(group, "one", 2))
    play.until("one is put out", lambda: "one" not in members())
    describe_streams(play, "one is put out", group)
    _ask(play, "one comes too late", streams_beat(group, "one", 2))
    set_for_group(play, group, session_timeout_ms="500", heartbeat_interval_ms="100")
    _ask(play, "two has another session", streams_beat(group, "two", 3))
    play.until("two is put out", lambda: not members())
    describe_streams(play, "nobody is left", group)
    play.note("records", records_of(play, group, topic))


@script(properties="streams")
def a_restart(play: Play) -> None:
    """Members continue from where they were. State held only in memory is gone."""
    topic = play.topic("t", partitions=2)
    group = play.name("g")
    coordinator_is_there(play, group)
    of = topology(subtopology("0", topic.name, changelogs=[topic_info(play.name("store"))]))
    _ask(play, "one joins", streams_join(group, "one", of, "p1"))
    until_internal_topics_are_there(play, streams_beat(group, "one", 2))
    endpoint = {"user_endpoint": {"host": "h", "port": 1}}
    _ask(play, "one has an endpoint", streams_beat(group, "one", 3, active={"0": [0, 1]}, **endpoint))
    _ask(
        play,
        "two joins, and asks for a shutdown",
        streams_join(group, "two", of, "p2", shutdown_application=True),
    )
    _ask(play, "one has to give up", streams_beat(group, "one", 4))
    describe_streams(play, "before", group)
    play.restart(kill=True)
    coordinator_is_there(play, group)
    describe_streams(play, "after", group)
    _ask(play, "two goes on", streams_beat(group, "two", 5, endpoint_information_epoch=-1))
    _ask(play, "one doesn't say what it has", streams_beat(group, "one", 4))
    _ask(play, "one has given up", streams_beat(group, "one", 4, active={"0": [0]}))
    _ask(play, "two gets it", streams_beat(group, "two", 5, active={}))
    describe_streams(play, "later", group)
    play.note("records", records_of(play, group, topic))


@script(properties="streams")
def an_endpoint_without_topics(play: Play) -> None:
    """A member has an endpoint, while a source topic is missing."""
    group = play.name("g")
    coordinator_is_there(play, group)
    of = topology(subtopology("0", play.name("nowhere")))
    endpoint = {"user_endpoint": {"host": "h", "port": 1}, "endpoint_information_epoch": -1}
    _ask(play, "one joins", streams_join(group, "one", of, **endpoint))

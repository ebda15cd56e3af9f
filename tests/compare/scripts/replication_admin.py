"""Replicas that are moved: AlterPartitionReassignments and ListPartitionReassignments before, during and after it."""

from __future__ import annotations

from ..batches import batch
from ..cluster_properties import CLUSTER
from ..placed_replicas import listed, show, until_placed
from ..play import Play, script, versions
from ..requests import fetch, produce
from .replicas import reassignment

ALTER, LIST = "AlterPartitionReassignments", "ListPartitionReassignments"


@script(properties=CLUSTER)
def refused_moves(play: Play) -> None:
    """Nothing moves, and the whole cluster is up."""
    a, b = play.topic("a", 2, replicas=(1, 2)), play.topic("b")
    for version in versions(ALTER):
        for case, replicas in {
            "an unknown broker": [1, 7],
            "an unknown one alone": [7],
            "a negative broker": [1, -1],
            "a broker twice": [1, 2, 1],
            "an unknown broker twice": [7, 7],
            "the controller": [1, 100],
            "no replicas": [],
            "nothing to cancel": None,
        }.items():
            asked = reassignment((a.name, 0, replicas))
            play.ask(f"{case} (v{version})", ALTER, version, asked)
        asked = reassignment(
            (a.name, 0, [7]),
            (a.name, 1, None),
            (a.name, 2, [1]),
            (a.name, -1, [1]),
            (b.name, 0, []),
            ("nowhere", 0, [1]),
        )
        play.ask(f"all at once (v{version})", ALTER, version, asked)
        asked = reassignment((a.name, 0, [2, 2]), ("nowhere", 0, [2]))
        for on in ("broker 2", "broker 3", "controller"):
            play.ask(f"asked of {on} (v{version})", ALTER, version, asked, on=on)
    for case, replicas in {
        "more": [1, 2, 3],
        "fewer": [1],
        "none": [],
        "unknown ones, more": [1, 2, 7],
    }.items():
        asked = reassignment((a.name, 0, replicas), allow_replication_factor_change=False)
        play.ask(f"{case}, where their number must not change", ALTER, 1, asked)
    asked = reassignment((b.name, 0, [1]), (a.name, 0, [1, 2, 3]), allow_replication_factor_change=False)
    play.ask("fewer and more, where their number must not change", ALTER, 1, asked)
    show(play, "nothing has moved", a, b)
    for on in ("broker 2", "controller"):
        play.ask(f"none under way, of {on}", LIST, 0, {"timeout_ms": 30_000, "topics": None}, on=on)
        play.ask(f"none of these, of {on}", LIST, 0, listed(a, b, partitions=(0, 1, 9)), on=on)


@script(properties=CLUSTER)
def moves(play: Play) -> None:
    """Each move is complete before the next one is requested."""
    a = play.topic("a", replicas=(1, 2))
    play.write(a.name, batch(3))
    for replicas in ([2, 1], [1, 2, 3], [3, 2, 1], [3], [1, 2], [2, 3], [1, 3, 2], [2]):
        leader = next(play.cluster.state.partitions_of(a.name))[0].leader_id
        asked = reassignment((a.name, 0, replicas))
        play.ask(f"to {replicas}", ALTER, 0, asked, on="broker 3")
        by = leader if leader in replicas else replicas[0]
        until_placed(play, a, replicas, isr=replicas, by=by)
        show(play, f"on {replicas}", a)
        on = f"broker {by}"
        play.ask(f"written on {replicas}", "Produce", 9, produce((a, 0, batch(2))), on=on)
    play.ask("moved already", ALTER, 1, reassignment((a.name, 0, [2])))
    asked = reassignment((a.name, 0, [3]), allow_replication_factor_change=False)
    play.ask("moved, their number kept", ALTER, 1, asked)
    until_placed(play, a, [3], isr=[3], by=3)
    play.ask("all of it", "Fetch", 12, fetch((a, 0, 0)), on="broker 3")
    show(play, "at the end", a, on="broker 2")
    for broker in (1, 2, 3):
        play.until(
            f"broker {broker} has what it is to have", lambda on=broker: _held(play, a.name, on) == (on == 3)
        )


def _held(play: Play, topic: str, broker: int) -> bool:
    return (play.cluster.nodes[broker].data / f"{topic}-0").exists()


@script(properties=CLUSTER)
def under_way(play: Play) -> None:
    """The broker that should get a replica is down."""
    a, b = play.topic("a", 2, replicas=(1, 2)), play.topic("b", replicas=(2, 1))
    play.write(a.name, batch(3))
    play.cluster.stop(3)
    play.ask("a replica more", ALTER, 0, reassignment((a.name, 0, [1, 2, 3])))
    until_placed(play, a, [1, 2, 3], isr=[1, 2], by=1)
    show(play, "one more", a, b)
    play.ask("asked for again", ALTER, 0, reassignment((a.name, 0, [1, 2, 3])))
    play.ask("taken back", ALTER, 0, reassignment((a.name, 0, [1, 2])))
    show(play, "added and removed", a)
    play.ask("cancelled", ALTER, 0, reassignment((a.name, 0, None)))
    until_placed(play, a, [1, 2], isr=[1, 2], by=1)
    show(play, "cancelled, it", a)
    play.ask("nothing to cancel any more", ALTER, 0, reassignment((a.name, 0, None)))

    play.ask("one in place of another", ALTER, 1, reassignment((a.name, 0, [1, 3])))
    play.ask("and of the second partition", ALTER, 1, reassignment((a.name, 1, [3])))
    until_placed(play, a, [1, 3, 2], isr=[1, 2], by=1)
    until_placed(play, a, [3, 1, 2], isr=[1, 2], by=1, partition=1)
    show(play, "one in place of another", a, b)
    for on in ("main", "broker 2", "controller"):
        play.ask(f"all that are under way, of {on}", LIST, 0, {"timeout_ms": 30_000, "topics": None}, on=on)
    play.ask("listed: some unknown", LIST, 0, listed(a, b, partitions=(0, 1, 7)))
    play.ask("written meanwhile", "Produce", 9, produce((a, 0, batch()), (a, 1, batch())))
    asked = reassignment((a.name, 0, [2, 3]), allow_replication_factor_change=False)
    play.ask("another in place of another", ALTER, 1, asked)
    until_placed(play, a, [2, 3, 1], isr=[1, 2], by=1)
    show(play, "turned round", a)
    for replicas in ([1], [1, 2, 3]):
        asked = reassignment((a.name, 0, replicas), allow_replication_factor_change=False)
        play.ask(f"to {len(replicas)} under way, their number kept", ALTER, 1, asked)
    play.ask("cancelled, and one that isn't", ALTER, 0, reassignment((a.name, 0, None), (b.name, 0, None)))
    until_placed(play, a, [2, 1], isr=[1, 2], by=1)
    show(play, "back again", a)
    play.ask("to one that isn't there alone", ALTER, 0, reassignment((b.name, 0, [3])))
    until_placed(play, b, [3, 1, 2], isr=[2, 1], by=2)
    play.cluster.start(3)
    until_placed(play, a, [3], isr=[3], by=3, partition=1)
    until_placed(play, b, [3], isr=[3], by=3)
    show(play, "once it is there", a, b)


@script(properties=CLUSTER)
def meanwhile(play: Play) -> None:
    """Other requests while a replica is being moved."""
    a, b = play.topic("a", replicas=(1, 2), min_insync_replicas="2"), play.topic("b", replicas=(1, 2))
    play.cluster.stop(3)
    play.ask("two moves", ALTER, 0, reassignment((a.name, 0, [3, 1]), (b.name, 0, [3, 2])))
    until_placed(play, a, [3, 1, 2], isr=[1, 2], by=1)
    until_placed(play, b, [3, 2, 1], isr=[1, 2], by=1)
    elected = {"topic_partitions": [{"topic": a.name, "partitions": [0]}], "timeout_ms": 30_000}
    play.ask("the first one is to lead", "ElectLeaders", 2, elected)
    more = {"topics": [{"name": a.name, "count": 2, "assignments": None}], "timeout_ms": 30_000}
    play.ask("more partitions, validated", "CreatePartitions", 3, more | {"validate_only": True})
    for replicas in ([2, 1], [2], [2, 1, 3]):
        placed = {"name": a.name, "count": 2, "assignments": [{"broker_ids": replicas}]}
        more = {"topics": [placed], "timeout_ms": 30_000}
        play.ask(f"a partition more on {replicas}", "CreatePartitions", 3, more)
    play.cluster.until_led(a.name, by=2, partition=1)
    show(play, "more partitions", a)
    play.ask("deleted", "DeleteTopics", 5, {"topic_names": [b.name], "timeout_ms": 30_000})
    play.until_gone(b.name)
    play.ask("what is under way", LIST, 0, {"timeout_ms": 30_000, "topics": None})
    play.cluster.stop(2)
    play.cluster.until_led(a.name, by=1, isr=[1])
    show(play, "one of them gone", a)
    play.ask("too few", "Produce", 9, produce((a, 0, batch())))
    play.ask("back to those that were", ALTER, 0, reassignment((a.name, 0, None)))
    until_placed(play, a, [1, 2], isr=[1], by=1)
    show(play, "back to those that were", a)
    play.ask("to those that are gone", ALTER, 0, reassignment((a.name, 0, [2, 3])))
    until_placed(play, a, [2, 3, 1], isr=[1], by=1)
    show(play, "to those that are gone", a)
    play.cluster.start(2)
    play.cluster.start(3)
    until_placed(play, a, [2, 3], isr=[2, 3], by=2)
    show(play, "all are there", a)

"""Elections: ElectLeaders of either type, unrequested elections, and replicas that may be elected outside of an ISR."""

from __future__ import annotations

from ..batches import batch
from ..cluster_properties import CLUSTER
from ..placed_replicas import show
from ..play import Play, script
from ..requests import fetch, produce
from ..scene import Topic
from .replicas import election

PREFERRED, UNCLEAN = 0, 1


@script(properties=CLUSTER)
def asked_for(play: Play) -> None:
    """Elect while all brokers run, then without one of them, and then with all of them again."""
    topics = {
        "led by another": play.topic("a", replicas=(1, 2, 3)),
        "led by nobody": play.topic("b", replicas=(1,)),
        "led by its first": play.topic("c", replicas=(2, 1)),
        "on two, led by another": play.topic("d", 2, replicas=(1, 3)),
    }
    on = "broker 2"
    _ask_for_all(play, "all run", topics, on)
    play.cluster.stop(1)
    play.cluster.until_led(topics["led by another"].name, by=2, isr=(2, 3))
    play.cluster.until_led(topics["led by nobody"].name, by=-1)
    play.cluster.until_led(topics["led by its first"].name, by=2, isr=(2,))
    for index in (0, 1):
        play.cluster.until_led(topics["on two, led by another"].name, by=3, isr=(3,), partition=index)
    _ask_for_all(play, "one has gone", topics, on)
    show(play, "one has gone", *topics.values(), on=on)
    play.cluster.start(1)
    for case, topic in topics.items():
        isr = {"led by another": (1, 2, 3), "led by nobody": (1,), "led by its first": (1, 2)}.get(
            case, (1, 3)
        )
        by = {"led by nobody": 1, "led by another": 2, "led by its first": 2}.get(case, 3)
        play.cluster.until_led(topic.name, by=by, isr=isr)
    play.cluster.until_led(topics["on two, led by another"].name, by=3, isr=(1, 3), partition=1)
    some = (topics["led by another"].name, [0, 5])
    play.ask("some, once it is back", "ElectLeaders", 2, election(some, ("nowhere", [0])), on="controller")
    play.cluster.until_led(topics["led by another"].name, by=1)
    everything = {"topic_partitions": None, "timeout_ms": 30_000}
    play.ask("all others, once it is back", "ElectLeaders", 2, everything, on=on)
    for index in (0, 1):
        play.cluster.until_led(topics["on two, led by another"].name, by=1, partition=index)
    show(play, "it leads again", *topics.values(), on=on)


def _ask_for_all(play: Play, when: str, topics: dict[str, Topic], on: str) -> None:
    for kind in (UNCLEAN, PREFERRED, 2):
        for case, topic in topics.items():
            asked = election((topic.name, [0]), kind=kind)
            play.ask(f"{when}, {case}: kind {kind}", "ElectLeaders", 2, asked, on=on)
        asked = election(*((topic.name, [1, 0, 9]) for topic in topics.values()), ("nowhere", [0]), kind=kind)
        play.ask(f"{when}, together: kind {kind}", "ElectLeaders", 2, asked, on=on)
        everything = {"topic_partitions": None, "election_type": kind, "timeout_ms": 30_000}
        play.ask(f"{when}, all there are: kind {kind}", "ElectLeaders", 2, everything, on=on)
    asked = election(*((topic.name, [0]) for topic in topics.values()))
    for version in (0, 1):
        play.ask(f"{when}, together (v{version})", "ElectLeaders", version, asked, on=on)
    play.ask(f"{when}, of the controller", "ElectLeaders", 2, asked, on="controller")


@script(properties=CLUSTER)
def without_the_last_of_the_isr(play: Play) -> None:
    """A broker that left earlier lacks the records committed since. It is elected by request or by a setting. Or it is
    eligible, if nothing could be committed without it."""
    plain = play.topic("a", replicas=(2, 3))
    before = play.topic("b", replicas=(2, 3), unclean_leader_election_enable="true")
    later = play.topic("c", replicas=(2, 3))
    eligible = play.topic("d", replicas=(2, 3), min_insync_replicas="2")
    topics = (plain, before, later, eligible)
    for topic in topics:
        play.quietly("Produce", 9, produce((topic, 0, batch(2))), on="broker 2: scene")
    play.cluster.stop(3)
    for topic in topics:
        play.cluster.until_led(topic.name, by=2, isr=(2,))
    asked = produce(*((topic, 0, batch(3)) for topic in topics))
    play.ask("written to one alone", "Produce", 9, asked, on="broker 2")
    play.cluster.kill(2)
    for topic in topics:
        play.cluster.until_led(topic.name, by=-1)
    show(play, "nobody is there", *topics)
    _each_kind(play, "nobody is there", plain)
    play.cluster.start(3)
    for topic in (before, eligible):
        play.cluster.until_led(topic.name, by=3)
    show(play, "one is there that lacks a record", *topics)
    _each_kind(play, "it lacks a record", plain)
    setting = {"name": "unclean.leader.election.enable", "config_operation": 0, "value": "true"}
    resource = {"resource_type": 2, "resource_name": later.name, "configs": [setting]}
    play.ask("another one may, too", "IncrementalAlterConfigs", 1, {"resources": [resource]})
    show(play, "another one may", *topics)
    _each_kind(play, "it may", later)
    for topic in topics:
        play.cluster.until_led(topic.name, by=3)
    show(play, "it leads", *topics)
    play.ask("kind 1 again", "ElectLeaders", 2, election((plain.name, [0]), kind=UNCLEAN))
    asked = produce(*((topic, 0, batch()) for topic in topics))
    play.ask("written to the other", "Produce", 9, asked, on="broker 3")
    play.cluster.start(2)
    for topic in topics:
        play.cluster.until_led(topic.name, by=3, isr=(2, 3))
    show(play, "both are there", *topics)
    play.ask("what is left", "Fetch", 12, fetch(*((topic, 0, 0) for topic in topics)), on="broker 3")


def _each_kind(play: Play, when: str, topic: Topic) -> None:
    for kind in (PREFERRED, UNCLEAN):
        play.ask(f"{when}: kind {kind}", "ElectLeaders", 2, election((topic.name, [0]), kind=kind))


@script(properties=CLUSTER)
def eligible_replicas(play: Play) -> None:
    """Replicas that left an ISR below its minimum may lead if they shut down cleanly."""
    two = play.topic("a", min_insync_replicas="2")
    three = play.topic("b", min_insync_replicas="3")
    one = play.topic("c", min_insync_replicas="1")
    topics = (two, three, one)
    for topic in topics:
        play.write(topic.name, batch(2))
    play.cluster.stop(3)
    for topic in topics:
        play.cluster.until_led(topic.name, by=1, isr=(1, 2))
    show(play, "two left", *topics)
    play.cluster.stop(2)
    for topic in topics:
        play.cluster.until_led(topic.name, by=1, isr=(1,))
    show(play, "one left", *topics)
    more = {"name": "min.insync.replicas", "config_operation": 0, "value": "1"}
    resource = {"resource_type": 2, "resource_name": three.name, "configs": [more]}
    play.ask("one is enough now", "IncrementalAlterConfigs", 1, {"resources": [resource]})
    play.until("no replica is eligible", lambda: not _eligible(play, three))
    show(play, "one is enough now", three)
    play.cluster.start(3)
    for topic in topics:
        play.cluster.until_led(topic.name, by=1, isr=(1, 3))
    show(play, "two again", *topics)
    play.cluster.stop(3)
    for topic in topics:
        play.cluster.until_led(topic.name, by=1, isr=(1,))
    show(play, "one again", *topics)
    play.cluster.start(2)
    play.cluster.start(3)
    for topic in topics:
        play.cluster.until_led(topic.name, by=1, isr=(1, 2, 3))
    show(play, "all are there", *topics)


def _eligible(play: Play, topic: Topic) -> list[int]:
    asked = {"topics": [{"name": topic.name}], "response_partition_limit": 2000}
    answer = play.quietly("DescribeTopicPartitions", 0, asked)
    return list(answer.topics[0].partitions[0].eligible_leader_replicas or ())

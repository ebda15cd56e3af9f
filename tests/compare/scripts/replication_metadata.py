"""How brokers and the controller describe the cluster when it is complete and when a broker is missing."""

from __future__ import annotations

from ..cluster_properties import CLUSTER
from ..play import Play, script, versions
from ..requests import metadata
from ..scene import Topic
from .cluster import describe
from .replicas import election, reassignment


def look(play: Play, when: str, *topics: Topic, brokers: tuple[int, ...] = (1, 2, 3)) -> None:
    names = [topic.name for topic in topics]
    for broker in brokers:
        on = f"broker {broker}"
        for version in versions("Metadata"):
            play.ask(f"{when}: {on} (v{version})", "Metadata", version, metadata(*names), on=on)
        case = f"{when}: {on}, inside"
        play.ask(case, "Metadata", 12, metadata(*names), on=f"{on} inter-broker")
        play.ask(f"{when}: partitions by {on}", "DescribeTopicPartitions", 0, describe(*names), on=on)
        for fenced in (False, True):
            asked = {"include_fenced_brokers": fenced}
            play.ask(f"{when}: the cluster by {on}, {fenced}", "DescribeCluster", 2, asked, on=on)
    for version in versions("DescribeCluster"):
        case = f"{when}: the cluster by the controller (v{version})"
        play.ask(case, "DescribeCluster", version, {"endpoint_type": 2}, on="controller")
    asked = {"endpoint_type": 1, "include_fenced_brokers": True}
    play.ask(f"{when}: brokers by the controller", "DescribeCluster", 2, asked, on="controller")


def placed(play: Play) -> list[Topic]:
    """Topics whose first broker, some other, or no other one is 3."""
    return [
        play.topic("a", 2),
        play.topic("b", replicas=(3, 1)),
        play.topic("c", replicas=(3,)),
        play.topic("d", replicas=(2, 3, 1), min_insync_replicas="2"),
    ]


@script(properties=CLUSTER)
def all_of_them(play: Play) -> None:
    topics = placed(play)
    look(play, "all", *topics)


@script(properties=CLUSTER)
def one_stopped(play: Play) -> None:
    topics = placed(play)
    play.cluster.stop(3)
    play.cluster.until_led(topics[2].name, by=-1)
    play.cluster.until_led(topics[3].name, by=2, isr=(1, 2))
    look(play, "without 3", *topics, brokers=(1, 2))
    names = [topic.name for topic in topics]
    for kind in (0, 1):
        asked = election(*((name, [0]) for name in names), kind=kind)
        play.ask(f"an election of kind {kind}", "ElectLeaders", 2, asked)
    for case, replicas in {"one that is down": [3], "and another": [3, 2]}.items():
        asked = reassignment((topics[0].name, 0, replicas))
        play.ask(f"reassigned to {case}", "AlterPartitionReassignments", 1, asked)
        play.ask(f"under way: {case}", "ListPartitionReassignments", 0, {"topics": None})
        asked = reassignment((topics[0].name, 0, None))
        play.ask(f"cancelled: {case}", "AlterPartitionReassignments", 1, asked)


@script(properties=CLUSTER)
def one_killed(play: Play) -> None:
    topics = placed(play)
    play.cluster.kill(3)
    play.cluster.until_led(topics[2].name, by=-1)
    play.cluster.until_led(topics[3].name, by=2, isr=(1, 2))
    look(play, "without 3", *topics, brokers=(1, 2))
    play.cluster.start(3)
    play.cluster.until_led(topics[2].name, by=3)
    play.cluster.until_led(topics[3].name, by=2, isr=(1, 2, 3))
    play.cluster.until_led(topics[1].name, by=1, isr=(1, 3))
    play.cluster.until_led(topics[0].name, by=1, isr=(1, 2, 3))
    play.cluster.until_led(topics[0].name, by=1, isr=(1, 2, 3), partition=1)
    look(play, "with 3 again", *topics)


@script(properties=CLUSTER)
def eligible_replicas(play: Play) -> None:
    """If fewer replicas are in sync than min.insync.replicas, those that left the ISR stay eligible (KIP-966)."""
    topics = [play.topic(f"at-least-{least}", min_insync_replicas=str(least)) for least in (1, 2, 3)]
    for broker, left in ((3, (1, 2)), (2, (1,))):
        play.cluster.stop(broker)
        for topic in topics:
            play.cluster.until_led(topic.name, by=1, isr=left)
        look(play, f"without {broker}", *topics, brokers=left)
    for broker, isr in ((2, (1, 2)), (3, (1, 2, 3))):
        play.cluster.start(broker)
        for topic in topics:
            play.cluster.until_led(topic.name, by=1, isr=isr)
        look(play, f"with {broker} again", *topics, brokers=isr)


@script(properties=CLUSTER)
def eligible_ones_killed(play: Play) -> None:
    """A killed broker may have lost records, so it stops being eligible once it registers again."""
    topic = play.topic("a", min_insync_replicas="2")
    for broker, left in ((3, (1, 2)), (2, (1,))):
        play.cluster.kill(broker)
        play.cluster.until_led(topic.name, by=1, isr=left)
        look(play, f"without {broker}", topic, brokers=left)
    for broker, isr in ((2, (1, 2)), (3, (1, 2, 3))):
        play.cluster.start(broker)
        play.cluster.until_led(topic.name, by=1, isr=isr)
        look(play, f"with {broker} again", topic, brokers=isr)

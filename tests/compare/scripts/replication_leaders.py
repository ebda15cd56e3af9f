"""Leaders that stop, are killed, or hang: their successors, kept and truncated records, and the clients' answers."""

from __future__ import annotations

from ..batches import batch, record
from ..cluster_properties import CLUSTER
from ..play import SHORT_MS, Play, script
from ..requests import fetch, list_offsets, metadata, produce
from ..scene import Topic
from .cluster import describe
from .idempotence import sequenced
from .leader_epochs import epochs
from .replicas import election


def look(play: Play, when: str, topic: Topic, *, on: str) -> None:
    """Record everything that a broker says about a partition's leaders, in each epoch so far and one ahead."""
    for current in (-1, 0, 1, 2, 3):
        asked = {"current_leader_epoch": current}
        for version in (11, 12, 16, 18):
            case = f"{when}: fetched in epoch {current} (v{version})"
            play.ask(case, "Fetch", version, fetch((topic, 0, 1, asked)), on=on)
        listed = list_offsets((topic.name, 0, -1), leader_epoch=current)
        play.ask(f"{when}: the end in epoch {current}", "ListOffsets", 7, listed, on=on)
        for epoch in (0, 1, 2, 3):
            wanted = epochs((topic.name, 0, epoch), current=current)
            case = f"{when}: where epoch {epoch} ends, in epoch {current}"
            play.ask(case, "OffsetForLeaderEpoch", 4, wanted, on=on)
    for last in (-1, 0, 1, 2, 3):
        for offset in (0, 3, 5, 50):
            asked = {"last_fetched_epoch": last}
            case = f"{when}: fetched from {offset}, after epoch {last}"
            play.ask(case, "Fetch", 16, fetch((topic, 0, offset, asked)), on=on)
    for timestamp in (-1, -2, -3):
        listed = list_offsets((topic.name, 0, timestamp))
        play.ask(f"{when}: the offset at {timestamp}", "ListOffsets", 7, listed, on=on)
    asked = {"topics": [{"name": topic.name, "partition_indexes": [0]}]}
    play.ask(f"{when}: its producers", "DescribeProducers", 0, asked, on=on)
    play.ask(f"{when}: metadata", "Metadata", 12, metadata(topic.name), on=on)
    play.ask(f"{when}: described", "DescribeTopicPartitions", 0, describe(topic.name), on=on)


def produced_on(play: Play, when: str, topic: Topic, *, on: str) -> None:
    for version in (9, 10, 13):
        asked = produce((topic, 0, batch()))
        play.ask(f"{when}: a batch (v{version})", "Produce", version, asked, on=on)
    for case, data in {
        "the last sequence again": sequenced(2, 1),
        "the one before it again": sequenced(0, 2),
        "a gap": sequenced(9, 1),
    }.items():
        play.ask(f"{when}: {case}", "Produce", 9, produce((topic, 0, data)), on=on)


def goes_and_comes(play: Play, *, kill: bool) -> None:
    topic = play.topic("a")
    play.write(topic.name, sequenced(0, 2), sequenced(2, 1))
    (play.cluster.kill if kill else play.cluster.stop)(1)
    play.cluster.until_led(topic.name, by=2, isr=(2, 3))
    produced_on(play, "without it", topic, on="broker 2")
    play.cluster.until_committed(topic.name, 6, on=3)
    look(play, "without it, at the leader", topic, on="broker 2")
    look(play, "without it, at a follower", topic, on="broker 3")
    play.cluster.start(1)
    play.cluster.until_led(topic.name, by=2, isr=(1, 2, 3))
    play.cluster.until_committed(topic.name, 6, on=1)
    look(play, "back, at itself", topic, on="broker 1")
    produced_on(play, "back, at itself", topic, on="broker 1")
    play.ask("preferred", "ElectLeaders", 2, election((topic.name, [0])), on="broker 3")
    play.ask("preferred again", "ElectLeaders", 2, election((topic.name, [0])), on="broker 3")
    play.cluster.until_led(topic.name, by=1, isr=(1, 2, 3))
    produced_on(play, "leading again", topic, on="broker 1")
    look(play, "leading again", topic, on="broker 1")


@script(properties=CLUSTER)
def a_clean_stop(play: Play) -> None:
    goes_and_comes(play, kill=False)


@script(properties=CLUSTER)
def a_kill(play: Play) -> None:
    goes_and_comes(play, kill=True)


@script(properties=CLUSTER)
def records_that_only_the_leader_had(play: Play) -> None:
    """The records were acknowledged, but not committed: another leader writes others in their place."""
    topic = play.topic("a")
    play.write(topic.name, batch(2))
    for follower in (2, 3):
        play.cluster.pause(follower)
    # By the end of this case the followers' fetches, which the next batch would answer, have timed out.
    play.quietly("Fetch", 12, fetch((topic, 0, 2), min_bytes=1, max_wait_ms=2 * SHORT_MS))
    lost = [record(b"lost %d" % i, offset_delta=i) for i in range(5)]
    for _ in range(2):
        play.quietly("Produce", 9, produce((topic, 0, batch(lost)), acks=1))
    play.cluster.kill(1)
    for follower in (2, 3):
        play.cluster.resume(follower)
    play.cluster.until_led(topic.name, by=2, isr=(2, 3))
    play.ask("others", "Produce", 9, produce((topic, 0, batch(3))), on="broker 2")
    play.cluster.start(1)
    play.cluster.until_led(topic.name, by=2, isr=(1, 2, 3))
    play.cluster.until_committed(topic.name, 5, on=1)
    play.ask("what was cut off at itself", "Fetch", 12, fetch((topic, 0, 0)), on="broker 1")
    look(play, "at the leader", topic, on="broker 2")


@script(properties=CLUSTER)
def a_leader_that_hangs(play: Play) -> None:
    """When the broker wakes up, it believes that it leads, until it learns otherwise."""
    topic = play.topic("a")
    play.write(topic.name, batch(2))
    play.cluster.pause(1)
    play.cluster.until_led(topic.name, by=2, isr=(2, 3))
    play.ask("a batch", "Produce", 9, produce((topic, 0, batch())), on="broker 2")
    play.cluster.resume(1)
    play.cluster.until_led(topic.name, by=2, isr=(1, 2, 3))
    play.cluster.until_committed(topic.name, 3, on=1)
    look(play, "awake", topic, on="broker 1")


@script(properties=CLUSTER)
def one_after_the_other(play: Play) -> None:
    """Each broker leads in its turn, the last one alone."""
    topic = play.topic("a")
    play.write(topic.name, batch())
    for leader, isr in ((2, (2, 3)), (3, (3,))):
        play.cluster.stop(leader - 1)
        play.cluster.until_led(topic.name, by=leader, isr=isr)
        play.ask(f"a batch of {leader}", "Produce", 9, produce((topic, 0, batch())), on=f"broker {leader}")
    look(play, "the last one", topic, on="broker 3")
    for broker, isr in ((1, (1, 3)), (2, (1, 2, 3))):
        play.cluster.start(broker)
        play.cluster.until_led(topic.name, by=3, isr=isr)
    play.cluster.stop(3)
    play.cluster.until_led(topic.name, by=1, isr=(1, 2))
    look(play, "the first one again", topic, on="broker 1")

"""Produce while replicas are missing: acks, min.insync.replicas, and what happens to the records."""

from __future__ import annotations

from ..batches import batch
from ..cluster_properties import CLUSTER
from ..play import Play, script
from ..requests import fetch, list_offsets, produce
from .idempotence import sequenced


@script(properties=CLUSTER)
def one_follower_stopped(play: Play) -> None:
    """Two of three replicas are in sync."""
    topics = {least: play.topic(f"at-least-{least}", min_insync_replicas=str(least)) for least in (1, 2, 3)}
    play.cluster.stop(3)
    for topic in topics.values():
        play.cluster.until_led(topic.name, by=1, isr=(1, 2))
    for least, topic in topics.items():
        for acks in (-1, 1):
            for version in (9, 10, 13):
                asked = produce((topic, 0, batch(2)), acks=acks)
                play.ask(f"acks {acks}, {least} at least (v{version})", "Produce", version, asked)
        play.silent(f"acks 0, {least} at least", "Produce", 9, produce((topic, 0, batch()), acks=0))
        play.ask(f"a good and a bad one, {least}", "Produce", 9, produce((topic, 0, batch(crc=1))))
    asked = produce(*((topic, 0, batch()) for topic in topics.values()))
    play.ask("one request for all", "Produce", 13, asked)
    play.ask("a producer's first batch refused", "Produce", 9, produce((topics[3], 0, sequenced(0, 1))))
    play.cluster.start(3)
    for topic in topics.values():
        play.cluster.until_led(topic.name, by=1, isr=(1, 2, 3))
    play.ask("and again, with all in sync", "Produce", 9, produce((topics[3], 0, sequenced(0, 1))))
    for least, topic in topics.items():
        play.ask(f"all of them, {least} at least", "Fetch", 12, fetch((topic, 0, 0)))


@script(properties=CLUSTER)
def a_leader_alone(play: Play) -> None:
    """Records that aren't committed are stored, but nobody sees them."""
    topic = play.topic("a", min_insync_replicas="2")
    play.write(topic.name, batch(2))
    for broker in (2, 3):
        play.cluster.stop(broker)
    play.cluster.until_led(topic.name, by=1, isr=(1,))
    play.ask("acks -1", "Produce", 9, produce((topic, 0, batch())))
    play.ask("acks 1", "Produce", 9, produce((topic, 0, batch(3)), acks=1))
    for level in (0, 1):
        asked = fetch((topic, 0, 0), isolation_level=level)
        play.ask(f"fetched at level {level}", "Fetch", 12, asked)
        asked = list_offsets((topic.name, 0, -1), isolation_level=level)
        play.ask(f"the end at level {level}", "ListOffsets", 7, asked)
    asked = list_offsets((topic.name, 0, -1), replica_id=-2)
    play.ask("the end for a debugger", "ListOffsets", 7, asked)
    play.ask("fetched at the end", "Fetch", 12, fetch((topic, 0, 2)))
    play.ask("fetched beyond what is committed", "Fetch", 12, fetch((topic, 0, 3)))
    play.ask("fetched beyond the end", "Fetch", 12, fetch((topic, 0, 6)))
    for broker in (2, 3):
        play.cluster.start(broker)
    play.cluster.until_led(topic.name, by=1, isr=(1, 2, 3))
    play.ask("acks -1, with all in sync", "Produce", 9, produce((topic, 0, batch())))
    play.ask("all of it", "Fetch", 12, fetch((topic, 0, 0)))


@script(properties=CLUSTER)
def a_follower_that_hangs(play: Play) -> None:
    """The follower is in the ISR until its session ends. Requests that wait for it continue then, or time out
    before."""
    topic = play.topic("a", replicas=(1, 2), min_insync_replicas="2")
    other = play.topic("b", replicas=(1, 2))
    play.write(topic.name, batch())
    play.write(other.name, batch())
    play.cluster.pause(2)
    asked = produce((topic, 0, batch()), (other, 0, batch()), timeout_ms=100)
    play.ask("no time", "Produce", 9, asked)
    waiting = play.send(
        "it waits", "Produce", 9, produce((other, 0, batch()), timeout_ms=30_000), on="waiting"
    )
    for each in (topic, other):
        play.cluster.until_led(each.name, by=1, isr=(1,))
    play.receive(waiting, within_s=30)
    play.ask("it hangs still", "Produce", 9, produce((topic, 0, batch()), (other, 0, batch())))
    play.cluster.resume(2)
    play.cluster.until_led(topic.name, by=1, isr=(1, 2))
    play.ask("and again", "Produce", 9, produce((topic, 0, batch()), (other, 0, batch())))
    play.ask("all of it", "Fetch", 12, fetch((topic, 0, 0), (other, 0, 0)))

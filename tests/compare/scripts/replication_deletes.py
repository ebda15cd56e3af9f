"""DeleteRecords while replicas follow, hang or are down: the low watermark is the lowest of the live replicas."""

from __future__ import annotations

from ..batches import batch
from ..cluster_properties import CLUSTER
from ..play import Play, script
from ..requests import fetch, list_offsets
from ..scene import Topic
from .replication_followers import delete_records


def look(play: Play, when: str, topic: Topic, *brokers: int, committed: int = 6) -> None:
    for broker in brokers:
        on = f"broker {broker}"
        play.cluster.until_committed(topic.name, committed, on=broker)
        asked = fetch((topic, 0, 0))
        play.ask(f"{when}: from 0 of {on}", "Fetch", 12, asked, on=on)
        asked = fetch((topic, 0, 4))
        play.ask(f"{when}: from 4 of {on}", "Fetch", 12, asked, on=on)
        play.ask(f"{when}: the start by {on}", "ListOffsets", 7, list_offsets((topic.name, 0, -2)), on=on)


@script(properties=CLUSTER)
def deleted_everywhere(play: Play) -> None:
    topic = play.topic("a")
    play.write(topic.name, *(batch(2) for _ in range(4)))
    for offset in (2, 3, 1, 9, -2):
        play.ask(f"below {offset}", "DeleteRecords", 2, delete_records(topic, offset))
    look(play, "after it", topic, 1, 2, 3, committed=8)
    play.ask("all of them", "DeleteRecords", 2, delete_records(topic, -1))
    look(play, "without any", topic, 1, 2, 3, committed=8)
    play.ask("one more", "Fetch", 12, fetch((topic, 0, play.write(topic.name, batch()))))


@script(properties=CLUSTER)
def a_follower_that_hangs(play: Play) -> None:
    topic = play.topic("a")
    play.write(topic.name, batch(2), batch(2), batch(2))
    play.ask("all follow", "DeleteRecords", 2, delete_records(topic, 1))
    play.cluster.pause(3)
    play.ask("it hangs", "DeleteRecords", 2, delete_records(topic, 2, timeout_ms=100))
    play.ask("it hangs, no time", "DeleteRecords", 2, delete_records(topic, 3, timeout_ms=0))
    play.cluster.until_led(topic.name, by=1, isr=(1, 2))
    play.ask("it is fenced", "DeleteRecords", 2, delete_records(topic, 4))
    look(play, "it is fenced", topic, 1, 2)
    play.cluster.resume(3)
    play.cluster.until_led(topic.name, by=1, isr=(1, 2, 3))
    play.ask("it follows again", "DeleteRecords", 2, delete_records(topic, 4))
    look(play, "it follows again", topic, 3)


@script(properties=CLUSTER)
def with_a_leader_that_stops(play: Play) -> None:
    """The next leader's log begins where its predecessor's did."""
    topic = play.topic("a")
    play.write(topic.name, batch(2), batch(2), batch(2))
    play.ask("below 3", "DeleteRecords", 2, delete_records(topic, 3))
    play.cluster.stop(1)
    play.cluster.until_led(topic.name, by=2, isr=(2, 3))
    look(play, "at the next one", topic, 2, 3)
    play.ask("below 5", "DeleteRecords", 2, delete_records(topic, 5), on="broker 2")
    play.cluster.start(1)
    play.cluster.until_led(topic.name, by=2, isr=(1, 2, 3))
    play.ask("of all three", "DeleteRecords", 2, delete_records(topic, 5), on="broker 2")
    look(play, "at the one before", topic, 1)

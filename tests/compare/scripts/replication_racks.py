"""Fetch from a follower: which replica is named if the consumer gives its rack (KIP-392). The racks are a, b, a."""

from __future__ import annotations

from typing import Any

from ..batches import batch
from ..cluster_properties import CLUSTER
from ..play import LONG_MS, SHORT_MS, Play, script, versions
from ..requests import fetch


@script(properties=CLUSTER)
def preferred_read_replica(play: Play) -> None:
    # No rack has two replicas beside the leader's: Kafka would prefer the one that caught up last.
    topic, other = play.topic("a"), play.topic("b", replicas=(2, 1))
    for each in (topic, other):
        play.quietly(
            "Produce",
            9,
            {
                "acks": -1,
                "timeout_ms": 10_000,
                "topic_data": [
                    {"name": each.name, "partition_data": [{"index": 0, "records": batch(3)}]},
                ],
            },
            on=f"broker {1 if each is topic else 2}",
        )
        for broker in (1, 2, 3) if each is topic else (1, 2):
            play.cluster.until_committed(each.name, 3, on=broker)
    for rack in ("", "a", "b", "c"):
        for broker in (1, 2, 3):
            on = f"broker {broker}"
            for version in versions("Fetch"):
                asked = fetch((topic, 0, 0), (other, 0, 0), rack_id=rack)
                play.ask(f"rack {rack!r}, of {on} (v{version})", "Fetch", version, asked, on=on)
            for offset in (0, 2, 3, 4, -1):
                asked = fetch((topic, 0, offset), (other, 0, offset), rack_id=rack)
                play.ask(f"rack {rack!r}, offset {offset}, of {on}", "Fetch", 13, asked, on=on)
        asked = fetch((topic, 0, 3), (other, 0, 3), rack_id=rack, max_wait_ms=100, min_bytes=1)
        play.ask(f"rack {rack!r}, with a wait", "Fetch", 13, asked)


@script(properties=CLUSTER)
def a_preferred_one_that_stops(play: Play) -> None:
    topic = play.topic("a")
    play.write(topic.name, batch(3))
    play.cluster.until_committed(topic.name, 3, on=2)
    play.ask("it is there", "Fetch", 13, fetch((topic, 0, 0), rack_id="b"))
    play.cluster.stop(2)
    play.cluster.until_led(topic.name, by=1, isr=(1, 3))
    play.ask("it has gone", "Fetch", 13, fetch((topic, 0, 0), rack_id="b"))
    play.cluster.start(2)
    play.cluster.until_led(topic.name, by=1, isr=(1, 2, 3))
    play.cluster.until_committed(topic.name, 3, on=2)
    play.ask("it is there again", "Fetch", 13, fetch((topic, 0, 0), rack_id="b"))
    play.ask("and serves", "Fetch", 13, fetch((topic, 0, 0), rack_id="b"), on="broker 2")


@script(properties=CLUSTER)
def amid_a_session(play: Play) -> None:
    """An answer that sends the consumer elsewhere doesn't wait, and is listed each time."""
    topic = play.topic("a")
    play.write(topic.name, batch(3))
    play.cluster.until_committed(topic.name, 3, on=2)
    play.cluster.stop(2)
    play.cluster.until_led(topic.name, by=1, isr=(1, 3))
    how: dict[str, Any] = {"rack_id": "b", "min_bytes": 1}
    opened = play.ask("opened while it is gone", "Fetch", 13, fetch((topic, 0, 0), session_epoch=0, **how))
    how["session_id"] = opened.session_id
    asked = fetch((topic, 0, 3), session_epoch=1, max_wait_ms=SHORT_MS, **how)
    play.ask("at the end, while it is gone", "Fetch", 13, asked)
    play.cluster.start(2)
    play.cluster.until_led(topic.name, by=1, isr=(1, 2, 3))
    for epoch, times in ((2, "once"), (3, "twice")):
        asked = fetch(session_epoch=epoch, max_wait_ms=LONG_MS, **how)
        play.ask(f"it is there again, asked {times}", "Fetch", 13, asked)
    play.cluster.stop(2)
    play.cluster.until_led(topic.name, by=1, isr=(1, 3))
    asked = fetch(session_epoch=4, max_wait_ms=SHORT_MS, **how)
    play.ask("it has gone once more", "Fetch", 13, asked)

"""An idempotent producer while too few replicas are in sync: which batches are stored, refused or out of order."""

from __future__ import annotations

from ..batches import batch
from ..cluster_properties import CLUSTER
from ..play import Play, script
from ..requests import fetch, produce
from ..scene import Topic
from .idempotence import sequenced


def sent(play: Play, case: str, topic: Topic, sequence: int, *, acks: int = -1, epoch: int = 0) -> None:
    data = sequenced(sequence, 1, epoch=epoch)
    play.ask(case, "Produce", 9, produce((topic, 0, data), acks=acks))


@script(properties=CLUSTER)
def refused_while_too_few_are_in_sync(play: Play) -> None:
    """The number of replicas in sync is checked before duplicates. So the retry of a stored batch may be refused too,
    and counts as a duplicate only once the replicas are back. A batch after a refused one is then out of order."""
    topic = play.topic("a", min_insync_replicas="2")
    play.write(topic.name, sequenced(0), sequenced(1))
    for broker in (2, 3):
        play.cluster.stop(broker)
    play.cluster.until_led(topic.name, by=1, isr=(1,))
    sent(play, "what is stored, again", topic, 1)
    sent(play, "what is stored, again, with acks 1", topic, 1, acks=1)
    sent(play, "the next one", topic, 2)
    sent(play, "a gap", topic, 7)
    sent(play, "a new epoch", topic, 0, epoch=1)
    for broker in (2, 3):
        play.cluster.start(broker)
    play.cluster.until_led(topic.name, by=1, isr=(1, 2, 3))
    sent(play, "back: what was in flight behind the next one", topic, 3)
    sent(play, "back: what is stored, again", topic, 1)
    sent(play, "back: the next one", topic, 2)
    sent(play, "back: what was in flight behind it, again", topic, 3)


@script(properties=CLUSTER)
def stored_without_having_been_told(play: Play) -> None:
    """The answer never came, or was an error, but the batch is stored. Only its epoch and sequence identify it: if a
    producer numbers it anew in a new epoch, it is stored twice."""
    topic = play.topic("a", replicas=(1, 2), min_insync_replicas="2")
    play.write(topic.name, sequenced(0))
    play.cluster.pause(2)
    play.ask("stored in vain", "Produce", 9, produce((topic, 0, sequenced(1)), timeout_ms=100))
    play.ask("again, in vain", "Produce", 9, produce((topic, 0, sequenced(1)), timeout_ms=100))
    play.cluster.until_led(topic.name, by=1, isr=(1,))
    sent(play, "again, alone", topic, 1)
    play.cluster.resume(2)
    play.cluster.until_led(topic.name, by=1, isr=(1, 2))
    sent(play, "again, in sync", topic, 1)
    sent(play, "in a new epoch", topic, 0, epoch=1)
    sent(play, "in the one before", topic, 1)
    play.ask("somebody else's", "Produce", 9, produce((topic, 0, batch())))
    play.ask("all of it", "Fetch", 12, fetch((topic, 0, 0)))

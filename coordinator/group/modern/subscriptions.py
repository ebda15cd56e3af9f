"""How often the topics of a group are subscribed to (Kafka: `SubscriptionCount`)."""

from __future__ import annotations

from typing import NamedTuple


class Subscribers(NamedTuple):
    """How a topic is subscribed to: by how many members' names, and by how many regular expressions."""

    by_name: int = 0
    by_regex: int = 0


NOBODY = Subscribers()

Subscriptions = dict[str, Subscribers]
"""By topic; a topic that nobody subscribes to isn't in it."""


def count_subscribers(counts: Subscriptions, topic: str, *, by_name: int = 0, by_regex: int = 0) -> None:
    """Add so many subscribers of a topic; who subtracts the last one takes the topic out."""
    old = counts.get(topic, NOBODY)
    new = Subscribers(max(old.by_name + by_name, 0), max(old.by_regex + by_regex, 0))
    if new == NOBODY:
        counts.pop(topic, None)
    else:
        counts[topic] = new

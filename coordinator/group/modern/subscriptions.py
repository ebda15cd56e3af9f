"""How often the topics of a group are subscribed to (Kafka: `SubscriptionCount`)."""

from __future__ import annotations

from collections.abc import Mapping
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


def is_homogeneous(regexes: Mapping[str, int], topics: Subscriptions, members: int) -> bool:
    """Whether all members subscribe to the same, as far as it can be told cheaply. `regexes`: how many of them
    subscribe to each regular expression."""
    if not regexes:
        return all(count.by_name == members for count in topics.values())
    if next(iter(regexes.values())) != members:
        return False
    return all(count.by_regex == 1 and count.by_name == 0 for count in topics.values())

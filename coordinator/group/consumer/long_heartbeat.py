"""Heartbeats that are much to decide: a member of thousands of topics or partitions, or of a large group."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain

from coordinator.group.classic.group import ClassicGroup
from coordinator.group.consumer.decision import Decision
from coordinator.group.deferred import DeferredHeartbeat
from coordinator.group.known_topics import KnownTopics, partitions_of
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatResponse

MOST_IN_PASSING = 10_000
"""What is decided in passing: some 10 ms, the unit being about a microsecond."""

_PER_TOPIC, _PER_PARTITION, _PER_MEMBER, _PER_SUBSCRIPTION = 80, 8, 40, 1
_PER_CHARACTER = 10
"""Of a regular expression that nobody subscribes to yet: it is compiled, to see whether it makes sense."""
_PER_TAKEN_OVER, _PER_BYTE = 150, 2
"""Of a member of a classic group: itself, and what it subscribes to and is assigned, a partition being 4 bytes."""


def is_little(decision: Decision, names: Sequence[str], regex: str, topics: KnownTopics) -> bool:
    """Whether it is decided in passing: by what the group and the request hold, at a cost far below that."""
    group = decision.group
    work = len(regex) * _PER_CHARACTER if regex and not group.regexes[regex] else 0
    return _is_little(work, len(group.members) + 1, group.topics, names, topics)


def is_little_to_take_over(
    classic: ClassicGroup, names: Sequence[str], regex: str, topics: KnownTopics
) -> bool:
    """The same of a heartbeat that has a classic group go over to the consumer protocol."""
    work = len(regex) * _PER_CHARACTER + len(classic.members) * _PER_TAKEN_OVER
    if work > MOST_IN_PASSING:
        return False
    for member in classic.members.values():
        work += len(member.assignment) * _PER_BYTE
        work += sum(len(metadata) for _, metadata in member.protocols) * _PER_BYTE
    return _is_little(work, len(classic.members) + 1, classic.subscribed_topics or (), names, topics)


def _is_little(
    work: int, members: int, subscribed: Collection[str], names: Sequence[str], topics: KnownTopics
) -> bool:
    count = len(subscribed) + len(names)
    work += count * (_PER_TOPIC + members * _PER_SUBSCRIPTION) + members * _PER_MEMBER
    if work > MOST_IN_PASSING:
        return False
    work += partitions_of(chain(subscribed, names), topics) * _PER_PARTITION
    return work <= MOST_IN_PASSING


class LongHeartbeat(DeferredHeartbeat[ConsumerGroupHeartbeatResponse]):
    """One that waits to be decided."""

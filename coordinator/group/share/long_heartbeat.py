"""Heartbeats of share groups that are much to decide: of thousands of topics or partitions, or of a large group."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain

from coordinator.group.deferred import DeferredHeartbeat
from coordinator.group.known_topics import KnownTopics, partitions_of
from coordinator.group.share.group import ShareGroup
from protocol.messages.groups_share import ShareGroupHeartbeatResponse

MOST_OF_SHARES_IN_PASSING = 10_000
"""What is decided in passing: some 10 ms, the unit being about a microsecond."""

_PER_TOPIC, _PER_PARTITION, _PER_MEMBER, _PER_SUBSCRIPTION = 60, 16, 40, 2


def is_little(group: ShareGroup, names: Collection[str], topics: KnownTopics) -> bool:
    """Whether it is decided in passing: by what the group and the request hold, at a cost far below that."""
    members = len(group.members) + 1
    state = group.state_partitions
    with_state = 0 if state is None else len(state.initialized) + len(state.initializing)
    work = (len(group.topics) + len(names) + with_state) * (_PER_TOPIC + members * _PER_SUBSCRIPTION)
    work += members * _PER_MEMBER
    if work > MOST_OF_SHARES_IN_PASSING:
        return False
    work += partitions_of(chain(group.topics, names), topics) * _PER_PARTITION
    return work <= MOST_OF_SHARES_IN_PASSING


class LongShareHeartbeat(DeferredHeartbeat[ShareGroupHeartbeatResponse]):
    """One that waits to be decided."""

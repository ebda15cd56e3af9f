"""What the group coordinator is told by the broker: who asks, and which topics there are (Kafka:
`CoordinatorMetadataImage`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, TypeAlias

MayDescribe: TypeAlias = Callable[[str], bool]
"""Whether somebody may know of a topic by its name."""


class Client(NamedTuple):
    """Who sent a request. `host` is its address with a slash before it, as Kafka records it."""

    client_id: str
    host: str
    api_version: int
    may_describe: MayDescribe


class KnownTopic(NamedTuple):
    """One topic. `racks` are those of each partition's replicas, as far as they have any."""

    name: str
    topic_id: bytes
    racks: tuple[tuple[str, ...], ...]

    @property
    def partition_count(self) -> int:
        return len(self.racks)


class KnownTopics(Protocol):
    """The cluster's topics as they are now."""

    @property
    def version(self) -> int:
        """The offset in the metadata log that this is the state of."""
        ...

    def by_name(self, name: str) -> KnownTopic | None: ...

    def by_id(self, topic_id: bytes) -> KnownTopic | None: ...

    def names(self) -> Iterable[str]: ...


def partitions_of(names: Iterable[str], topics: KnownTopics) -> int:
    """How many the topics of these names have that there are."""
    count = 0
    for name in names:
        topic = topics.by_name(name)
        if topic is not None:
            count += topic.partition_count
    return count

"""The interface between the group coordinator and the broker: clients, known topics (Kafka:
`CoordinatorMetadataImage`), and deferred decisions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

MayDescribe: TypeAlias = Callable[[str], bool]
"""True if the client may know of the topic with this name."""


class Client(NamedTuple):
    """The sender of a request. `host` is its address with a slash before it, as Kafka records it."""

    client_id: str
    host: str
    api_version: int
    may_describe: MayDescribe


class KnownTopic(NamedTuple):
    """One topic. `racks` holds, for each partition, the racks of its replicas, as far as they have any."""

    name: str
    topic_id: bytes
    racks: tuple[tuple[str, ...], ...]

    @property
    def partition_count(self) -> int:
        return len(self.racks)


class KnownTopics(Protocol):
    """The cluster's current topics."""

    @property
    def version(self) -> int:
        """The offset in the metadata log of this state."""
        ...

    def by_name(self, name: str) -> KnownTopic | None: ...

    def by_id(self, topic_id: bytes) -> KnownTopic | None: ...

    def names(self) -> Iterable[str]: ...


def partitions_of(names: Iterable[str], topics: KnownTopics) -> int:
    """The number of partitions of those of these topics that exist."""
    count = 0
    for name in names:
        topic = topics.by_name(name)
        if topic is not None:
            count += topic.partition_count
    return count


# --- decisions that take long: made beside the loop, see `shard_parts.py` -------------------------------------------

A = TypeVar("A")

MOST_TRIES = 10
"""The most tries for one decision. Each change of the group or its topics meanwhile costs one."""


class Deferred(ABC, Generic[A]):
    """A request whose decision takes long, so that part of the work is done beside the loop first."""

    @abstractmethod
    def decide(self) -> None:
        """Decide, on any thread. Raises nothing: `settle` does."""

    @abstractmethod
    def settle(self) -> A | None:
        """Return the answer, on the loop, or None if the request has to begin again. Raises KafkaError."""

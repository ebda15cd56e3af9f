"""What goes between the group coordinator and the broker: who asks, which topics there are (Kafka:
`CoordinatorMetadataImage`), and what waits to be decided.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

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


# --- what is much to decide: beside the loop, see `parts.py` -------------------------------------------------

A = TypeVar("A")

MOST_TRIES = 10
"""So often a decision is made anew since the group has changed meanwhile: members that left or were late, topics."""


class Deferred(ABC, Generic[A]):
    """One that isn't answered in passing: part of the work is done beside the loop first."""

    @abstractmethod
    def decide(self) -> None:
        """In whatever thread. Raises nothing: `settle` does."""

    @abstractmethod
    def settle(self) -> A | None:
        """On the loop: the answer, or None where the request has to begin again. Raises KafkaError, as in passing."""

"""What the group coordinator needs to know of topics (Kafka: `CoordinatorMetadataImage`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol


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

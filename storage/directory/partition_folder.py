"""A partition's folder as a start finds it, before anybody opens its log."""

from typing import NamedTuple


class PartitionFolder(NamedTuple):
    topic: str
    partition: int
    path: str
    topic_id: str | None
    """Its text form; None where partition.metadata is missing or makes no sense."""

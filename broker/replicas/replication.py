"""What the leaders of one broker have in common where their partitions have other replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.replicas.in_sync_replicas import LeaderAndIsr, WantedIsr
    from protocol.errors import KafkaError

PartitionKey: TypeAlias = "tuple[bytes, int]"
"""Topic id, number."""

Alter: TypeAlias = "Callable[[PartitionKey, WantedIsr, Callable[[LeaderAndIsr | KafkaError], None]], None]"
"""`AlterPartitionManager.submit`."""


class Replication(NamedTuple):
    """Beside what each leader knows of its own partition."""

    image: ClusterImage
    now_ms: Callable[[], int]
    max_lag_ms: Callable[[], int]
    """`replica.lag.time.max.ms`."""
    own_epoch: Callable[[], int]
    """The broker's."""
    alter: Alter

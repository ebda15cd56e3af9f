"""What becomes of a broker, for whoever decides what becomes of its partitions.

Source: the arguments of `ReplicationControlManager.generateLeaderAndIsrUpdates`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple, TypeAlias

from broker.controller.image import ClusterImage
from protocol.waiting import Waiting
from protocol.wire.schema import Message


class BrokerChange(NamedTuple):
    """By broker ids; None where there is none."""

    removed: int | None = None
    """It leaves the ISRs, and leads nothing any more (Kafka: brokerToRemove)."""
    added: int | None = None
    """It may lead, though the image still has it fenced (brokerToAdd)."""
    unclean: int | None = None
    """It went without a clean shutdown, and may lack what it had: it leaves ISRs and ELRs
    (brokerWithUncleanShutdown)."""
    directories: Collection[bytes] | None = None
    """Of `removed`: what it has in these alone. None: wherever it is."""


LeaderAndIsrUpdates: TypeAlias = Callable[[ClusterImage, BrokerChange], Waiting[list[Message]]]
"""The changes of partitions that follow."""

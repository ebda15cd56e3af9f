"""The nodes that are asked, wherever they run, also about leaders and coordinators."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from protocol.errors import Error
from protocol.messages.metadata import FindCoordinatorRequest, MetadataRequest

GROUP, TRANSACTION, SHARE = 0, 1, 2
INTERNAL: Mapping[int, str] = {
    GROUP: "__consumer_offsets",
    TRANSACTION: "__transaction_state",
    SHARE: "__share_group_state",
}
TRIES = 600
NOT_YET = frozenset(
    {
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.NOT_COORDINATOR,
        Error.LEADER_NOT_AVAILABLE,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.FENCED_LEADER_EPOCH,
        Error.UNKNOWN_LEADER_EPOCH,
        Error.OFFSET_NOT_AVAILABLE,
        Error.REQUEST_TIMED_OUT,
        Error.NETWORK_EXCEPTION,
        Error.BROKER_NOT_AVAILABLE,
    }
)
"""Passing errors: ask again."""


class Unanswered(Exception):
    """The node went away meanwhile. The request may have been carried out or not."""


class Nodes(ABC):
    """`log_dirs`: those of each node."""

    def __init__(self, broker_ids: list[int], luck: random.Random, log_dirs: Mapping[int, list[str]]) -> None:
        self.broker_ids = broker_ids
        self.luck = luck
        self.log_dirs = log_dirs
        self.known: dict[str, int] = {}
        """The topics of the last answer, with their numbers of partitions."""

    @abstractmethod
    async def ask(self, request: Any, version: int, node_id: int | None = None) -> Any:
        """Ask a node, or any if none is named. Raises Unanswered."""

    @abstractmethod
    async def pause(self, seconds: float) -> None: ...

    @abstractmethod
    def now_ms(self) -> int: ...

    @property
    def anyone(self) -> int:
        return self.luck.choice(self.broker_ids)

    async def topics(self) -> dict[str, Any]:
        """Return the topics from Metadata, by name."""
        answer = await self.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)
        self.known = {topic.name: len(topic.partitions) for topic in answer.topics}
        return {topic.name: topic for topic in answer.topics}

    async def leader_of(self, topic: str, index: int) -> int:
        """Return the leader, or anyone if there is none."""
        if len(self.broker_ids) == 1:
            return self.broker_ids[0]
        known = (await self.topics()).get(topic)
        for partition in () if known is None else known.partitions:
            if partition.partition_index == index and partition.leader_id >= 0:
                return int(partition.leader_id)
        return self.anyone

    async def coordinator_of(self, key: str, kind: int) -> int:
        """Return the coordinator, or anyone. The topic for this kind is created if it doesn't exist."""
        answer = await self.ask(FindCoordinatorRequest(coordinator_keys=[key], key_type=kind), 6)
        node_id = int(answer.coordinators[0].node_id)
        return node_id if node_id >= 0 else self.anyone

    async def until_coordinated(self, key: str, kind: int) -> None:
        for _ in range(TRIES):
            answer = await self.ask(FindCoordinatorRequest(coordinator_keys=[key], key_type=kind), 6)
            if answer.coordinators[0].error_code == Error.NONE:
                return
            await self.pause(0.05)
        raise AssertionError(f"{key} has no coordinator")

"""A member of the classic protocol that joins a consumer group, where that is much to decide."""

from __future__ import annotations

from collections.abc import Callable

from coordinator.group.consumer.decision import Decision
from coordinator.group.deferred import DeferredDecision
from coordinator.group.parts import ShardParts
from protocol.messages.groups import JoinGroupResponse


class LongJoin(DeferredDecision[JoinGroupResponse]):
    """`joined` is told once it is written."""

    def __init__(
        self,
        parts: ShardParts,
        decision: Decision,
        decide: Callable[[], JoinGroupResponse],
        joined: Callable[[], None],
    ) -> None:
        super().__init__(parts, decision, decide)
        self._joined = joined

    def _written(self) -> None:
        self._joined()

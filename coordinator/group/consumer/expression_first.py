"""The heartbeat that has a group go over to the consumer protocol, with an expression that is much to compile.

Such a heartbeat is decided in passing (`heartbeats.py`), so its expression is compiled beforehand, beside the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.group.consumer.deferred import Deferred
from coordinator.group.consumer.regexes import Regexes, checked
from protocol.errors import KafkaError
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from coordinator.java.re2 import Pattern


class ExpressionFirst(Deferred[ConsumerGroupHeartbeatResponse]):
    """It has to begin again once it is settled."""

    def __init__(self, regexes: Regexes, regex: str) -> None:
        self._regexes = regexes
        self._regex = regex
        self._found: Pattern | KafkaError | None = None

    def decide(self) -> None:
        try:
            self._found = checked(self._regex)
        except KafkaError as error:
            self._found = error

    def settle(self) -> None:
        assert self._found is not None
        self._regexes.expect(self._regex, self._found)

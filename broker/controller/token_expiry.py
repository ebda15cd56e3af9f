"""Removing expired delegation tokens by the controller's clock, even if there is no secret any more.

Source: Kafka's `DelegationTokenControlManager.sweepExpiredDelegationTokens`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker.controller.controller import ControllerResult
from protocol.messages.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord
from protocol.waiting import Pause, turn

if TYPE_CHECKING:
    from broker.controller.controller import Controller
    from broker.controller.image import ClusterImage
    from broker.controller.metadata_log import MetadataLog
    from broker.environment.scheduler import Clock
    from protocol.wire.schema import Message

log = logging.getLogger("barnabas.controller")

MOST_REMOVED = 1_000
"""The most tokens to remove at a time, as in Kafka. The rest follows at once."""


def has_ended(token: DelegationTokenRecord, now_ms: int) -> bool:
    """True if the token has expired. In the last millisecond it is still valid."""
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


class TokenExpiry:
    """Removes expired tokens. Called every `delegation.token.expiry.check.interval.ms`."""

    def __init__(self, metadata: MetadataLog, controller: Controller, clock: Clock) -> None:
        self._metadata = metadata
        self._controller = controller
        self._now_ms = clock.now_ms

    def __call__(self) -> None:
        if next(self._metadata.written.kept.of_type(DelegationTokenRecord), None) is not None:
            self._controller.begin(self._remove())

    async def _remove(self) -> None:
        while await self._controller.submit_own(self._decide, log, "can't remove expired tokens") is True:
            await turn()

    async def _decide(self, image: ClusterImage) -> ControllerResult[bool]:
        """Remove expired tokens. The answer is True if there may be more."""
        now_ms = self._now_ms()
        removed: list[Message] = []
        pause = Pause()
        for token in [*image.kept.of_type(DelegationTokenRecord)]:
            if pause.is_due():
                await turn()
            assert isinstance(token, DelegationTokenRecord)
            if has_ended(token, now_ms):
                log.info("the delegation token %s of %s has expired", token.token_id, token.owner)
                removed.append(RemoveDelegationTokenRecord(token_id=token.token_id))
                if len(removed) == MOST_REMOVED:
                    break
        more = len(removed) == MOST_REMOVED
        return ControllerResult(removed, lambda failure: more and failure is None, may_split=True)

"""The controller's own broker leaves a cluster that has others: they lead what it led, and know it, before it goes."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from broker.controller.own_broker import leaving
from broker.controller.partition_updates import leader_and_isr_updates
from broker.fault_handler import Milestone
from broker.peers.other_brokers import OtherBrokers

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.controller.controller import Controller
    from broker.controller.partition_terms import OwnSettings
    from broker.opened import Opened
    from protocol.errors import KafkaError

log = logging.getLogger("barnabas.server")

MOST_LEAVE_S = 5.0
"""How long a stop waits for others. Kafka's brokers wait five minutes for a controller that may come back; this one is
here."""
CHECK_S = 0.02


class ControlledShutdown:
    """Of one run; `others` are whom the broker speaks to meanwhile."""

    def __init__(
        self,
        opened: Opened,
        controller: Controller,
        settings: Callable[[], OwnSettings],
        others_know: Callable[[], bool],
    ) -> None:
        """`others_know`: whether every active broker knows the metadata as it is written now."""
        image = opened.metadata.image
        self.others = OtherBrokers(opened.config, opened.environment, image, opened.faults)
        self._broker = opened.incarnation
        self._controller = controller
        self._scheduler = opened.environment.scheduler
        self._settings = settings
        self._others_know = others_know
        self._has_left = Milestone(opened.faults)
        self._until_s = 0.0

    async def leave(self) -> None:
        """Returns once others know, or it isn't waited for."""
        self._until_s = self._scheduler.time() + MOST_LEAVE_S
        updates = partial(leader_and_isr_updates, own=self._settings())
        self._controller.submit_own(
            lambda image: leaving(image, self._broker, updates), self._written, self._failed
        )
        await self._has_left.wait()

    def _written(self, failure: KafkaError | None) -> None:
        if failure is not None:
            log.warning("others can't be told that this broker leaves: %s", failure)
            self._has_left.reached()
        else:
            self._check()

    def _failed(self, error: BaseException) -> None:
        log.error("what becomes of what this broker leads can't be decided", exc_info=error)
        self._has_left.reached()

    def _check(self) -> None:
        if self._others_know() or self._scheduler.time() > self._until_s:
            self._has_left.reached()
        else:
            self._scheduler.call_later(CHECK_S, self._check)

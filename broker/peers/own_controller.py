"""The controller in this process, of whose cluster others are, too: its broker asks it as it would another node's,
without a connection, and leaves once others lead what it led, and know it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker.controller.own_broker import leaving
from broker.controller.partition_changes import leader_and_isr_updates
from broker.controller.partition_requests import MEMBERS_HAVE_EPOCHS_SINCE, altered_partitions
from broker.fault_handler import FaultHandler, Milestone
from protocol.errors import Error, KafkaError
from protocol.messages.broker_to_controller import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    from broker.controller.controller import Controller, ControllerResult
    from broker.controller.image import ClusterImage
    from broker.controller.partition_changes import OwnSettings
    from broker.controller.registration import BrokerIncarnation
    from broker.environment.scheduler import Scheduler
    from broker.peers.other_brokers import OtherBrokers
    from broker.peers.peer import PeerReply
    from protocol.waiting import Waiting
    from protocol.wire.schema import Message

server_log = logging.getLogger("barnabas.server")


log = logging.getLogger("barnabas.peers")


class OwnController:
    """In place of a `ControllerChannel`: one request at a time, answered in a later turn."""

    def __init__(self, controller: Controller, scheduler: Scheduler, settings: OwnSettings) -> None:
        self._controller = controller
        self._scheduler = scheduler
        self._settings = settings
        self._reply: PeerReply | None = None
        self.trouble = ""

    @property
    def is_busy(self) -> bool:
        return self._reply is not None

    def ask(self, request: Message, reply: PeerReply, *, timeout_ms: int | None) -> None:
        """`reply` is told the answer, or KafkaError: UNSUPPORTED_VERSION for what isn't decided here, and whatever the
        controller refuses the whole of it for. It takes no longer than the disk does."""
        assert self._reply is None, "one request at a time"
        self._reply = reply
        self._scheduler.call_soon(self._submit, request)

    def stop(self) -> None:
        """Nobody is told of anything any more."""
        self._reply = None

    def _submit(self, request: Message) -> None:
        if not isinstance(request, AlterPartitionRequest):
            self._answered(KafkaError(Error.UNSUPPORTED_VERSION))
            return

        def decide(image: ClusterImage) -> Waiting[ControllerResult[AlterPartitionResponse]]:
            return altered_partitions(image, request, MEMBERS_HAVE_EPOCHS_SINCE, self._settings)

        self._controller.submit_own(decide, self._answered_later, self._failed)

    def _answered_later(self, answer: Message | KafkaError) -> None:
        self._scheduler.call_soon(partial(self._answered, answer))

    def _failed(self, error: BaseException) -> None:
        log.error("what a leader wants can't be decided", exc_info=error)
        self._answered_later(KafkaError(Error.UNKNOWN_SERVER_ERROR, str(error)))

    def _answered(self, answer: Message | KafkaError) -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            reply(answer)


# --- Controlled shutdown ------------------------------------------------------------------------------------


MOST_LEAVE_S = 5.0
"""How long a stop waits for others. Kafka's brokers wait five minutes for a controller that may come back; this one is
here."""
CHECK_S = 0.02


class ControlledShutdown:
    """Of one run; `others` are whom the broker speaks to meanwhile."""

    def __init__(
        self,
        broker: BrokerIncarnation,
        controller: Controller,
        others: OtherBrokers,
        scheduler: Scheduler,
        faults: FaultHandler,
        settings: OwnSettings,
        others_know: Callable[[], bool],
    ) -> None:
        """`others_know`: whether every active broker knows the metadata as it is written now."""
        self.others = others
        self._broker = broker
        self._controller = controller
        self._scheduler = scheduler
        self._settings = settings
        self._others_know = others_know
        self._has_left = Milestone(faults)
        self._until_s = 0.0

    async def leave(self) -> None:
        """Returns once others know, or it isn't waited for."""
        self._until_s = self._scheduler.time() + MOST_LEAVE_S
        updates = partial(leader_and_isr_updates, own=self._settings)
        self._controller.submit_own(
            lambda image: leaving(image, self._broker, updates), self._written, self._failed
        )
        await self._has_left.wait()

    def _written(self, failure: KafkaError | None) -> None:
        if failure is not None:
            server_log.warning("others can't be told that this broker leaves: %s", failure)
            self._has_left.reached()
        else:
            self._check()

    def _failed(self, error: BaseException) -> None:
        server_log.error("what becomes of what this broker leads can't be decided", exc_info=error)
        self._has_left.reached()

    def _check(self) -> None:
        if self._others_know() or self._scheduler.time() > self._until_s:
            self._has_left.reached()
        else:
            self._scheduler.call_later(CHECK_S, self._check)

"""The controller in this process: its broker asks it as it would another node's, without a connection."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker.controller.alter_partition import MEMBERS_HAVE_EPOCHS_SINCE, altered_partitions
from protocol.errors import Error, KafkaError
from protocol.messages.broker_to_controller import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    from broker.controller.controller import Controller
    from broker.controller.controller_result import ControllerResult
    from broker.controller.image import ClusterImage
    from broker.controller.partition_terms import OwnSettings
    from broker.environment.scheduler import Scheduler
    from broker.peers.peer import PeerReply
    from protocol.waiting import Waiting
    from protocol.wire.schema import Message

log = logging.getLogger("barnabas.peers")


class OwnController:
    """In place of a `ControllerChannel`: one request at a time, answered in a later turn."""

    def __init__(
        self, controller: Controller, scheduler: Scheduler, settings: Callable[[], OwnSettings]
    ) -> None:
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
            return altered_partitions(image, request, MEMBERS_HAVE_EPOCHS_SINCE, self._settings())

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

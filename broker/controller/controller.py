"""The controller: who wants the metadata changed submits a request, and is answered once the change is committed.

On one node the controller is here, and commits what its disk has: the answer comes behind a sync, and within `submit`
where nothing is changed. Where another node has it, a request of a client goes there as a whole (Kafka:
`ForwardingManager`, in an Envelope), and is decided, authorized and answered there by the same handlers: `submit`
answers NOT_CONTROLLER on a node that isn't the leader of the metadata log. Such a node is an observer: it applies what
it fetched by `MetadataLog.catch_up`.
Source: QuorumController.ControllerWriteEvent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from broker.controller.controller_result import ControllerResult
from broker.controller.image import ClusterImage
from broker.controller.metadata_log import MetadataLog
from protocol.errors import Error, KafkaError

logger = logging.getLogger("barnabas.controller")

T = TypeVar("T")


class Controller:
    """Takes decisions to the metadata log."""

    __slots__ = ("_metadata",)

    def __init__(self, metadata: MetadataLog) -> None:
        self._metadata = metadata

    def submit(
        self, decide: Callable[[ClusterImage], ControllerResult[T]], reply: Callable[[T | KafkaError], None]
    ) -> None:
        """Decide by the metadata as it is written now, write the decision, and reply once that is committed.

        `decide` is pure, and raises KafkaError where the request as a whole is refused. `reply` is called once, in this
        call where it can be: with the result's answer, or with a KafkaError in place of it where the whole request is
        given up, as one is whose records are too many or too large (UNKNOWN_SERVER_ERROR): then even what was refused
        for another reason is told that (Kafka: `AbstractRequest.getErrorResponse`).
        """
        metadata = self._metadata
        if not metadata.is_leader:
            reply(KafkaError(Error.NOT_CONTROLLER))
            return
        try:
            result = decide(metadata.written)
        except KafkaError as refusal:
            reply(refusal)
            return
        try:
            if result.records:
                metadata.append(result.records, may_split=result.may_split)
        except KafkaError as failure:
            logger.error("a change can't be written to the metadata log: %s", failure)
            told = KafkaError(failure.error)  # the disk's own words are for the log alone
            reply(told if told.error is Error.UNKNOWN_SERVER_ERROR else result.answer(told))
            return
        # What changes nothing may rest on what is written and not yet committed: it waits for that.
        metadata.when_committed(metadata.next_offset, lambda error: reply(result.answer(error)))

"""Blocks of producer ids, recorded in the cluster's metadata so that none is given out twice."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker.controller.producer_id_allocation import allocate_producer_ids
from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.controller.controller import Controller
    from broker.controller.registration import BrokerIncarnation

log = logging.getLogger("barnabas.coordination")


class ProducerIdBlocks:
    """Asks the controller for blocks (Kafka: `RPCProducerIdManager`)."""

    def __init__(self, controller: Controller, broker: BrokerIncarnation) -> None:
        self._controller = controller
        self._broker = broker

    def allocate(self, size: int, then: Callable[[int | KafkaError], None]) -> None:
        """`then` is told the first id of a new block once it is recorded, and so on the disk: ids that the power takes
        back would be given out twice. Or a KafkaError, where none can be recorded."""

        def answered(first: int | KafkaError) -> None:
            if isinstance(first, KafkaError):
                log.error("no producer ids can be recorded in the metadata log: %s", first)
            then(first)

        def failed(error: BaseException) -> None:
            log.error("a block of producer ids can't be decided", exc_info=error)
            answered(KafkaError(Error.UNKNOWN_SERVER_ERROR, str(error)))

        self._controller.submit_own(
            lambda image: allocate_producer_ids(image, self._broker, size), answered, failed
        )

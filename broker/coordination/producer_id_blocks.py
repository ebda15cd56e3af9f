"""Blocks of producer ids, recorded in the cluster's metadata so that none is given out twice."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker.controller.controller_result import ControllerResult
from protocol.errors import Error, KafkaError
from protocol.messages.metadata_records import ProducerIdsRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.controller.controller import Controller
    from broker.controller.image import ClusterImage
    from broker.controller.registration import BrokerIncarnation

LAST_PRODUCER_ID = (1 << 63) - 1

log = logging.getLogger("barnabas.coordination")


class ProducerIdBlocks:
    """Asks the controller for blocks (Kafka: `RPCProducerIdManager`, `ProducerIdControlManager`)."""

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

        self._controller.submit_own(lambda image: self._decide(image, size), answered, failed)

    def _decide(self, image: ClusterImage, size: int) -> ControllerResult[int | KafkaError]:
        first = image.next_producer_id
        if first > LAST_PRODUCER_ID - size:
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR, f"there are no producer ids left behind {first}")
        record = ProducerIdsRecord(
            broker_id=self._broker.node_id,
            broker_epoch=self._broker.broker_epoch,
            next_producer_id=first + size,
        )
        return ControllerResult([record], lambda error: first if error is None else error)

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

log = logging.getLogger("barnabas.coordination")


class ProducerIdBlocks:
    """Asks the controller for blocks, one at a time (Kafka: `RPCProducerIdManager`, `ProducerIdControlManager`)."""

    def __init__(
        self, controller: Controller, broker: BrokerIncarnation, sync_metadata: Callable[[], None]
    ) -> None:
        """`sync_metadata` is asked for with each block, and comes before any sync of what its ids write: ids that the
        power takes back would be given out twice."""
        self._controller = controller
        self._sync_metadata = sync_metadata
        self._broker = broker
        self._is_asked = False
        self._allocated: list[
            tuple[int, int]
        ] = []  # first id, size: what came after `allocate` had given up waiting

    def allocate(self, size: int) -> int:
        """The first id of a new block.

        Raises KafkaError (COORDINATOR_LOAD_IN_PROGRESS) where the controller hasn't answered yet, or can't record one,
        as Kafka without a block does: the client asks again.
        """
        if not self._is_asked and not self._allocated:
            self._is_asked = True
            self._controller.submit(lambda image: self._decide(image, size), self._answered)
        for place, (first, allocated) in enumerate(self._allocated):
            if allocated == size:
                del self._allocated[place]
                return first
        raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS)

    def _decide(self, image: ClusterImage, size: int) -> ControllerResult[tuple[int, int] | KafkaError]:
        first = image.next_producer_id
        record = ProducerIdsRecord(
            broker_id=self._broker.node_id,
            broker_epoch=self._broker.broker_epoch,
            next_producer_id=first + size,
        )
        return ControllerResult([record], lambda error: (first, size) if error is None else error)

    def _answered(self, block: tuple[int, int] | KafkaError) -> None:
        self._is_asked = False
        if isinstance(block, KafkaError):
            log.error("no producer ids can be recorded in the metadata log: %s", block)
        else:
            self._allocated.append(block)
            self._sync_metadata()

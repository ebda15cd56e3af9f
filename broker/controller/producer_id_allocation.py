"""Blocks of producer ids: a broker asks for one (AllocateProducerIds), and no other is ever given the same.

Source: `ProducerIdControlManager.generateNextProducerId`; KIP-730.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.controller import ControllerResult
from broker.controller.registration import check_broker_epoch
from coordinator.transaction.producer_ids import BLOCK_SIZE
from protocol.errors import Error, KafkaError
from protocol.messages.metadata_records import ProducerIdsRecord

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.controller.registration import BrokerIncarnation

LAST_PRODUCER_ID = (1 << 63) - 1  # Long.MAX_VALUE


def allocate_producer_ids(
    image: ClusterImage, broker: BrokerIncarnation, size: int = BLOCK_SIZE
) -> ControllerResult[int | KafkaError]:
    """The answer is the first id of the block.

    Raises KafkaError: STALE_BROKER_EPOCH; UNKNOWN_SERVER_ERROR where so many aren't left.
    """
    check_broker_epoch(image, broker)
    first = image.next_producer_id
    if first > LAST_PRODUCER_ID - size:
        raise KafkaError(
            Error.UNKNOWN_SERVER_ERROR,
            "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit",
        )
    record = ProducerIdsRecord(
        broker_id=broker.node_id, broker_epoch=broker.broker_epoch, next_producer_id=first + size
    )
    return ControllerResult([record], lambda error: first if error is None else error)

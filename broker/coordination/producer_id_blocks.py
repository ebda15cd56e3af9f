"""Blocks of producer ids, recorded in the cluster's metadata so that none is given out twice."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from protocol.errors import Error, KafkaError
from protocol.messages.metadata_records import ProducerIdsRecord

if TYPE_CHECKING:
    from broker.controller.metadata_log import MetadataLog
    from broker.controller.registration import BrokerIncarnation

log = logging.getLogger("barnabas.coordination")


class ProducerIdBlocks:
    """Kafka: `ProducerIdControlManager`."""

    def __init__(self, metadata: MetadataLog, broker: BrokerIncarnation) -> None:
        self._metadata = metadata
        self._broker = broker

    def allocate(self, size: int) -> int:
        """The first id of a new block.

        Raises KafkaError (COORDINATOR_LOAD_IN_PROGRESS) where that isn't possible now, as Kafka without a block does.
        """
        first = self._metadata.image.next_producer_id
        record = ProducerIdsRecord(
            broker_id=self._broker.node_id,
            broker_epoch=self._broker.broker_epoch,
            next_producer_id=first + size,
        )
        try:
            self._metadata.append([record])
        except KafkaError as error:
            log.error("no producer ids can be recorded in the metadata log: %s", error)
            raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS) from error
        return first

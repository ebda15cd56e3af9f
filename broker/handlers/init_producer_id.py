"""InitProducerId (22), versions 0 to 5, of idempotent producers (KIP-98).

v3: the id and epoch that a producer has (KIP-360); v4: PRODUCER_FENCED. v6 (KIP-939) is unstable in Kafka 4.3 and not
served. Conscious gap: there is no transaction coordinator yet, so a transactional id is answered with
NOT_COORDINATOR.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from protocol.errors import Error, KafkaError
from protocol.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from broker.context import RequestContext
    from broker.server import Server

log = logging.getLogger("barnabas.producer_ids")

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


def handle(server: Server, context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _error(Error.INVALID_REQUEST)
    if request.transactional_id is None:
        try:
            producer_id = server.producer_ids.next()
        except KafkaError as error:  # the block of ids can't be recorded
            log.error("no producer ids can be recorded in the metadata log: %s", error)
            return _error(error.error)
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    if not request.transactional_id:
        return _error(Error.INVALID_REQUEST)
    return _error(Error.NOT_COORDINATOR)


def _error(error: Error) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )

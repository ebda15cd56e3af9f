"""InitProducerId (22), versions 0 to 5 (KIP-98).

v3: the id and epoch that a producer has (KIP-360); v4: PRODUCER_FENCED. v6 (KIP-939) is unstable in Kafka 4.3 and not
served: its connection is closed, as Kafka without unstable versions does.

Without a transactional id anybody is given a fresh producer id. With one the transaction's coordinator fences whoever
had it before, aborts what that one left open, and answers CONCURRENT_TRANSACTIONS until this is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordination.fencing import as_known
from protocol.errors import Error, KafkaError
from protocol.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server

PRODUCER_FENCED_VERSION = 4


def handle(server: Server, context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    try:
        producer_id, producer_epoch = _init(server, request)
    except KafkaError as failure:
        return InitProducerIdResponse(
            error_code=as_known(failure.error, context.api_version, PRODUCER_FENCED_VERSION),
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
        )
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=producer_epoch)


def _init(server: Server, request: InitProducerIdRequest) -> tuple[int, int]:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(Error.INVALID_REQUEST)
    transactional_id = request.transactional_id
    if transactional_id is None:
        return server.producer_ids.next(), 0
    if not transactional_id:
        raise KafkaError(Error.INVALID_REQUEST)
    server.transactions.check_timeout(request.transaction_timeout_ms)
    return server.transactions.shard_of(transactional_id).init_producer_id(
        transactional_id,
        timeout_ms=request.transaction_timeout_ms,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
    )

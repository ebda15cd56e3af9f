"""EndTxn (26), versions 0 to 5: commit or abort.

v2: PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH (KIP-588); v3: flexible; v4: TRANSACTION_ABORTABLE;
v5: transactions version 2 (KIP-890): each end bumps the epoch, and the answer says who the producer is from now on.

The transaction's outcome is logged before this answers. Where nothing is in the way its markers are written, and its
end is logged, before the next request is served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordination.fencing import as_known
from protocol.errors import Error, KafkaError
from protocol.messages.transactions import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server

PRODUCER_FENCED_VERSION = 2
VERSION_2_VERSION = 5  # transactions version 2


def handle(server: Server, context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    version = context.api_version
    try:
        if not request.transactional_id:
            raise KafkaError(Error.INVALID_REQUEST)
        producer = server.transactions.shard_of(request.transactional_id).end_txn(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            commit=request.committed,
            client_transaction_version=2 if version >= VERSION_2_VERSION else 0,
        )
    except KafkaError as failure:
        return EndTxnResponse(error_code=as_known(failure.error, version, PRODUCER_FENCED_VERSION))
    return EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)

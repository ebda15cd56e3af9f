"""EndTxn (26), versions 0 to 5: commit or abort.

v2: PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH (KIP-588); v3: flexible; v4: TRANSACTION_ABORTABLE;
v5: transactions version 2 (KIP-890): each end bumps the epoch, and the answer has the producer's new id and epoch.

The transaction's outcome is committed before the answer leaves. If nothing is in the way, its markers are written and
its end is logged before the next request is served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordination.transactions import as_known
from broker.security.authorizer import TRANSACTIONAL_ID, WRITE
from coordinator.transaction.producer_ids import TransactionalProducer
from protocol.errors import Error, KafkaError
from protocol.messages.transactions import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from broker.handlers.node_ports import TransactionPorts
    from broker.network.context import RequestContext

PRODUCER_FENCED_VERSION = 2
VERSION_2_VERSION = 5  # transactions version 2


async def handle(node: TransactionPorts, context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    version = context.api_version
    transactional_id = request.transactional_id
    authorizer = node.authorizer
    if not (
        authorizer.allows_everything or authorizer.allows(context, WRITE, TRANSACTIONAL_ID, transactional_id)
    ):
        return EndTxnResponse(error_code=Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not transactional_id:
        return EndTxnResponse(error_code=Error.INVALID_REQUEST)
    try:
        shard = node.transactions.shard_of(transactional_id)
    except KafkaError as failure:
        return EndTxnResponse(error_code=failure.error)
    answer = await shard.end_txn(
        TransactionalProducer(transactional_id, request.producer_id, request.producer_epoch),
        commit=request.committed,
        client_transaction_version=2 if version >= VERSION_2_VERSION else 0,
    )
    if isinstance(answer, KafkaError):
        return EndTxnResponse(error_code=as_known(answer.error, version, PRODUCER_FENCED_VERSION))
    return EndTxnResponse.of(producer_id=answer.producer_id, producer_epoch=answer.producer_epoch)

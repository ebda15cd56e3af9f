"""AddOffsetsToTxn (25), versions 0 to 4: the partition of a group's offsets becomes part of the transaction.

v2: PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH (KIP-588); v3: flexible; v4: TRANSACTION_ABORTABLE. Clients of
transactions version 2 don't send it (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordination.groups import OFFSETS_TOPIC
from broker.coordination.transactions import as_known
from broker.security.authorizer import GROUP, READ, TRANSACTIONAL_ID, WRITE
from coordinator.transaction.producer_ids import TransactionalProducer
from protocol.errors import Error, KafkaError
from protocol.messages.transactions import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from protocol.waiting import Later

if TYPE_CHECKING:
    from broker.handlers.node_ports import BrokerPorts
    from broker.network.context import RequestContext

PRODUCER_FENCED_VERSION = 2


async def handle(
    node: BrokerPorts,
    context: RequestContext,
    request: AddOffsetsToTxnRequest,
) -> AddOffsetsToTxnResponse:
    transactional_id = request.transactional_id
    if not node.authorizer.allows(context, WRITE, TRANSACTIONAL_ID, transactional_id):
        return AddOffsetsToTxnResponse(error_code=Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not node.authorizer.allows(context, READ, GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=Error.GROUP_AUTHORIZATION_FAILED)
    if not transactional_id:
        return AddOffsetsToTxnResponse(error_code=Error.INVALID_REQUEST)
    try:
        shard = node.transactions.shard_of(transactional_id)
    except KafkaError as failure:
        return AddOffsetsToTxnResponse(error_code=failure.error)
    added = shard.add_partitions(
        TransactionalProducer(transactional_id, request.producer_id, request.producer_epoch),
        [(OFFSETS_TOPIC, node.groups.partition_of(request.group_id))],
        client_transaction_version=0,
    )
    refused = await added if isinstance(added, Later) else added
    error = Error.NONE
    if refused is not None:
        error = as_known(refused.error, context.api_version, PRODUCER_FENCED_VERSION)
    return AddOffsetsToTxnResponse(error_code=error)

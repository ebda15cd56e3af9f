"""AddOffsetsToTxn (25), versions 0 to 4: the partition of a group's offsets becomes part of the transaction.

v2: PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH (KIP-588); v3: flexible; v4: TRANSACTION_ABORTABLE. Clients of
transactions version 2 don't ask for it (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordination.fencing import as_known
from broker.coordination.groups import OFFSETS_TOPIC
from protocol.errors import Error, KafkaError
from protocol.messages.transactions import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server

PRODUCER_FENCED_VERSION = 2


def handle(
    server: Server, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    error = Error.NONE
    try:
        if not request.transactional_id:
            raise KafkaError(Error.INVALID_REQUEST)
        server.transactions.shard_of(request.transactional_id).add_partitions(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [(OFFSETS_TOPIC, server.groups.partition_of(request.group_id))],
            client_transaction_version=0,
        )
    except KafkaError as failure:
        error = as_known(failure.error, context.api_version, PRODUCER_FENCED_VERSION)
    return AddOffsetsToTxnResponse(error_code=error)

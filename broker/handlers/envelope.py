"""Envelope (58), version 0, of a controller: a client's request that a broker forwards (KIP-590).

Source: `EnvelopeUtils.handleEnvelopeRequest`, `RequestChannel.buildResponseSend`.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker.network.answers import CloseConnectionError, NotAdmittedError
from broker.peers.forwarding import ENVELOPED, Sender, principal_of
from broker.security.authorizer import Operation, cluster_refusal
from protocol.errors import CodecError, Error
from protocol.messages.broker_to_controller import EnvelopeRequest, EnvelopeResponse
from protocol.waiting import Later

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduler
    from broker.handlers.node_ports import NodePorts
    from broker.network.answers import Answer, PendingAnswer
    from broker.network.context import RequestContext

log = logging.getLogger("barnabas.dispatch")

_SIZE_BYTES = 4


async def handle(
    node: NodePorts,
    context: RequestContext,
    request: EnvelopeRequest,
) -> EnvelopeResponse:
    """The broker always gets an answer, even if the request inside fails: else it would send it again and again."""
    refusal = cluster_refusal(node.authorizer, context, Operation.CLUSTER_ACTION)
    if refusal is not None:
        return EnvelopeResponse(error_code=refusal.error)
    if not node.metadata.is_leader:
        return EnvelopeResponse(error_code=Error.NOT_CONTROLLER)
    try:
        principal = principal_of(request.request_principal)
    except CodecError:
        return EnvelopeResponse(error_code=Error.PRINCIPAL_DESERIALIZATION_FAILURE)
    try:
        host = str(ipaddress.ip_address(bytes(request.client_host_address)))
    except ValueError:
        return EnvelopeResponse(error_code=Error.INVALID_REQUEST)
    later: Later[EnvelopeResponse] = Later()

    def go_on(take: Callable[[], Answer | PendingAnswer]) -> None:
        later.on_abandon = None
        try:
            answer = take()
        except (CloseConnectionError, CodecError) as error:
            log.info("a request that %s forwards can't be served: %s", context.connection, error)
            later.reply(EnvelopeResponse(error_code=Error.UNSUPPORTED_VERSION))
        except NotAdmittedError as error:
            log.info("a request that %s forwards isn't taken: %s", context.connection, error)
            later.reply(EnvelopeResponse(error_code=Error.INVALID_REQUEST))
        except Exception as error:
            node.dispatcher.failed(context.connection, error)
            later.reply(EnvelopeResponse(error_code=Error.UNKNOWN_SERVER_ERROR))
        else:
            if answer is None or isinstance(answer, list):
                data = b"".join(answer or ())  # type: ignore[arg-type]
                later.reply(EnvelopeResponse(response_data=data[_SIZE_BYTES:]))
                return
            later.on_abandon = answer.abandon
            answer.when_answered(partial(_go_on_later, node.scheduler, go_on, answer))

    sender = Sender(context.connection, principal, host)
    go_on(lambda: node.dispatcher.serve_forwarded(sender, memoryview(request.request_data), ENVELOPED))
    return await later


def _go_on_later(
    scheduler: Scheduler, go_on: Callable[[Callable[[], Answer | PendingAnswer]], None], answer: PendingAnswer
) -> None:
    scheduler.call_soon(go_on, answer.take)

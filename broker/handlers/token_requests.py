"""The common part of requests for delegation tokens: which clients may send them, which node decides, and the requests
that change the end of a token.

Sources: `allowTokenRequests` of `KafkaApis` and `ControllerApis`, and their handlers of RenewDelegationToken and
ExpireDelegationToken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from broker.controller.controller import ControllerResult
from broker.security.authorizer import ANONYMOUS
from broker.security.delegation_tokens import token_settings
from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.controller.image import ClusterImage
    from broker.handlers.node_ports import ControllerPorts, NodePorts
    from broker.network.context import RequestContext
    from broker.security.authorizer import Principal
    from broker.security.delegation_tokens import TokenSettings
    from protocol.waiting import Waiting
    from protocol.wire.schema import Message


def is_at_controller(node: NodePorts, context: RequestContext) -> bool:
    """True if the request came to the controller: from a broker, or at its own listener."""
    return context.is_forwarded or any(
        each.name == context.listener_name for each in node.config.controller_listeners
    )


def may_ask_for_tokens(node: NodePorts, context: RequestContext) -> bool:
    """True if the client is authenticated, but not by a token: no token makes another one.

    A broker has checked this before it forwards a request."""
    if context.principal.token_authenticated:
        return False
    if context.is_forwarded:
        return True
    name = context.listener_name
    protocol = next((each.security_protocol for each in node.endpoints if each.name == name), "PLAINTEXT")
    return protocol != "PLAINTEXT" and not (protocol == "SSL" and context.principal == ANONYMOUS)


class DecideEnd(Protocol):
    """Decides when a token ends. Returns records and the answer (`broker.controller.token_decisions`)."""

    def __call__(
        self,
        image: ClusterImage,
        settings: TokenSettings | None,
        request: Any,
        /,
        *,
        asks: Principal,
        now_ms: int,
    ) -> Waiting[tuple[list[Message], Message]]: ...


async def end_changed(
    node: ControllerPorts,
    context: RequestContext,
    request: Message,
    response: Callable[..., Message],
    decide_end: DecideEnd,
) -> Message:
    """The answer to a request that changes the end of a token. This node's controller or another one decides."""
    if not may_ask_for_tokens(node, context):
        return response(error_code=Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1)
    if node.forwarding is not None and not is_at_controller(node, context):
        return await node.forwarding.ask(context, request)

    async def decide(image: ClusterImage) -> ControllerResult[Message | KafkaError]:
        decided, answer = await decide_end(
            image,
            token_settings(node.config),
            request,
            asks=context.principal,
            now_ms=node.clock.now_ms(),
        )
        return ControllerResult(decided, lambda failure: failure or answer)

    answer = await node.controller.submit(decide)
    return response(error_code=answer.error) if isinstance(answer, KafkaError) else answer

"""Who may ask for delegation tokens at all, and who is asked.

Source: `allowTokenRequests` of `KafkaApis` and `ControllerApis`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.authorizer import ANONYMOUS

if TYPE_CHECKING:
    from broker.handlers.node_ports import NodePorts
    from broker.network.context import RequestContext


def is_at_controller(node: NodePorts, context: RequestContext) -> bool:
    """Whether the controller was asked, by a broker or by its own listener."""
    return context.is_forwarded or any(
        each.name == context.listener_name for each in node.config.controller_listeners
    )


def may_ask_for_tokens(node: NodePorts, context: RequestContext) -> bool:
    """Whoever has proved who it is, but by a token: none is made out of another. What a broker hands on it has looked
    at itself."""
    if context.principal.token_authenticated:
        return False
    if context.is_forwarded:
        return True
    name = context.listener_name
    protocol = next((each.security_protocol for each in node.endpoints if each.name == name), "PLAINTEXT")
    return protocol != "PLAINTEXT" and not (protocol == "SSL" and context.principal == ANONYMOUS)

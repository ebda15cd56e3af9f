"""What this node's controller makes of the rest of an AlterConfigs or IncrementalAlterConfigs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.controller.config_decisions import ConfigRequest, R
    from broker.controller.image import ClusterImage
    from broker.handlers.node_ports import ControllerPorts
    from broker.security.authorizer import ConfigRights
    from protocol.wire.schema import Message


async def alter_remaining(
    asked: ConfigRequest[R],
    node: ControllerPorts,
    rights: ConfigRights,
    decide: Callable[[ClusterImage, R], list[Message]],
    *,
    validate_only: bool,
) -> None:
    """Of those that the client may alter: each is answered by `asked.responses` then. `decide` raises KafkaError."""
    await asked.authorize(rights.refusal)
    if asked.remaining:
        deciding = node.controller.submit(
            lambda image: asked.decide(image, decide, validate_only=validate_only)
        )
        refusal = await node.turns.to_the_end(deciding)
        if refusal is not None:
            asked.refuse_remaining(refusal)

"""AlterConfigs and IncrementalAlterConfigs: the part that this node's controller decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.config.definitions import ConfigError
from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.config.broker_config import BrokerConfig
    from broker.controller.config_decisions import ConfigRequest, R
    from broker.controller.image import ClusterImage
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.key_stores import KeyStores
    from broker.security.authorizer import ConfigRights
    from protocol.wire.schema import Message


def check_files(key_stores: KeyStores, config: BrokerConfig, wanted: Mapping[str, str | None]) -> None:
    """Check that the keys and certificates that this broker's settings would name can replace the present ones.

    Raises KafkaError(INVALID_REQUEST)."""
    if not key_stores:
        return
    after = config.altered(broker={name: text for name, text in wanted.items() if text is not None})
    try:
        key_stores.check(after)
    except ConfigError as error:
        raise KafkaError(Error.INVALID_REQUEST, str(error)) from None


async def alter_remaining(
    asked: ConfigRequest[R],
    node: ControllerPorts,
    rights: ConfigRights,
    decide: Callable[[ClusterImage, R], list[Message]],
    *,
    validate_only: bool,
) -> None:
    """Alter those of the remaining resources that the client may alter. `asked.responses` then has an answer for each.

    `decide` raises KafkaError."""
    await asked.authorize(rights.refusal)
    if asked.remaining:
        deciding = node.controller.submit(
            lambda image: asked.decide(image, decide, validate_only=validate_only)
        )
        refusal = await node.turns.to_the_end(deciding)
        if refusal is not None:
            asked.refuse_remaining(refusal)

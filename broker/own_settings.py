"""What a controller goes by where neither a topic nor the cluster says anything of a setting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.partition_updates import OwnSettings

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig


def own_settings(config: BrokerConfig) -> OwnSettings:
    """Those of its own file."""
    return OwnSettings(config.node_id, {name: setting.value for name, setting in config.static.items()})

"""A group's own settings: names, values, and the broker's bounds for them (Kafka's GroupConfig.validate)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from broker.config.errors import ConfigError
from broker.config.group_config import (
    GROUP_BOUNDS,
    GROUP_ROWS,
    group_defaults,
    group_number,
    parsed_group_value,
)
from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig


def check_group_configs(config: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """Names, values, and the broker's bounds for them. Raises KafkaError(INVALID_CONFIG)."""
    for name in overrides:
        if name not in GROUP_ROWS:
            raise _invalid(f"Unknown group config name: {name}")
    values = group_defaults(config)
    try:
        for name in GROUP_ROWS:
            if name in overrides:
                values[name] = parsed_group_value(name, overrides[name])
    except ConfigError as error:
        raise _invalid(str(error)) from None
    for name, (lowest, highest) in GROUP_BOUNDS.items():
        if name.endswith("assignment.interval.ms") and name not in overrides:
            continue
        value = group_number(values, name)
        if lowest is not None and value < config.get_int(lowest):
            raise _invalid(f"{name} must be greater than or equal to {lowest}")
        if value > config.get_int(highest):
            raise _invalid(f"{name} must be less than or equal to {highest}")
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if group_number(values, session) <= group_number(values, heartbeat):
            raise _invalid(f"{session} must be greater than {heartbeat}")


def _invalid(message: str) -> KafkaError:
    return KafkaError(Error.INVALID_CONFIG, message)

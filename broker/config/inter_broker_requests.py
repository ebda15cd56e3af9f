"""Which listeners refuse what only brokers ask of each other: `barnabas.inter.broker.requests`, by itself or for one
listener. Kafka's precedent for the two levels is `AbstractConfig.valuesWithPrefixOverride`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.config.broker_definitions import (
    INTER_BROKER_REQUESTS,
    OWN_ROWS,
    listener_prefix,
    without_listener,
)
from broker.config.definitions import definition_of
from broker.config.errors import ConfigError
from broker.config.parsing import parse_value

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig


def closed_to_brokers(config: BrokerConfig) -> frozenset[str]:
    """The broker's listeners that refuse them, by name; none of a node that is only a controller.

    Raises ConfigError where a value is for a listener that isn't there, so that none stays open by a slip of the pen,
    and where the cluster's brokers couldn't reach each other.
    """
    if config.is_only_controller:
        return frozenset()
    names = {listener_prefix(each.name) + INTER_BROKER_REQUESTS: each.name for each in config.listeners}
    closed_by: dict[str, str] = {}
    if not config.get_boolean(INTER_BROKER_REQUESTS):
        closed_by = dict.fromkeys(names.values(), INTER_BROKER_REQUESTS)
    for name in config.effective_names():
        if without_listener(name) != INTER_BROKER_REQUESTS:
            continue
        if name not in names:
            known = " or ".join(names)
            raise ConfigError(f"{name} is for no listener of this broker: that could be {known}", name)
        if _is_true(name, config.text_given(name)):
            closed_by.pop(names[name], None)
        else:
            closed_by[names[name]] = name
    between = config.inter_broker_listener
    if between in closed_by and (config.joins or config.controller_listeners):
        raise ConfigError(
            f"{closed_by[between]} can't be false of {between}, by which brokers reach each other "
            "(inter.broker.listener.name)",
            closed_by[between],
        )
    return frozenset(closed_by)


def _is_true(name: str, text: str | None) -> bool:
    value = parse_value(definition_of(name, OWN_ROWS[INTER_BROKER_REQUESTS]), text)
    assert isinstance(value, bool)
    return value

"""A topic's own settings: names, values, and how they go with each other (Kafka's LogConfig.validate)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from broker.config.definitions import Value
from broker.config.errors import ConfigError
from broker.config.parsing import parse_value
from broker.config.topic_config import broker_log_defaults
from broker.config.topic_definitions import INTERNAL_TOPIC_ROWS, TOPIC_ROWS, topic_definition
from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig


def check_topic_configs(config: BrokerConfig, overrides: Mapping[str, str | None]) -> None:
    """What Kafka checks of the settings that a topic is created with. Raises KafkaError(INVALID_CONFIG)."""
    nulls = [name for name, text in overrides.items() if text is None]
    if nulls:
        raise _invalid(f"Null value not supported for topic configs: {','.join(nulls)}")
    check_overrides(config, {name: text for name, text in overrides.items() if text is not None})


def check_overrides(config: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """Names, values, and how they go with each other and with the broker's (LogConfig.validate).

    Raises KafkaError(INVALID_CONFIG). As in Kafka, the broker's settings are only looked at where the topic
    has any of its own.
    """
    if not overrides:
        return
    for name in overrides:
        if name not in TOPIC_ROWS and name not in INTERNAL_TOPIC_ROWS:
            raise _invalid(f"Unknown topic config name: {name}")
    values = broker_log_defaults(config)
    try:
        for name in (*TOPIC_ROWS, *INTERNAL_TOPIC_ROWS):
            if name in overrides:
                values[name] = _parsed(name, overrides[name])
    except ConfigError as error:
        raise _invalid(str(error)) from None
    lowest, highest = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    assert isinstance(lowest, int)
    assert isinstance(highest, int)
    if lowest > highest:
        raise _invalid(
            f"conflict topic config setting min.compaction.lag.ms ({lowest}) > "
            f"max.compaction.lag.ms ({highest})"
        )
    if values["remote.storage.enable"]:
        raise _invalid(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )


def _parsed(name: str, text: str) -> Value:
    definition = topic_definition(name)
    assert definition is not None
    return parse_value(definition, text)


def _invalid(message: str) -> KafkaError:
    return KafkaError(Error.INVALID_CONFIG, message)

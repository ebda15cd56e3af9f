"""Altering the settings of a resource: from what a client wants and the image to records, or to an error.

Pure functions (Kafka: `ConfigurationControlManager`, and `ConfigAdminManager` for what a broker checks first). A
resource's alterations are all made or none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from broker.config.alterations import (
    Alteration,
    alter_broker,
    alter_topic,
    changes_of,
    replace_broker,
    replace_topic,
)
from broker.config.checks.table import Occasion, Proposal, check
from broker.controller.features import ELR_VERSION
from broker.controller.image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ClusterImage,
)
from broker.controller.topic_names import invalid_name_reason
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.wire.schema import Message

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig

BROKER_LOGGER_RESOURCE = 8

RESOURCE_TYPES = (
    TOPIC_RESOURCE,
    BROKER_RESOURCE,
    BROKER_LOGGER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
)
"""ConfigResourceKey.Type, ascending."""

MIN_INSYNC_REPLICAS = "min.insync.replicas"

ConfigResourceKey: TypeAlias = tuple[int, str]
"""Type and name of what has settings; a broker without a name stands for all of them."""


def altered(
    image: ClusterImage, config: BrokerConfig, resource: ConfigResourceKey, alterations: Sequence[Alteration]
) -> list[Message]:
    """The records of an incremental alteration, after `alterations.check_request`. Raises KafkaError."""
    resource_type, name = resource
    stored = image.configs.get(resource, {})
    if resource_type == TOPIC_RESOURCE:
        check_topic_name(name)
        changes = alter_topic(config, stored, alterations)
        _check_topic_exists(image, name)
    elif resource_type == BROKER_RESOURCE:
        changes = alter_broker(
            config, stored, alterations, per_broker=bool(name), elr_enabled=is_elr_enabled(image)
        )
        _check_node_is_registered(image, name)
    elif resource_type == GROUP_RESOURCE:
        changes = _checked(stored, alterations, lambda after: _check_group(config, name, after))
    else:
        changes = _checked(stored, alterations, lambda after: _check_client_metrics(config, name, after))
    return _records(resource, changes)


def replaced(
    image: ClusterImage, config: BrokerConfig, resource: ConfigResourceKey, wanted: Mapping[str, str]
) -> list[Message]:
    """The records of an alteration that replaces all of a resource's settings. Raises KafkaError."""
    resource_type, name = resource
    stored = image.configs.get(resource, {})
    if resource_type == TOPIC_RESOURCE:
        check_topic_name(name)
        changes = replace_topic(config, stored, wanted)
        _check_topic_exists(image, name)
    elif resource_type == BROKER_RESOURCE:
        changes = replace_broker(
            config, stored, wanted, per_broker=bool(name), elr_enabled=is_elr_enabled(image)
        )
        _check_node_is_registered(image, name)
    else:
        if resource_type == GROUP_RESOURCE:
            _check_group(config, name, wanted)
        else:
            _check_client_metrics(config, name, wanted)
        changes = {key: text for key, text in wanted.items() if stored.get(key) != text}
        changes.update(dict.fromkeys(key for key in stored if key not in wanted))
    return _records(resource, changes)


def is_elr_enabled(image: ClusterImage) -> bool:
    """Whether the cluster has eligible leader replicas (KIP-966)."""
    return image.features.get(ELR_VERSION, 0) > 0


def cleared_elr(image: ClusterImage, decided: Sequence[Message]) -> list[Message]:
    """What follows from other numbers of replicas to be in sync: who is eligible has to be found out anew (KIP-966)."""
    if not is_elr_enabled(image):
        return []
    return [
        records.ClearElrRecord(
            topic_name=record.resource_name if record.resource_type == TOPIC_RESOURCE else ""
        )
        for record in decided
        if isinstance(record, records.ConfigRecord) and record.name == MIN_INSYNC_REPLICAS
    ]


def check_topic_name(name: str) -> None:
    """Raises KafkaError where no topic can have this name."""
    if not name:
        raise KafkaError(Error.INVALID_REQUEST, "Default topic resources are not allowed.")
    reason = invalid_name_reason(name)
    if reason is not None:
        raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def _check_topic_exists(image: ClusterImage, name: str) -> None:
    if name not in image.topics:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _check_node_is_registered(image: ClusterImage, name: str) -> None:
    """A broker or a controller; settings of all of them have no name."""
    if name and int(name) not in image.brokers and int(name) not in image.controllers:
        raise KafkaError(Error.BROKER_ID_NOT_REGISTERED, f"No node with id {name} found.")


def _check_group(config: BrokerConfig, name: str, after: Mapping[str, str]) -> None:
    if not name:
        raise KafkaError(Error.INVALID_REQUEST, "Default group resources are not allowed.")
    check(Occasion.ALTER_GROUP, Proposal(config, after))


def _check_client_metrics(config: BrokerConfig, name: str, after: Mapping[str, str]) -> None:
    if not name:
        raise KafkaError(Error.INVALID_REQUEST, "Subscription name can't be empty")
    check(Occasion.ALTER_CLIENT_METRICS, Proposal(config, after))


def _checked(
    stored: Mapping[str, str],
    alterations: Sequence[Alteration],
    check_all: Callable[[Mapping[str, str]], None],
) -> dict[str, str | None]:
    """Kafka's controller knows no lists but those of topics and brokers: nothing is appended to others."""
    changes = changes_of(stored, alterations, lambda key: None)
    check_all({name: text for name, text in {**stored, **changes}.items() if text is not None})
    return {name: text for name, text in changes.items() if stored.get(name) != text}


def _records(resource: ConfigResourceKey, changes: Mapping[str, str | None]) -> list[Message]:
    resource_type, name = resource
    return [
        records.ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=text)
        for key, text in changes.items()
    ]

"""What a node and its controllers say of each other: the part of KafkaConfig.validateValues that is by role."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker.config.errors import ConfigError
from broker.config.listeners import parse_endpoint
from broker.config.roles import BOOTSTRAP_SERVERS, QUORUM, VOTERS, bootstrap_servers, voters

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig

CONTROLLER_NAMES = "controller.listener.names"
_AUTO_JOIN = "controller.quorum.auto.join.enable"


def check_quorum(config: BrokerConfig) -> None:
    """Raises ConfigError where the controllers can't be found by what is said of them, or a broker that joins them
    says what only a controller may."""
    bootstrap_servers(config.get_list(BOOTSTRAP_SERVERS))
    ids = voters(config.get_list(VOTERS))
    others = sorted(ids.keys() - {config.node_id})
    if config.is_only_controller and others:
        raise ConfigError(
            f"{VOTERS} names node {others[0]}, and a quorum of several isn't built yet: with process.roles=controller "
            f"it is {config.node_id}@host:port alone",
            VOTERS,
        )
    if not config.joins:
        return
    if config.node_id in ids:
        raise ConfigError(
            f"{VOTERS} has node.id={config.node_id}, and with process.roles=broker this node is none of the "
            "controllers: it needs another node.id",
            VOTERS,
        )
    if CONTROLLER_NAMES not in config.static:
        raise ConfigError(
            f"{CONTROLLER_NAMES} must contain at least one value with process.roles=broker: the name of the "
            "controllers' listener, such as CONTROLLER",
            "process.roles",
        )
    if config.get_boolean(_AUTO_JOIN):
        raise ConfigError(
            f"{_AUTO_JOIN} is only supported where process.roles contains controller", _AUTO_JOIN
        )


def other_controllers(config: BrokerConfig) -> Iterator[str]:
    """A line where the only controller of a cluster of its own is told of others, which it doesn't ask."""
    if config.joins:
        return
    own_ports = {
        endpoint.port
        for endpoint in (parse_endpoint(entry, "listeners") for entry in config.get_list("listeners"))
        if endpoint.name in map(str.upper, config.get_list(CONTROLLER_NAMES))
    }
    servers = bootstrap_servers(config.get_list(BOOTSTRAP_SERVERS))
    are_others = {
        BOOTSTRAP_SERVERS: len(servers) > 1 or not {port for _, port in servers} <= own_ports,
        VOTERS: not voters(config.get_list(VOTERS)).keys() <= {config.node_id},
    }
    for name in QUORUM:
        if are_others[name]:
            setting = config.static[name]
            yield (
                f"{setting.origin}: {name}={setting.value} names other controllers, and none of them is asked: this "
                "node is its own controller, in a cluster of its own; with process.roles=broker it would join theirs"
            )

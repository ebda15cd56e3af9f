"""How this node connects to other nodes' listeners: the protocol, and the credentials to sign in with.

A node's credentials are in the JAAS line of its own listener with the same name. No file is read here.
Source: `ChannelBuilders.clientChannelBuilder`, `JaasContext.loadServerContext`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.config.broker_config import JAAS, MECHANISMS_ENABLED, Outgoing, jaas_options
from broker.config.broker_definitions import listener_prefix
from broker.config.definitions import ConfigError, trimmed
from broker.config.listeners import SASL, ListenerSettings, way_to_brokers, way_to_controllers

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.security.sasl_client import Credentials

TO_BROKERS, TO_CONTROLLERS = "sasl.mechanism.inter.broker.protocol", "sasl.mechanism.controller.protocol"


def to_brokers(config: BrokerConfig, settings: ListenerSettings) -> Outgoing:
    """Return how to connect to brokers. Raises ConfigError, without any password."""
    name, protocol = way_to_brokers(settings)
    if protocol in SASL:
        given = config.text_given(config.name_given(MECHANISMS_ENABLED, name))
        enabled = [trimmed(each) for each in (given or "GSSAPI").split(",")]
        if config.get_string(TO_BROKERS) not in enabled:
            raise ConfigError(
                f"{TO_BROKERS} must be included in {MECHANISMS_ENABLED} when SASL is used for inter-broker "
                f"communication: it is {config.get_string(TO_BROKERS)}, and of listener {name} "
                f"{', '.join(enabled)} are enabled",
                TO_BROKERS,
            )
    return _outgoing(config, name, protocol, TO_BROKERS)


def to_controllers(config: BrokerConfig, settings: ListenerSettings) -> Outgoing:
    """Return how to connect to controllers. Raises ConfigError, without any password."""
    return _outgoing(config, *way_to_controllers(settings), TO_CONTROLLERS)


def _outgoing(config: BrokerConfig, listener_name: str, protocol: str, mechanism_setting: str) -> Outgoing:
    if protocol not in SASL:
        return Outgoing(listener_name, protocol)
    return Outgoing(listener_name, protocol, _credentials(config, listener_name, mechanism_setting))


def _credentials(config: BrokerConfig, listener_name: str, mechanism_setting: str) -> Credentials:
    # Imported here, so that a node which signs in nowhere doesn't load it.
    from broker.security.sasl_client import MODULES, Credentials

    mechanism = config.get_string(mechanism_setting) or ""
    module = MODULES.get(mechanism)
    if module is None:
        raise ConfigError(
            f"{mechanism_setting}: a node can't sign in with {mechanism} at listener {listener_name} here; it can with "
            f"{', '.join(MODULES)}",
            mechanism_setting,
        )
    name = f"{listener_prefix(listener_name)}{mechanism.lower()}.{JAAS}"
    line = config.text_given(name)
    if not line:
        raise ConfigError(
            f'{name} has to say how this node signs in to others: {module} required username="broker" '
            'password="its password";',
            mechanism_setting,
        )
    options = jaas_options(name, line, module)
    missing = [each for each in ("username", "password") if not options.get(each)]
    if missing:
        raise ConfigError(
            f"{name} has no {' and no '.join(missing)}, with which this node signs in to others ({mechanism_setting})",
            name,
        )
    return Credentials(mechanism, options["username"], options["password"])

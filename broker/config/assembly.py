"""Assembling a valid configuration from given settings: layers, warnings, refusals, checks.

All mistakes of users are found here, before anything is opened. Each error is one line that says where the
mistake is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from broker.config.broker_config import (
    AT_MOST_ONE,
    DEFAULTS,
    OF_AUTHORIZER,
    RACK_AWARE_SELECTOR,
    REFUSED,
    SHOWN_AS_GIVEN,
    BrokerConfig,
    SaslConfig,
    authorizer_settings,
    controls,
    is_only_controller,
    joins_a_cluster,
    sasl_config,
)
from broker.config.broker_definitions import (
    BROKER_ROWS,
    CONTROL_LISTENER,
    CONTROL_TOKEN,
    DYNAMIC_ONLY_ROWS,
    INTER_BROKER_REQUESTS,
    METRICS_LISTENER,
    OWN_ROWS,
    broker_definition,
    listener_prefix,
    without_listener,
)
from broker.config.definitions import (
    ConfigError,
    ConfigType,
    UsageError,
    definition_of,
    parse_value,
    value_text,
)
from broker.config.given_settings import PREFIX, Layer, Setting, layered
from broker.config.listeners import (
    ENCRYPTED,
    EVERY_INTERFACE,
    SASL,
    ListenerConfig,
    ListenerSettings,
    broker_listeners,
    check_early_start,
    controller_listeners,
    http_listener,
)
from broker.config.outgoing import to_brokers, to_controllers
from broker.config.setting_checks import (
    COMPRESSION_TYPE,
    CONTROLLER_NAMES,
    REMEDY,
    Occasion,
    Proposal,
    check,
    is_missing,
    other_controllers,
)

_KRAFT = "ZooKeeper is gone since Kafka 4.0"
_METADATA_VERSION = "Kafka 4 goes by the metadata.version feature instead"
_LISTENERS = "gone since Kafka 3.0; listeners and advertised.listeners say it"

OBSOLETE: dict[str, str] = {
    "advertised.host.name": _LISTENERS,
    "advertised.port": _LISTENERS,
    "auto.include.jmx.reporter": "gone since Kafka 4.0",
    "broker.id.generation.enable": _KRAFT,
    "control.plane.listener.name": _KRAFT,
    "controlled.shutdown.max.retries": _KRAFT,
    "controlled.shutdown.retry.backoff.ms": _KRAFT,
    "delegation.token.master.key": "gone since Kafka 4.0; delegation.token.secret.key is its name",
    "group.coordinator.new.enable": "gone since Kafka 4.0; the new coordinator is the only one",
    "host.name": _LISTENERS,
    "inter.broker.protocol.version": _METADATA_VERSION,
    "leader.imbalance.per.broker.percentage": "gone since Kafka 4.0",
    "log.message.downconversion.enable": "gone since Kafka 4.0: old message formats are never read",
    "log.message.format.version": "gone since Kafka 4.0: record batches of version 2 are the only ones",
    "log.message.timestamp.difference.max.ms": (
        "gone since Kafka 4.0; log.message.timestamp.before.max.ms and its .after. counterpart say it"
    ),
    "offsets.commit.required.acks": "gone since Kafka 4.0: it is always -1",
    "port": _LISTENERS,
    "quota.consumer.default": "gone since Kafka 3.0; quotas are set with the admin API",
    "quota.producer.default": "gone since Kafka 3.0; quotas are set with the admin API",
    "reserved.broker.max.id": _KRAFT,
}


def what_became_of(name: str) -> str | None:
    """Return why a setting doesn't exist any more, or None if it never did or still does."""
    if name.startswith(("zookeeper.", "password.encoder.")):
        return _KRAFT
    return OBSOLETE.get(name)


# --- Listeners that refuse requests between brokers (`barnabas.inter.broker.requests`) ----------------------
# Set for all listeners or for one. Kafka's precedent for the two levels is
# `AbstractConfig.valuesWithPrefixOverride`.


def closed_to_brokers(config: BrokerConfig) -> frozenset[str]:
    """Return the names of the broker's listeners that refuse them. None for a node that is only a controller.

    Raises ConfigError if a value is for a listener that doesn't exist, so that a typo doesn't leave one open,
    and if the cluster's brokers couldn't reach each other.
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
            raise ConfigError(
                f"{name} is for a listener that this broker doesn't have: it could be {known}", name
            )
        if _is_true(name, config.text_given(name)):
            closed_by.pop(names[name], None)
        else:
            closed_by[names[name]] = name
    between = config.inter_broker_listener
    if between in closed_by and (config.joins or config.controller_listeners):
        raise ConfigError(
            f"{closed_by[between]} can't be false for {between}, through which brokers reach each other "
            "(inter.broker.listener.name)",
            closed_by[between],
        )
    return frozenset(closed_by)


def _is_true(name: str, text: str | None) -> bool:
    value = parse_value(definition_of(name, OWN_ROWS[INTER_BROKER_REQUESTS]), text)
    assert isinstance(value, bool)
    return value


# --- The whole configuration --------------------------------------------------------------------------------

_CLUSTER_ID_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_OWN = "barnabas."
TYPED = "-o"
"""The origin of settings that somebody typed for this broker alone."""
_KAFKAS_LISTENERS = "PLAINTEXT://:9092"


def machine_host_name() -> str:
    """The name of this machine."""
    from socket import gethostname

    return gethostname()


def settings_of(values: Mapping[str, str], origin: str = "given") -> Layer:
    """Return a layer of settings with one origin."""
    return {name: Setting(value, origin) for name, value in values.items()}


def assemble(
    layers: Iterable[Mapping[str, Setting]],
    *,
    cluster_id: Setting | None = None,
    release_version: str | None = None,
    host_name: Callable[[], str] = machine_host_name,
) -> BrokerConfig:
    """Return the configuration of the layers; later ones take precedence. Raises UsageError."""
    static = layered(layers)
    warnings: list[str] = []
    _sort_out_names(static, warnings)
    if "advertised.listeners" in static and "listeners" not in static:
        # If others are to connect to an advertised address, listen where Kafka would.
        static["listeners"] = Setting(_KAFKAS_LISTENERS, "the default with advertised.listeners")
    joins = joins_a_cluster(static)
    _check_values(static, warnings, joins)
    for name in SHOWN_AS_GIVEN:
        if name == CONTROLLER_NAMES and joins:
            continue  # the controllers' listener may have any name
        if name == "node.id" and "broker.id" in static:
            static.setdefault(name, static["broker.id"])
        static.setdefault(name, Setting(DEFAULTS[name].value, "the default"))
    static.setdefault("broker.id", static["node.id"])
    config = BrokerConfig(
        static,
        cluster_id=_checked_cluster_id(cluster_id, warnings),
        release_version=release_version,
        warnings=warnings,
    )
    try:
        check(Occasion.START, Proposal(config, static))
        settings = listener_settings(config)
        if not config.is_only_controller:
            config.listeners = broker_listeners(settings, host_name)
        if controls(static):
            config.controller_listeners = controller_listeners(
                settings, host_name, only_controller=config.is_only_controller
            )
        config.metrics_listener = http_listener(
            "METRICS", config.get_string(METRICS_LISTENER) or "", METRICS_LISTENER
        )
        config.control_listener = _control_listener(config)
        check_early_start(settings, config.get_list("early.start.listeners"))
        config.closed_to_brokers = closed_to_brokers(config)
        config.authorizer = authorizer_settings(config)
        config.sasl = {
            each.name: _sign_in(config, each.name)
            for each in (*config.listeners, *config.controller_listeners)
            if each.security_protocol in SASL
        }
        _say_ways_to_others(config, settings)
        _check_encryption(config)
    except ConfigError as error:
        raise usage_error(error, static) from None
    config.warnings += [*other_controllers(config), *_own_name_told(config, static)]
    return config


def _control_listener(config: BrokerConfig) -> tuple[ListenerConfig, ...]:
    """Return the control listener. Raises ConfigError if other machines could use it without a token."""
    found = http_listener("CONTROL", config.get_string(CONTROL_LISTENER) or "", CONTROL_LISTENER)
    if any(each.host not in _LOOPBACK for each in found) and not config.get_string(CONTROL_TOKEN):
        raise ConfigError(
            f"{CONTROL_LISTENER} is open to other machines: {CONTROL_TOKEN} has to set a token for those who ask there",
            CONTROL_LISTENER,
        )
    return found


_LOOPBACK = frozenset(("127.0.0.1", "::1", "localhost"))


def _say_ways_to_others(config: BrokerConfig, settings: ListenerSettings) -> None:
    """Set how this node connects to others. Raises ConfigError if the settings don't allow it."""
    if config.joins:
        config.to_controllers = to_controllers(config, settings)
    if config.joins or (config.controller_listeners and not config.is_only_controller):
        config.to_brokers = to_brokers(config, settings)


def _sign_in(config: BrokerConfig, listener_name: str) -> SaslConfig:
    """Return how clients sign in to a listener. Raises ConfigError."""
    found = sasl_config(config, listener_name)
    if "OAUTHBEARER" in found.mechanisms:
        from broker.config.token_config import token_config

        found = found._replace(tokens=token_config(config, listener_name))
    return found


def _check_encryption(config: BrokerConfig) -> None:
    """Raises ConfigError if a listener's settings contradict each other. Only the start reads files."""
    for each in (*config.listeners, *config.controller_listeners):
        if each.security_protocol in ENCRYPTED:
            from broker.config.tls_config import TlsConfig

            TlsConfig(config, each.name, is_sasl=each.security_protocol in SASL)
    for to in (config.to_brokers, config.to_controllers):
        if to is not None and to.security_protocol in ENCRYPTED:
            from broker.config.tls_config import TlsConfig

            TlsConfig(config, to.listener_name, is_sasl=to.security_protocol in SASL, is_outgoing=True)


def _own_name_told(config: BrokerConfig, static: Layer) -> Iterator[str]:
    """Return a warning for each listener that advertises this machine's name: clients elsewhere may not be
    able to resolve it."""
    if "advertised.listeners" in static:
        return
    for listener in config.listeners:
        if listener.host in EVERY_INTERFACE and listener.advertised is not None:
            told, port = listener.advertised
            yield (
                f"{static['listeners'].origin}: listener {listener.name} is on every interface, and clients are told "
                f"to connect to {told}, this machine's name; if they don't know that name, say another: "
                f"advertised.listeners={listener.name}://HOST:{port or 'PORT'}"
            )


def listener_settings(config: BrokerConfig) -> ListenerSettings:
    """Return the settings about listeners."""
    return ListenerSettings(
        listeners=config.get_list("listeners"),
        advertised=config.get_list("advertised.listeners") or None,
        protocol_map=config.get_string("listener.security.protocol.map") or "",
        protocol_map_given="listener.security.protocol.map" in config.effective_names(),
        controller_names=config.get_list("controller.listener.names"),
        inter_broker_name=config.get_string("inter.broker.listener.name"),
        inter_broker_protocol=config.get_string("security.inter.broker.protocol")
        if "security.inter.broker.protocol" in config.effective_names()
        else None,
        speaks_to_brokers=config.joins,
    )


def usage_error(error: ConfigError, static: Mapping[str, Setting]) -> UsageError:
    """Return the user's error line for an invalid setting: where it is, and what is wrong."""
    message = str(error)
    if error.name is not None and error.name not in message:
        message = f"{error.name}: {message}"
    if error.name is not None and error.name in static:
        message = f"{static[error.name].origin}: {message}"
    return UsageError(message)


def check_names(layer: Layer) -> None:
    """Raises UsageError for a name that Kafka doesn't have and never had."""
    for name, setting in layer.items():
        if not _is_known(name) and what_became_of(name) is None:
            raise UsageError(f"{setting.origin}: {_no_setting(name, _suggestion(name))}")


def _is_known(name: str) -> bool:
    return name in OF_AUTHORIZER or broker_definition(without_listener(name) or name) is not None


def _no_setting(name: str, suggestion: str | None, then: str = "") -> str:
    hint = f"; did you mean {suggestion}?" if suggestion else ""
    whose = "barnabas" if _is_nearly_own(name) else "a Kafka broker"
    return f"{name} isn't a setting of {whose}{then}{hint}"


def _sort_out_names(static: Layer, warnings: list[str]) -> None:
    """Add a warning for each name that Kafka doesn't have, or has no more. As in Kafka, it stays without
    effect."""
    for name, setting in list(static.items()):
        if _is_known(name):
            continue
        became = what_became_of(name)
        if became is not None:
            warnings.append(f"{setting.origin}: {name} is obsolete and ignored: {became}")
            continue
        suggestion = _suggestion(name)
        if _is_nearly_own(name):  # it may be there to keep somebody out
            raise UsageError(f"{setting.origin}: {_no_setting(name, suggestion)}")
        if setting.origin.startswith(PREFIX):
            # A variable may be for something else about Kafka: only a near miss is worth a line.
            del static[name]
            if suggestion is None:
                continue
        warnings.append(f"{setting.origin}: {_no_setting(name, suggestion, ' and is ignored')}")


def _is_nearly_own(name: str) -> bool:
    """True if it looks like a misspelled setting of barnabas, perhaps for a listener."""
    _, own, rest = name.lower().rpartition(_OWN)
    if not own:
        return False
    from difflib import get_close_matches

    return bool(get_close_matches(own + rest, OWN_ROWS, n=1, cutoff=0.7))


def _suggestion(name: str) -> str | None:
    from broker.config.topic_config import TOPIC_SYNONYMS

    if name in TOPIC_SYNONYMS:
        return TOPIC_SYNONYMS[name][0][0]
    from difflib import get_close_matches

    setting = without_listener(name) or name
    near = get_close_matches(
        setting, [*BROKER_ROWS, *DYNAMIC_ONLY_ROWS, *OWN_ROWS, *OF_AUTHORIZER], n=1, cutoff=0.8
    )
    return name.removesuffix(setting) + near[0] if near else None


def _check_values(static: Layer, warnings: list[str], joins: bool) -> None:
    """Parse the given values, refuse unsupported ones, and lower excessive ones. Raises UsageError."""
    of_several = joins or is_only_controller(static)
    for name, setting in static.items():
        definition = broker_definition(name)
        if definition is None:
            continue
        try:
            value = parse_value(definition, setting.value)
        except ConfigError as error:
            raise usage_error(error, static) from None
        if name == COMPRESSION_TYPE and is_missing(setting.value):
            if setting.origin == TYPED:
                raise UsageError(f"{setting.origin}: {name}={setting.value} can't be: {REMEDY}")
            warnings.append(
                f"{setting.origin}: {name}={setting.value}: {REMEDY}; batches are stored as they come"
            )
        if name in REFUSED:
            _refuse(name, setting, value_text(value) or "")
        if name in AT_MOST_ONE and not of_several and isinstance(value, int) and value > 1:
            warnings.append(
                f"{setting.origin}: {name}={value} is taken as 1: on one node {AT_MOST_ONE[name]}"
            )
            static[name] = Setting("1", setting.origin)
        is_class = definition.type is ConfigType.CLASS and value not in (
            RACK_AWARE_SELECTOR,
            definition.default,
        )
        if is_class and value:
            warnings.append(f"{setting.origin}: {name} names a Java class, which isn't loaded: ignored")
        if name == "process.roles" and value == ("broker",) and not joins:
            warnings.append(
                f"{setting.origin}: process.roles=broker: this node is its own controller all the same"
            )
    if of_several and not {"node.id", "broker.id"} & {*static}:
        roles = static["process.roles"]
        raise UsageError(
            f"{roles.origin}: process.roles={roles.value}: a node of a cluster needs its own node.id"
        )


def _refuse(name: str, setting: Setting, text: str) -> None:
    values, reason = REFUSED[name]
    if text in values if values else text:
        raise UsageError(f"{setting.origin}: {name}={text} is refused: {reason}")


def is_cluster_id(text: str) -> bool:
    """True if the text is 16 bytes in Kafka's form: URL-safe base64 without padding."""
    return len(text) == 22 and _CLUSTER_ID_CHARACTERS.issuperset(text)


def _checked_cluster_id(cluster_id: Setting | None, warnings: list[str]) -> str | None:
    if cluster_id is None:
        return None
    if is_cluster_id(cluster_id.value):
        return cluster_id.value
    warnings.append(
        f"{cluster_id.origin}: {cluster_id.value} is no cluster id (22 characters of base64): ignored"
    )
    return None


def directories_given(layers: Sequence[Mapping[str, Setting]]) -> bool:
    """True if any layer sets the folders for data."""
    return any("log.dirs" in layer or "log.dir" in layer for layer in layers)

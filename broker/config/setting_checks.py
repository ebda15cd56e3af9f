"""Checks of settings: those that have to agree with each other, and which checks run on which occasion.

A setting's definition (`definitions`) says which single values are valid. Checks for one kind of settings are
in that kind's file (`topic_config`, `group_config`, `client_metrics_config`, `reconfiguration`). `check` runs
them in Kafka's order, and the user learns of the first that fails. DescribeConfigs runs none of them: it
shows what is in force.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from broker.config.broker_config import (
    BOOTSTRAP_SERVERS,
    CONNECTIONS_PER_HOST,
    QUORUM,
    VOTERS,
    bootstrap_servers,
    connections_per_host,
    voters,
)
from broker.config.client_metrics_config import check_client_metrics_configs
from broker.config.definitions import ConfigError, Value, invalid_value, trimmed
from broker.config.group_config import check_group_configs
from broker.config.listeners import parse_endpoint
from broker.config.reconfiguration import (
    check_dynamic,
    check_only_at_start,
    check_reconfiguration,
    check_stored,
)
from broker.config.topic_config import check_overrides, check_topic_configs
from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig


COMPRESSION_TYPE = "compression.type"
REMEDY = "it needs the package cramjam, which isn't installed: pip install 'barnabas[compression]'"


def is_missing(compression_type: str) -> bool:
    """True if batches can't be compressed with this type, so that they are stored as they arrive."""
    # Imported here, so that the start doesn't load it.
    from protocol.records.checks import TARGET_CODECS
    from protocol.records.compression import is_available

    codec = TARGET_CODECS.get(trimmed(compression_type))
    return codec is not None and not is_available(codec)


def check_codec(wanted: Mapping[str, str | None], stored: Mapping[str, str]) -> None:
    """Raises ConfigError if `wanted` asks for a missing codec. A `stored` one stays: another node may want
    it."""
    value = wanted.get(COMPRESSION_TYPE)
    if value is not None and value != stored.get(COMPRESSION_TYPE) and is_missing(value):
        raise invalid_value(COMPRESSION_TYPE, value, REMEDY)


# --- Settings that have to agree: KafkaConfig.validateValues and GroupCoordinatorConfig ---------------------
# Only relations that concern a single node, and only those with a setting that the user has set: defaults
# agree with each other.

_MEBIBYTE = 1024 * 1024

_AT_LEAST = "greater than or equal to"
_AT_MOST = "less than or equal to"
_BELOW = "less than"

_TAGS = "group.streams.rack.aware.assignment.tags"

_RETENTION = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")


def check_consistency(get: Callable[[str], Value], touched: Collection[str]) -> None:
    """Raise ConfigError if a setting in `touched` contradicts another one. `get` returns values in force."""

    def number(name: str) -> float:
        value = get(name)
        assert isinstance(value, int | float)
        return value

    if "node.id" in touched and "broker.id" in touched and get("node.id") != get("broker.id"):
        raise ConfigError("You must set `node.id` to the same value as `broker.id`.", "broker.id")
    for left, relation, right in _relations():
        if (left in touched or right in touched) and not _holds(number(left), relation, number(right)):
            raise ConfigError(f"{left} must be {relation} {right}", left if left in touched else right)
    _check_logs(get, touched)
    _check_connections(get, touched)
    protocols = "group.coordinator.rebalance.protocols"
    if protocols in touched and "classic" not in _strings(get(protocols)):
        raise ConfigError("Disabling the 'classic' protocol is not supported.", protocols)
    assignors = "group.share.assignors"
    if assignors in touched and len(_strings(get(assignors))) != 1:
        found = len(_strings(get(assignors)))
        raise ConfigError(f"{assignors} must contain exactly one assignor, but found {found}", assignors)
    assignors = "group.streams.assignors"
    for name in _strings(get(assignors)) if assignors in touched else ():
        if name != "sticky":  # Kafka's only one; users' own classes don't exist here
            raise invalid_value(assignors, name, "Class cannot be found")


def _holds(left: float, relation: str, right: float) -> bool:
    if relation == _AT_LEAST:
        return left >= right
    return left <= right if relation == _AT_MOST else left < right


def _relations() -> Iterator[tuple[str, str, str]]:
    for group in ("group.consumer", "group.share", "group.streams"):
        for what in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
            yield f"{group}.max.{what}", _AT_LEAST, f"{group}.min.{what}"
            yield f"{group}.{what}", _AT_LEAST, f"{group}.min.{what}"
            yield f"{group}.{what}", _AT_MOST, f"{group}.max.{what}"
        yield f"{group}.heartbeat.interval.ms", _BELOW, f"{group}.session.timeout.ms"
    yield "group.streams.num.standby.replicas", _AT_MOST, "group.streams.max.standby.replicas"
    interval = "group.streams.task.offset.interval.ms"
    yield interval, _AT_LEAST, "group.streams.min.task.offset.interval.ms"
    yield "group.streams.num.warmup.replicas", _AT_MOST, "group.streams.max.warmup.replicas"


def _check_logs(get: Callable[[str], Value], touched: Collection[str]) -> None:
    for name, least in (("log.roll.ms", 1), ("log.roll.jitter.ms", 0)):
        value = get(name) if name in touched else None
        if isinstance(value, int) and value < least:
            raise ConfigError(f"{name} must be greater than or equal to {least}", name)
    for name in _RETENTION:
        if name in touched and get(name) is not None:
            if get(name) == 0:
                raise ConfigError(
                    "log.retention.ms must be unlimited (-1) or, greater than or equal to 1", name
                )
            break
    buffer, threads = "log.cleaner.dedupe.buffer.size", "log.cleaner.threads"
    if buffer in touched or threads in touched:
        size, count = get(buffer), get(threads)
        assert isinstance(size, int)
        assert isinstance(count, int)
        if count < 1:
            raise ConfigError(f"{threads} must be at least 1", threads)  # Kafka divides by it
        if size // count <= _MEBIBYTE:
            raise ConfigError(
                "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
                buffer if buffer in touched else threads,
            )
    cordoned = _strings(get("cordoned.log.dirs")) if "cordoned.log.dirs" in touched else ()
    if "*" in cordoned and len(cordoned) != 1:
        raise ConfigError(
            "When cordoned.log.dirs is set to *, it must not contain other values", "cordoned.log.dirs"
        )
    log_dirs = _strings(get("log.dirs") or get("log.dir"))
    missing = [directory for directory in cordoned if directory not in log_dirs and directory != "*"]
    if missing:
        raise ConfigError(
            "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
            f"Missing entries : {', '.join(missing)}",
            "cordoned.log.dirs",
        )


def _check_connections(get: Callable[[str], Value], touched: Collection[str]) -> None:
    queued, largest = "queued.max.request.bytes", "socket.request.max.bytes"
    if queued in touched or largest in touched:
        bytes_queued, bytes_largest = get(queued), get(largest)
        assert isinstance(bytes_queued, int)
        assert isinstance(bytes_largest, int)
        if 0 < bytes_queued < bytes_largest:
            raise ConfigError(
                f"{queued} must be larger or equal to {largest}", queued if queued in touched else largest
            )
    delay, idle = "connection.failed.authentication.delay.ms", "connections.max.idle.ms"
    if delay in touched or idle in touched:
        delay_ms, idle_ms = get(delay), get(idle)
        assert isinstance(delay_ms, int)
        assert isinstance(idle_ms, int)
        if 0 <= idle_ms <= delay_ms:
            raise ConfigError(
                f"{delay}={delay_ms} should always be less than {idle}={idle_ms} to prevent failed authentication "
                "responses from timing out",
                delay if delay in touched else idle,
            )
    per_ip, overrides = "max.connections.per.ip", CONNECTIONS_PER_HOST
    if overrides in touched:
        connections_per_host(get(overrides))
    if per_ip in touched and get(per_ip) == 0 and not connections_per_host(get(overrides)):
        raise ConfigError(f"{per_ip} can be set to zero only if {overrides} property is set.", per_ip)


def _strings(value: Value) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


# --- The relation of a node and its controllers: the part of validateValues that depends on the role --------

CONTROLLER_NAMES = "controller.listener.names"
_AUTO_JOIN = "controller.quorum.auto.join.enable"


def check_quorum(config: BrokerConfig) -> None:
    """Raises ConfigError if the settings don't allow finding the controllers, or if a broker that joins them
    has settings of a controller."""
    bootstrap_servers(config.get_list(BOOTSTRAP_SERVERS))
    ids = voters(config.get_list(VOTERS))
    others = sorted(ids.keys() - {config.node_id})
    if config.is_only_controller and others:
        raise ConfigError(
            f"{VOTERS} names node {others[0]}, but a quorum of several isn't supported yet: with "
            f"process.roles=controller it is {config.node_id}@host:port alone",
            VOTERS,
        )
    if not config.joins:
        return
    if config.node_id in ids:
        raise ConfigError(
            f"{VOTERS} has node.id={config.node_id}, but with process.roles=broker this node isn't a "
            "controller: it needs another node.id",
            VOTERS,
        )
    if CONTROLLER_NAMES not in config.static:
        raise ConfigError(
            f"{CONTROLLER_NAMES} must contain at least one value with process.roles=broker: the name of the "
            "controllers' listener, such as CONTROLLER",
            "process.roles",
        )
    if config.get_boolean(_AUTO_JOIN):
        raise ConfigError(f"{_AUTO_JOIN} is only supported if process.roles contains controller", _AUTO_JOIN)


def other_controllers(config: BrokerConfig) -> Iterator[str]:
    """Return a warning if a node that is its own cluster's only controller has settings that name others: it
    doesn't ask them."""
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
                f"{setting.origin}: {name}={setting.value} names other controllers, but none of them is asked: this "
                "node is its own controller, in a cluster of its own; with process.roles=broker it would join theirs"
            )


# --- Classes that would decide who is let in, and as whom ---------------------------------------------------

_SECURITY = "org.apache.kafka.common.security."
_HANDLER = "sasl.server.callback.handler.class"

_CLASSES_AT_THE_DOOR: dict[str, tuple[str, ...]] = {
    "principal.builder.class": (_SECURITY + "authenticator.DefaultKafkaPrincipalBuilder",),
    "ssl.engine.factory.class": (_SECURITY + "ssl.DefaultSslEngineFactory",),
    "plain." + _HANDLER: (_SECURITY + "plain.internals.PlainServerCallbackHandler",),
    "scram-sha-256." + _HANDLER: (),
    "scram-sha-512." + _HANDLER: (),
}
"""The built-in classes, by setting. The setting may have a listener's prefix."""


def check_classes(config: BrokerConfig) -> None:
    """Raises ConfigError for users' own classes. If they were ignored, clients that they refuse would be let
    in."""
    for name in config.static:
        own = name.removeprefix("listener.name.")
        setting = name if own == name else own.partition(".")[2]
        built_in = _CLASSES_AT_THE_DOOR.get(setting)
        given = trimmed(config.text_given(name) or "")
        if built_in is not None and given and given not in built_in:
            known = f"{built_in[0]} is" if built_in else "none is, and none is needed"
            raise ConfigError(
                f"{name}={given} is refused: no Java class can be loaded; {known} built in", name
            )


# --- Which checks run on which occasion, and in which order -------------------------------------------------


class Occasion(Enum):
    """When settings are checked."""

    START = auto()
    """A broker starts with the settings of file, environment and command line. Each value is valid by
    itself."""
    REPLAY = auto()
    """The metadata log has a setting of this broker or of all."""
    ALTER_BROKER = auto()
    """A client alters settings of this broker or of all."""
    ALTER_BROKER_WITH_ELR = auto()
    """The same, in a cluster with eligible leader replicas (KIP-966). The controller checks it, after the
    broker."""
    CREATE_TOPIC = auto()
    ALTER_TOPIC = auto()
    ALTER_GROUP = auto()
    ALTER_CLIENT_METRICS = auto()


class Proposal:
    """The settings to check.

    - `config`: the settings in force.
    - `wanted`: all settings that the resource should have. With ALTER_BROKER_WITH_ELR, those that change.
    - `stored`: the settings that a topic or a broker already has.
    - `per_broker`: True for this broker, False for all.
    - `after`: for a broker, the configuration that would be in force.
    """

    __slots__ = ("after", "config", "per_broker", "stored", "wanted")

    def __init__(
        self,
        config: BrokerConfig,
        wanted: Mapping[str, Any],
        *,
        stored: Mapping[str, str] | None = None,
        per_broker: bool = False,
        after: BrokerConfig | None = None,
    ) -> None:
        self.config = config
        self.wanted = wanted
        self.stored = stored or {}
        self.per_broker = per_broker
        self.after = config if after is None else after


def check(occasion: Occasion, proposal: Proposal) -> None:
    """Run the checks. Raises ConfigError for invalid settings of a broker, KafkaError for those of other
    resources."""
    for each in CHECKS[occasion]:
        each(proposal)


def _can_be_altered(proposal: Proposal) -> None:
    check_dynamic(proposal.wanted, per_broker=proposal.per_broker)


def _are_hosts(proposal: Proposal) -> None:
    if CONNECTIONS_PER_HOST in proposal.wanted:
        connections_per_host(proposal.wanted[CONNECTIONS_PER_HOST])


def _are_legal_by_now(proposal: Proposal) -> None:
    for name, text in proposal.wanted.items():
        check_stored(name, text)


def _wait_for_no_start(proposal: Proposal) -> None:
    if proposal.per_broker:
        check_only_at_start(proposal.wanted, proposal.config.dynamic_broker)


def _agree(proposal: Proposal) -> None:
    check_consistency(proposal.after.get, proposal.wanted)


def _have_each_tag_once(proposal: Proposal) -> None:
    tags = [tag.strip() for tag in (proposal.config.text_given(_TAGS) or "").split(",")]
    if len(set(tags)) != len(tags):  # checked in the text, since parsing drops repeated elements
        raise ConfigError(f"{_TAGS} must not contain duplicate tag keys.", _TAGS)


def _let_nobody_in_by_others(proposal: Proposal) -> None:
    check_classes(proposal.config)


def _find_their_controllers(proposal: Proposal) -> None:
    check_quorum(proposal.config)


def _can_be_gone_over_to(proposal: Proposal) -> None:
    check_reconfiguration(proposal.config, proposal.after)


def _keep_min_insync_replicas(proposal: Proposal) -> None:
    changes = proposal.wanted
    if "min.insync.replicas" not in changes:
        return
    if proposal.per_broker:
        raise KafkaError(
            Error.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
        )
    if changes["min.insync.replicas"] is None:
        raise KafkaError(
            Error.INVALID_CONFIG, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
        )


def _suit_a_new_topic(proposal: Proposal) -> None:
    check_topic_configs(proposal.config, proposal.wanted)


def _suit_a_topic(proposal: Proposal) -> None:
    check_overrides(proposal.config, proposal.wanted)


def _can_be_packed(proposal: Proposal) -> None:
    check_codec(proposal.wanted, proposal.stored)


def _can_be_packed_of_a_topic(proposal: Proposal) -> None:
    try:
        _can_be_packed(proposal)
    except ConfigError as error:
        raise KafkaError(Error.INVALID_CONFIG, str(error)) from None


def _suit_a_group(proposal: Proposal) -> None:
    check_group_configs(proposal.config, proposal.wanted)


def _suit_a_subscription(proposal: Proposal) -> None:
    check_client_metrics_configs(proposal.wanted)


CHECKS: dict[Occasion, tuple[Callable[[Proposal], None], ...]] = {
    Occasion.START: (_agree, _have_each_tag_once, _let_nobody_in_by_others, _find_their_controllers),
    Occasion.REPLAY: (_can_be_altered, _are_hosts, _are_legal_by_now),
    Occasion.ALTER_BROKER: (
        _can_be_altered,
        _wait_for_no_start,
        _agree,
        _can_be_gone_over_to,
        _can_be_packed,
    ),
    Occasion.ALTER_BROKER_WITH_ELR: (_keep_min_insync_replicas,),
    Occasion.CREATE_TOPIC: (_suit_a_new_topic, _can_be_packed_of_a_topic),
    Occasion.ALTER_TOPIC: (_suit_a_topic, _can_be_packed_of_a_topic),
    Occasion.ALTER_GROUP: (_suit_a_group,),
    Occasion.ALTER_CLIENT_METRICS: (_suit_a_subscription,),
}

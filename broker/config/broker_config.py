"""The configuration in force: the settings from the start, and later alterations.

A value comes from the first of these that has it: this broker's dynamic settings, the cluster's, the static
ones (file, environment, command line), our defaults for a single node on somebody's machine (`DEFAULTS`),
Kafka's default. Values are parsed when first used, and kept until something is altered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from broker.config.broker_definitions import BROKER_SYNONYMS, broker_definition, listener_prefix
from broker.config.definitions import ConfigError, Value, parse_int, parse_value, trimmed
from broker.config.given_settings import Setting

if TYPE_CHECKING:
    from broker.config.definitions import ConfigDef
    from broker.config.listeners import ListenerConfig
    from broker.security.sasl_client import Credentials


class OwnDefault(NamedTuple):
    """A default that differs from Kafka's, and the reason."""

    value: str
    reason: str


DEFAULTS: dict[str, OwnDefault] = {
    "node.id": OwnDefault("1", "Kafka has no default, and doesn't start without the setting"),
    "process.roles": OwnDefault("broker,controller", "Kafka has no default. A single node has both roles"),
    "controller.listener.names": OwnDefault(
        "CONTROLLER", "Kafka has no default. Its example files use this name"
    ),
    "listeners": OwnDefault(
        "PLAINTEXT://127.0.0.1:9092", "without passwords, only programs on the same machine should connect"
    ),
    "offsets.topic.replication.factor": OwnDefault(
        "1", "a single node can't have 3 replicas: offsets could never be stored"
    ),
    "transaction.state.log.replication.factor": OwnDefault("1", "the same: transactions would hang"),
    "transaction.state.log.min.isr": OwnDefault(
        "1", "a single node has 1 replica in sync, never 2: transactions would hang"
    ),
    "share.coordinator.state.topic.replication.factor": OwnDefault("1", "the same: share groups would hang"),
    "share.coordinator.state.topic.min.isr": OwnDefault("1", "the same: share groups would hang"),
    "group.initial.rebalance.delay.ms": OwnDefault(
        "100",
        "Kafka waits 3 s for other members. Members that a test starts together come within 100 ms",
    ),
    "group.streams.initial.rebalance.delay.ms": OwnDefault("0", "the same, for Kafka Streams"),
}
"""Kafka's Docker image and its quick start set most of these in the same way."""

SHOWN_AS_GIVEN = ("node.id", "process.roles", "controller.listener.names")
"""In Kafka, these always come from the file, so they are described as static, not as defaults."""

AT_MOST_ONE: dict[str, str] = {
    "default.replication.factor": "a topic can't have more replicas than there are brokers",
    "offsets.topic.replication.factor": "a group's offsets could never be stored",
    "transaction.state.log.replication.factor": "transactions would hang",
    "transaction.state.log.min.isr": "transactions would hang",
    "share.coordinator.state.topic.replication.factor": "share groups would hang",
    "share.coordinator.state.topic.min.isr": "share groups would hang",
}
"""Settings that are lowered to 1 if the user sets more, and what would happen otherwise.

Files made for three brokers are the most common reason why a local Kafka hangs.
"""

REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "remote.log.storage.system.enable": (("true",), "tiered storage isn't built"),
    "config.providers": ((), "config providers aren't built; write the values themselves"),
}
"""Setting -> (the refused values, or none for all except an empty one; the reason).

Only what a user would rely on in vain. Everything else that isn't supported is accepted without effect, so
that files made for Kafka work.
"""


# --- A node's role in its cluster, by `process.roles` and related settings (Kafka: QuorumConfig) ------------

BOOTSTRAP_SERVERS, VOTERS = "controller.quorum.bootstrap.servers", "controller.quorum.voters"
QUORUM = (BOOTSTRAP_SERVERS, VOTERS)
"""Where the controllers are. The first one that isn't empty counts."""

Address = tuple[str, int]
"""Host and port."""

_HOST_AND_PORT = re.compile(r"\[?([0-9a-zA-Z\-%._:]+)\]?:([0-9]+)", re.ASCII)
"""Kafka's `Utils.HOST_PORT_PATTERN`, which also accepts an empty host and a leading scheme."""


def is_only_controller(static: Mapping[str, Setting]) -> bool:
    """True if the node isn't a broker."""
    roles = static.get("process.roles")
    return roles is not None and [each.strip() for each in roles.value.split(",")] == ["controller"]


def controls(static: Mapping[str, Setting]) -> bool:
    """True if this node may control others, at a controller's listener."""
    roles = static.get("process.roles")
    return roles is None or "controller" in map(str.strip, roles.value.split(","))


def joins_a_cluster(static: Mapping[str, Setting]) -> bool:
    """True if another node is the controller. A file that says this node isn't one, but not who is, was made
    for a node beside a controller. Alone, the node is its own."""
    roles = static.get("process.roles")
    if roles is None or "controller" in map(str.strip, roles.value.split(",")):
        return False
    return any(name in static and static[name].value.strip() for name in QUORUM)


def bootstrap_servers(entries: Sequence[str]) -> list[Address]:
    """Parse `controller.quorum.bootstrap.servers`, a list of `host:port`. Raises ConfigError."""
    return [_address(entry, entry, BOOTSTRAP_SERVERS, "host:port") for entry in entries]


def voters(entries: Sequence[str]) -> dict[int, Address]:
    """Parse `controller.quorum.voters`, a list of `id@host:port`, by id. Raises ConfigError."""
    found: dict[int, Address] = {}
    for entry in entries:
        node_id, at, address = entry.partition("@")
        if not at or "@" in address:
            raise _no_entry(entry, VOTERS, "id@host:port", "there is no id")
        if re.fullmatch(r"[+-]?[0-9]{1,10}", node_id) is None or not abs(int(node_id)) < 1 << 31:
            raise _no_entry(entry, VOTERS, "id@host:port", f"{node_id or 'nothing'} is no id")
        host, port = _address(entry, address, VOTERS, "id@host:port")
        if host == "0.0.0.0":  # noqa: S104
            raise ConfigError(
                f"{VOTERS}: host 0.0.0.0 of {entry} is not routable: others can't reach it", VOTERS
            )
        found[int(node_id)] = host, port
    return found


def _address(entry: str, text: str, name: str, form: str) -> Address:
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None:
        raise _no_entry(entry, name, form, "there is no host and port")
    host, port = match.groups()
    if len(port) > 5 or not 0 < int(port) < 65_536:
        raise _no_entry(entry, name, form, f"{port} is no port")
    return host, int(port)


def _no_entry(entry: str, name: str, form: str, reason: str) -> ConfigError:
    return ConfigError(f"{name}: failed to parse {entry}: {reason}; each entry is {form}", name)


# --- `max.connections.per.ip.overrides`: the most connections of single hosts -------------------------------

CONNECTIONS_PER_HOST = "max.connections.per.ip.overrides"

_COMMA = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")
_HOST = re.compile(r"[0-9a-zA-Z\-%._:]*")  # Utils.validHostPattern


def connections_per_host(value: Value) -> dict[str, int]:
    """Parse `max.connections.per.ip.overrides`: host -> number. The last colon separates them (Kafka:
    `Csv.parseCsvMap`).

    The host may be empty, and the number negative: then nobody is let in. Raises ConfigError.
    """
    name = CONNECTIONS_PER_HOST
    limits: dict[str, int] = {}
    entries = _COMMA.split(str(value or ""))
    while entries and not entries[-1]:
        del entries[-1]  # like Java's String.split
    for entry in entries:
        host, colon, text = entry.rpartition(":")
        number = parse_int(trimmed(text))
        if not colon or number is None:
            raise ConfigError(f"Error parsing configuration property '{name}': {entry}", name)
        limits[trimmed(host)] = number
    invalid = [host for host in limits if _HOST.fullmatch(host) is None]
    if invalid:
        raise ConfigError(f"{name} contains invalid addresses : {','.join(invalid)}", name)
    return limits


# --- Authorization ------------------------------------------------------------------------------------------

AUTHORIZER = "authorizer.class.name"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SUPER_USERS, ALLOW_EVERYONE = "super.users", "allow.everyone.if.no.acl.found"
OF_AUTHORIZER = (SUPER_USERS, ALLOW_EVERYONE)
"""The authorizer's class reads these itself: Kafka has no definition of them, and describes them without a
value."""


class AuthorizerSettings(NamedTuple):
    """The settings of StandardAuthorizer. Principals are `Type:name`."""

    super_users: frozenset[str]
    allow_if_no_acl: bool


def authorizer_settings(config: BrokerConfig) -> AuthorizerSettings | None:
    """Return the settings, or None if everybody may do everything. Raises ConfigError."""
    class_name = config.get_string(AUTHORIZER)
    if not class_name:
        return None
    if class_name != STANDARD_AUTHORIZER:
        raise ConfigError(
            f"{AUTHORIZER}={class_name} is refused: no Java class can be loaded; {STANDARD_AUTHORIZER} is built in",
            AUTHORIZER,
        )
    users = frozenset(filter(None, map(trimmed, (config.text_given(SUPER_USERS) or "").split(";"))))
    for user in users:
        kind, colon, _ = user.partition(":")
        if not kind or not colon:
            raise ConfigError(
                f"{SUPER_USERS}: expected a string in format principalType:principalName but got {user}",
                SUPER_USERS,
            )
    return AuthorizerSettings(users, trimmed(config.text_given(ALLOW_EVERYONE) or "").lower() == "true")


# --- Signing in ---------------------------------------------------------------------------------------------

MECHANISMS_ENABLED, JAAS = "sasl.enabled.mechanisms", "sasl.jaas.config"
MAX_REAUTH = "connections.max.reauth.ms"


class SaslConfig(NamedTuple):
    """A listener's SASL settings: the mechanisms in the given order; the passwords of PLAIN by user; by
    mechanism, how long a client may stay after signing in, in ms (0: forever); and the accepted tokens of
    OAUTHBEARER."""

    mechanisms: tuple[str, ...]
    passwords: Mapping[str, str]
    max_reauth_ms: Mapping[str, int]
    tokens: TokenConfig | None = None

    def __repr__(self) -> str:
        return f"SaslConfig({', '.join(self.mechanisms)})"  # without passwords


class TokenConfig(NamedTuple):
    """A listener's settings for OAUTHBEARER. Without a URL of keys, tokens aren't signed, and the JAAS
    `options` apply."""

    options: Mapping[str, str]
    jwks_url: str | None = None
    refresh_ms: int = 0
    backoff_ms: int = 0
    backoff_max_ms: int = 0
    audiences: frozenset[str] = frozenset()
    issuer: str | None = None
    skew_s: int = 0
    scope_claim: str = ""
    user_claim: str = ""

    def __repr__(self) -> str:
        return "TokenConfig(...)"  # a URL or an option may hold a secret


def jaas_options(name: str, line: str, module: str) -> dict[str, str]:
    """Return the options of this login module in the JAAS line under a name. Raises ConfigError, without any
    password."""
    from broker.security import sasl  # here: most listeners are such that nobody signs in to them

    try:
        given, options = sasl.jaas_options(line)
    except sasl.JaasError as error:
        raise ConfigError(f"{name} is invalid: {error}", name) from None
    if given != module:
        raise ConfigError(f"{name}: no Java class can be loaded; {module} is built in", name)
    return options


def sasl_config(config: BrokerConfig, listener_name: str) -> SaslConfig:
    """Return a listener's SASL settings. Raises ConfigError, without any password."""
    from broker.security import sasl  # here: most listeners are such that nobody signs in to them

    prefix = listener_prefix(listener_name)
    name = config.name_given(MECHANISMS_ENABLED, listener_name)
    given = config.text_given(name)
    mechanisms = tuple(dict.fromkeys(filter(None, map(trimmed, (given or "GSSAPI").split(",")))))
    unknown = [each for each in mechanisms if each not in sasl.MECHANISMS]
    if unknown or not mechanisms:
        raise ConfigError(
            f"{name}: {', '.join(unknown) or 'none'} isn't built; listener {listener_name} can have "
            f"{', '.join(sasl.MECHANISMS)}",
            MECHANISMS_ENABLED if name not in config.static else name,
        )
    passwords: dict[str, str] = {}
    if sasl.PLAIN in mechanisms:
        name = f"{prefix}plain.{JAAS}"
        line = config.text_given(name)
        if not line:
            raise ConfigError(
                f'{name} has to say who may sign in: {sasl.PLAIN_MODULE} required user_alice="her password";',
                MECHANISMS_ENABLED,
            )
        passwords = sasl.passwords_of(jaas_options(name, line, sasl.PLAIN_MODULE))
    lifetimes = {}
    for mechanism in mechanisms:
        own = config.text_given(f"{prefix}{mechanism.lower()}.{MAX_REAUTH}")
        given = config.text_given(config.name_given(MAX_REAUTH, listener_name)) if own is None else own
        number = parse_int(given or "0")
        if number is None:
            raise ConfigError(f"{MAX_REAUTH} of listener {listener_name} isn't a number", MAX_REAUTH)
        lifetimes[mechanism] = number
    return SaslConfig(mechanisms, passwords, lifetimes)


class Outgoing(NamedTuple):
    """How this node connects to a listener of other nodes (`broker.config.outgoing`). `credentials` are those
    it signs in with; None if it doesn't."""

    listener_name: str
    security_protocol: str
    credentials: Credentials | None = None


# --- All settings in force ----------------------------------------------------------------------------------

REPLICA_SELECTOR = "replica.selector.class"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class BrokerConfig:
    """All settings of this broker, under Kafka's names.

    - `static`: those from file, environment and command line, with their origins. Never changes.
    - `dynamic_broker`, `dynamic_cluster`: those that IncrementalAlterConfigs has set for this broker and for
      all.
    - `listeners`: the broker's addresses to bind. None if the node is only a controller.
    - `controller_listeners`: the controller's.
    - `metrics_listener`: the one for metrics over HTTP, if any.
    - `control_listener`: the one where tests ask for faults and the like, over HTTP, if any.
    - `closed_to_brokers`: the names of listeners that refuse requests between brokers.
    - `sasl`: how clients sign in, by the names of SASL listeners, including the controller's.
    - `to_brokers`, `to_controllers`: how this node connects to others, if there are any.
    - `authorizer`: the settings of authorization. None if everybody may do everything.
    - `cluster_id`: the id for a new data folder, if the user gave one.
    - `release_version`: the Kafka whose level a new cluster starts with, such as 4.3-IV0, if the user gave
      one.
    - `warnings`: lines to log at the start.
    - `joins`: True if another node is the controller.
    - `generation`: counts alterations, so that others can cache what they derive.
    """

    __slots__ = (
        "_effective",
        "_parsed",
        "authorizer",
        "closed_to_brokers",
        "cluster_id",
        "control_listener",
        "controller_listeners",
        "dynamic_broker",
        "dynamic_cluster",
        "generation",
        "joins",
        "listeners",
        "metrics_listener",
        "release_version",
        "sasl",
        "static",
        "to_brokers",
        "to_controllers",
        "warnings",
    )

    def __init__(
        self,
        static: Mapping[str, Setting],
        *,
        listeners: tuple[ListenerConfig, ...] = (),
        cluster_id: str | None = None,
        release_version: str | None = None,
        warnings: Iterable[str] = (),
    ) -> None:
        self.static = static
        self.joins = joins_a_cluster(static)
        self.listeners = listeners
        self.controller_listeners: tuple[ListenerConfig, ...] = ()
        self.metrics_listener: tuple[ListenerConfig, ...] = ()
        self.control_listener: tuple[ListenerConfig, ...] = ()
        self.closed_to_brokers: frozenset[str] = frozenset()
        self.authorizer: AuthorizerSettings | None = None
        self.sasl: dict[str, SaslConfig] = {}
        self.to_brokers: Outgoing | None = None
        self.to_controllers: Outgoing | None = None
        self.cluster_id = cluster_id
        self.release_version = release_version
        self.warnings = list(warnings)
        self.dynamic_broker: Mapping[str, str] = {}
        self.dynamic_cluster: Mapping[str, str] = {}
        self.generation = 0
        self._parsed: dict[str, Value] = {}
        self._effective: dict[str, str] = {name: setting.value for name, setting in static.items()}

    # --- values ---------------------------------------------------------------------------------------------

    def get(self, name: str) -> Value:
        """The value in force. Raises ConfigError if it is invalid (`assemble` rules that out)."""
        try:
            return self._parsed[name]
        except KeyError:
            definition = broker_definition(name)
            assert definition is not None, f"{name} is no setting"
            value = parse_value(definition, self.effective_text(definition))
            self._parsed[name] = value
            return value

    def get_int(self, name: str) -> int:
        """An INT, SHORT or LONG that isn't null."""
        value = self.get(name)
        assert isinstance(value, int), f"{name} is {value!r}"
        return value

    def get_optional_int(self, name: str) -> int | None:
        """An INT, SHORT or LONG, or None for null."""
        value = self.get(name)
        assert value is None or isinstance(value, int), f"{name} is {value!r}"
        return value

    def get_boolean(self, name: str) -> bool:
        """A BOOLEAN."""
        value = self.get(name)
        assert isinstance(value, bool), f"{name} is {value!r}"
        return value

    def get_string(self, name: str) -> str | None:
        """A STRING, CLASS or PASSWORD; None for null."""
        value = self.get(name)
        assert value is None or isinstance(value, str), f"{name} is {value!r}"
        return value

    def get_list(self, name: str) -> tuple[str, ...]:
        """A LIST; empty for null."""
        value = self.get(name)
        assert value is None or isinstance(value, tuple), f"{name} is {value!r}"
        return value or ()

    @property
    def node_id(self) -> int:
        """This node's id."""
        return self.get_int("node.id")

    @property
    def is_only_controller(self) -> bool:
        """True if the node isn't a broker."""
        return is_only_controller(self.static)

    @property
    def selects_replicas(self) -> bool:
        """True if consumers are sent to a replica in their rack."""
        return self.get_string(REPLICA_SELECTOR) == RACK_AWARE_SELECTOR

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The folders for data, at least one: `log.dirs`, otherwise `log.dir`."""
        return self.get_list("log.dirs") or self.get_list("log.dir")

    @property
    def controllers(self) -> Sequence[tuple[str, int]]:
        """The addresses of the quorum, as host and port. Empty if none are set."""
        addresses = bootstrap_servers(self.get_list(BOOTSTRAP_SERVERS))
        return addresses or [*voters(self.get_list(VOTERS)).values()]

    @property
    def inter_broker_listener(self) -> str:
        """The listener for connections between brokers. It has the same name on all of them."""
        name = self.get_string("inter.broker.listener.name")
        return (name or self.get_string("security.inter.broker.protocol") or "").upper()

    @property
    def max_connections_per_host(self) -> dict[str, int]:
        """`max.connections.per.ip.overrides`: host -> number."""
        return connections_per_host(self.get(CONNECTIONS_PER_HOST))

    # --- where values come from -----------------------------------------------------------------------------

    def effective_text(self, definition: ConfigDef) -> str | None:
        """The text in force, including defaults. None for null."""
        text = self._effective.get(definition.name)
        return self.default_text(definition) if text is None else text

    def default_text(self, definition: ConfigDef) -> str | None:
        """A setting's default here: our own if a single node needs another one than Kafka's."""
        name = definition.name
        of_several = self.joins or self.is_only_controller
        own = None if of_several and name in AT_MOST_ONE else DEFAULTS.get(name)
        return definition.default if own is None else own.value

    def text_given(self, name: str) -> str | None:
        """The text in force of any name that somebody has set, known or not. None if nobody has."""
        return self._effective.get(name)

    def name_given(self, name: str, listener_name: str) -> str:
        """The name under which a setting applies to a listener: its own, or the general one (Kafka:
        `AbstractConfig.valuesWithPrefixOverride`)."""
        own = listener_prefix(listener_name) + name
        return own if own in self._effective else name

    def effective_names(self) -> Iterable[str]:
        """All names that somebody has set, known or not."""
        return self._effective

    def origin(self, name: str) -> str:
        """Where the value in force was set, for messages: `server.properties:12`, `-o`, `the default`, ..."""
        if name in self.dynamic_broker or name in self.dynamic_cluster:
            return "altered"
        return self.static[name].origin if name in self.static else "the default"

    # --- alterations ----------------------------------------------------------------------------------------

    def set_dynamic(self, *, broker: Mapping[str, str] | None, cluster: Mapping[str, str] | None) -> None:
        """Put everything that was altered for this broker, or for all, into force. None leaves a side as it
        is.

        All of it has been checked: see `alterations.set_dynamic`.
        """
        if cluster is not None:
            self.dynamic_cluster = cluster
        if broker is not None:
            self.dynamic_broker = broker
        self.generation += 1
        self._parsed = {}
        self._effective = self._overlaid()
        self._clamp_intervals()

    def _overlaid(self) -> dict[str, str]:
        """Merge the layers. A setting hides its synonyms in other units in lower layers (overrideProps)."""
        effective = {name: setting.value for name, setting in self.static.items()}
        for layer in (self.dynamic_cluster, self.dynamic_broker):
            for name, text in layer.items():
                for synonym in BROKER_SYNONYMS.get(name, ()):
                    effective.pop(synonym, None)
                effective[name] = text
        return effective

    def _clamp_intervals(self) -> None:
        """Keep logged values within the static bounds, which may have changed since (clampDynamicConfigs)."""
        for group in ("group.consumer", "group.share", "group.streams"):
            name = f"{group}.assignment.interval.ms"
            if name in self._effective:
                lowest = self.get_int(f"{group}.min.assignment.interval.ms")
                highest = self.get_int(f"{group}.max.assignment.interval.ms")
                self._effective[name] = str(min(max(self.get_int(name), lowest), highest))
                del self._parsed[name]

    def altered(
        self, *, broker: Mapping[str, str] | None = None, cluster: Mapping[str, str] | None = None
    ) -> BrokerConfig:
        """Return the configuration with these alterations, for checking. This one stays, and nothing is
        ignored."""
        copy = BrokerConfig(self.static, listeners=self.listeners, cluster_id=self.cluster_id)
        copy.dynamic_broker = self.dynamic_broker if broker is None else broker
        copy.dynamic_cluster = self.dynamic_cluster if cluster is None else cluster
        copy._effective = copy._overlaid()
        return copy

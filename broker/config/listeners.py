"""Where the broker listens, and which addresses it tells its clients.

This covers `listeners`, `advertised.listeners`, `listener.security.protocol.map` and
`controller.listener.names`, with the checks of Kafka's AbstractKafkaConfig and KafkaConfig. The controller's
listeners are those in `controller.listener.names`. A node that is its own controller needs none of them: then
no other node can reach its controller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from broker.config.definitions import ConfigError

PLAINTEXT = "PLAINTEXT"
SECURITY_PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""In the order of their ids (Kafka: `SecurityProtocol`)."""
SASL = frozenset(("SASL_PLAINTEXT", "SASL_SSL"))
"""Clients sign in with these."""
ENCRYPTED = frozenset(("SSL", "SASL_SSL"))
EVERY_INTERFACE = frozenset(("", "0.0.0.0", "::"))  # noqa: S104 - names what users write, binds nothing

_HOST_CHARACTERS = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-%._:")


class Endpoint(NamedTuple):
    """`NAME://HOST:PORT`. An empty host is every interface."""

    name: str
    host: str
    port: int


class ListenerConfig(NamedTuple):
    """An address to bind. An empty `host` is every interface, and `port` 0 any free port.

    `advertised` is the host and port for clients; port 0 stands for the bound one. None if clients don't
    learn of this listener.
    """

    name: str
    security_protocol: str
    host: str
    port: int
    advertised: tuple[str, int] | None


_DEFAULT_INTER_BROKER = "PLAINTEXT"


class ListenerSettings(NamedTuple):
    """The settings in force. `protocol_map_given` is True if the user wrote the map. The settings for
    connections between brokers (`inter.broker.listener.name`, `security.inter.broker.protocol`) are None if
    they aren't set. `speaks_to_brokers` is True if there are other brokers."""

    listeners: Sequence[str]
    advertised: Sequence[str] | None
    protocol_map: str
    protocol_map_given: bool
    controller_names: Sequence[str]
    inter_broker_name: str | None = None
    inter_broker_protocol: str | None = None
    speaks_to_brokers: bool = False


def broker_listeners(settings: ListenerSettings, host_name: Callable[[], str]) -> tuple[ListenerConfig, ...]:
    """Return the broker's listeners to bind, in the given order.

    `host_name` is called for the machine's name if a listener on every interface isn't advertised under
    another one. (Kafka does so for an empty host; for 0.0.0.0 it refuses to start.) Raises ConfigError.
    """
    endpoints, protocols = _checked(settings)
    controllers = _controllers(settings)
    if settings.speaks_to_brokers:
        _check_controllers(endpoints, controllers, protocols)
    bound = [endpoint for endpoint in endpoints if endpoint.name not in controllers]
    if not bound:
        raise ConfigError(
            "There must be at least one broker advertised listener. "
            "Perhaps all listeners appear in controller.listener.names?",
            "listeners",
        )
    told = _told(settings.advertised, bound, lambda name: name not in controllers)
    found = _configs(bound, protocols, told, host_name)
    advertised = {each.name: each.advertised for each in found if each.advertised is not None}
    _check_inter_broker(settings, protocols, advertised)
    return found


def controller_listeners(
    settings: ListenerSettings, host_name: Callable[[], str], *, only_controller: bool
) -> tuple[ListenerConfig, ...]:
    """Return the controller's listeners to bind, in the order of `controller.listener.names`.

    Raises ConfigError. A node that is only a controller needs at least one, and may have no others.
    """
    endpoints, protocols = _checked(settings)
    controllers = _controllers(settings)
    bound = [endpoint for endpoint in endpoints if endpoint.name in controllers]
    if only_controller and (len(bound) < len(endpoints) or not bound):
        raise ConfigError(
            "The listeners config must only contain KRaft controller listeners from controller.listener.names when "
            "process.roles=controller",
            "listeners",
        )
    between = settings.inter_broker_name
    if only_controller and between is not None and between.upper() in controllers:
        raise ConfigError(
            "controller.listener.names must not contain an explicitly set inter.broker.listener.name configuration "
            "value when process.roles=controller",
            "inter.broker.listener.name",
        )
    bound.sort(key=lambda endpoint: [*controllers].index(endpoint.name))
    named = [parse_endpoint(entry, "advertised.listeners") for entry in settings.advertised or ()]
    told = [endpoint for endpoint in named if endpoint.name in controllers]
    if bound or told:  # otherwise no other node reaches this controller
        _check_bound(bound, controllers)
    _check_routable(told)
    others = {endpoint.name for endpoint in told}
    told += [endpoint for endpoint in bound if endpoint.name not in others]
    return _configs(bound, protocols, told, host_name)


def way_to_brokers(settings: ListenerSettings) -> tuple[str, str]:
    """Return the listener for connections between brokers, and its security protocol (Kafka:
    `AbstractKafkaConfig.interBrokerListenerNameAndSecurityProtocol`)."""
    if settings.inter_broker_name is None:
        protocol = (settings.inter_broker_protocol or _DEFAULT_INTER_BROKER).upper()
        return protocol, protocol
    name = settings.inter_broker_name.upper()
    return name, _checked(settings)[1][name]


def way_to_controllers(settings: ListenerSettings) -> tuple[str, str]:
    """Return the first of the controllers' listeners, for connections to controllers, and its security
    protocol."""
    name = next(iter(_controllers(settings)))
    return name, _checked(settings)[1][name]


def http_listener(name: str, address: str, setting: str) -> tuple[ListenerConfig, ...]:
    """Return the HTTP listener at HOST:PORT, if there is one. Raises ConfigError."""
    if not address:
        return ()
    if address.count(":") < 1 or "/" in address:
        raise ConfigError(f"{setting} has to be HOST:PORT, such as 127.0.0.1:9404, not {address}", setting)
    _, host, port = parse_endpoint(f"{name}://{address}", setting)
    return (ListenerConfig(name, "PLAINTEXT", host, port, None),)


def check_early_start(settings: ListenerSettings, names: Sequence[str]) -> None:
    """Check `early.start.listeners`. Raises ConfigError. It has no other effect here: no listener lets
    anybody in before the ACLs are known."""
    setting = "early.start.listeners"
    known = {endpoint.name for endpoint in _checked(settings)[0]}
    for name in names:
        if name.upper() not in known:
            raise ConfigError(
                f"{setting} contains listener {name.upper()}, but this is not contained in listeners or "
                "controller.listener.names",
                setting,
            )


def _check_bound(bound: Sequence[Endpoint], controllers: Collection[str]) -> None:
    """Raises ConfigError unless a controller binds each of the controllers' listeners."""
    missing = [name for name in controllers if name not in {endpoint.name for endpoint in bound}]
    if missing:
        setting = "controller.listener.names"
        raise ConfigError(
            f"{setting} must only contain values appearing in the 'listeners' configuration when running the "
            f"KRaft controller role: {', '.join(missing)} isn't among the listeners",
            setting,
        )


def _controllers(settings: ListenerSettings) -> dict[str, None]:
    """The names of the controllers' listeners, in order."""
    return dict.fromkeys(name.upper() for name in settings.controller_names)


def _checked(settings: ListenerSettings) -> tuple[list[Endpoint], dict[str, str]]:
    """Return all listeners, and each one's security protocol."""
    endpoints = [parse_endpoint(entry, "listeners") for entry in settings.listeners]
    _check_names(endpoints, "listeners")
    _check_ports(endpoints)
    protocols = _protocols(settings, endpoints, {*_controllers(settings)})
    for endpoint in endpoints:
        if endpoint.name not in protocols:
            raise ConfigError(
                f"No security protocol defined for listener {endpoint.name}: "
                "listener.security.protocol.map has to name it",
                "listeners",
            )
    return endpoints, protocols


def _configs(
    bound: Sequence[Endpoint],
    protocols: Mapping[str, str],
    told: Sequence[Endpoint],
    host_name: Callable[[], str],
) -> tuple[ListenerConfig, ...]:
    advertised = {
        endpoint.name: (host_name() if endpoint.host in EVERY_INTERFACE else endpoint.host, endpoint.port)
        for endpoint in told
    }
    return tuple(
        ListenerConfig(
            endpoint.name,
            protocols[endpoint.name],
            endpoint.host,
            endpoint.port,
            advertised.get(endpoint.name),
        )
        for endpoint in bound
    )


def parse_endpoint(entry: str, setting: str) -> Endpoint:
    """Parse `NAME://HOST:PORT`, with an IPv6 address in brackets and the name in any case. Raises
    ConfigError."""
    name, separator, address = entry.partition("://")
    host, colon, port_text = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    digits = port_text.removeprefix("-")
    if not (
        separator and colon and digits.isascii() and digits.isdigit() and _HOST_CHARACTERS.issuperset(host)
    ):
        raise ConfigError(f"Unable to parse {entry} to a broker endpoint (NAME://HOST:PORT)", setting)
    if len(digits) > 5 or not 0 <= int(port_text) <= 65535:
        raise ConfigError(f"Unable to parse {entry} to a broker endpoint: {port_text} is not a port", setting)
    return Endpoint(name.upper(), host, int(port_text))


def moved(
    entries: Sequence[str], controller_names: Sequence[str], host: str | None, port: int | None
) -> list[str]:
    """Return the listeners with the broker's host or port replaced. Raises ConfigError if there are two and
    one port."""
    controllers = {name.upper() for name in controller_names}
    endpoints = [parse_endpoint(entry, "listeners") for entry in entries]
    names = [endpoint.name for endpoint in endpoints if endpoint.name not in controllers]
    if port is not None and len(names) > 1:
        raise ConfigError(
            f"one port can't serve the listeners {', '.join(names)}; -o listeners=... can set them all", None
        )
    return [
        endpoint_text(endpoint)
        if endpoint.name in controllers
        else endpoint_text(
            Endpoint(
                endpoint.name,
                endpoint.host if host is None else host,
                endpoint.port if port is None else port,
            )
        )
        for endpoint in endpoints
    ]


def endpoint_text(endpoint: Endpoint) -> str:
    """`NAME://HOST:PORT`."""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.name}://{host}:{endpoint.port}"


def _check_names(endpoints: Sequence[Endpoint], setting: str) -> None:
    if len({endpoint.name for endpoint in endpoints}) != len(endpoints):
        raise ConfigError(
            f"Each listener must have a different name, listeners: {_texts(endpoints)}", setting
        )


def _check_ports(endpoints: Sequence[Endpoint]) -> None:
    """Check that a port serves one listener, or two: one with an IPv4 and one with an IPv6 address."""
    by_port: dict[int, list[Endpoint]] = {}
    for endpoint in endpoints:
        if endpoint.port != 0:
            by_port.setdefault(endpoint.port, []).append(endpoint)
    for port, sharing in by_port.items():
        if len(sharing) == 1:
            continue
        versions = sorted(_ip_version(endpoint.host) for endpoint in sharing)
        if versions == [4, 6]:
            continue
        if 0 in versions:
            raise ConfigError(
                f"Each listener must have a different port, listeners: {_texts(endpoints)}", "listeners"
            )
        raise ConfigError(
            "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, "
            f"listeners: {_texts(endpoints)}, port: {port}",
            "listeners",
        )


def _ip_version(host: str) -> int:
    """Return 4, 6, or 0 if it isn't an address."""
    from socket import AF_INET, AF_INET6, inet_pton

    for version, family in ((4, AF_INET), (6, AF_INET6)):
        try:
            inet_pton(family, host.partition("%")[0])
        except OSError:
            continue
        return version
    return 0


def _protocols(
    settings: ListenerSettings, endpoints: Sequence[Endpoint], controllers: set[str]
) -> dict[str, str]:
    """Listener name -> security protocol (effectiveListenerSecurityProtocolMap)."""
    setting = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for entry in settings.protocol_map.split(",") if settings.protocol_map else ():
        name, colon, protocol = entry.rpartition(":")
        if not colon:
            raise ConfigError(f"Error parsing configuration property '{setting}': {entry.strip()}", setting)
        protocol = protocol.strip()
        if protocol.upper() not in SECURITY_PROTOCOLS:
            raise ConfigError(f"Invalid security protocol `{protocol}` defined in {setting}", setting)
        protocols[name.strip().upper()] = protocol.upper()
    if not settings.protocol_map_given:
        # Only controllers' listeners get PLAINTEXT by default, and only if nothing is encrypted or
        # authenticated.
        secure = set(SECURITY_PROTOCOLS[1:])
        if not secure & (controllers | {endpoint.name for endpoint in endpoints}):
            protocols.update(dict.fromkeys(controllers, "PLAINTEXT"))
    return protocols


def _check_controllers(
    endpoints: Sequence[Endpoint], controllers: Collection[str], protocols: dict[str, str]
) -> None:
    """Raises ConfigError if a broker that isn't a controller binds one of their listeners, or doesn't know
    their protocols."""
    setting = "controller.listener.names"
    for endpoint in endpoints:
        if endpoint.name in controllers:
            raise ConfigError(
                f"{setting} must not contain a value appearing in listeners with process.roles=broker: "
                f"{endpoint.name} is a listener of the controllers, which a broker must not bind",
                setting,
            )
    for name in sorted(controllers):
        if name not in protocols:
            raise ConfigError(
                f"Controller listener with name {name} defined in {setting} not found in "
                "listener.security.protocol.map, which has to name it",
                setting,
            )


def _told(
    entries: Sequence[str] | None, bound: Sequence[Endpoint], is_brokers: Callable[[str], bool]
) -> Sequence[Endpoint]:
    """Return the advertised address of each broker listener that is advertised."""
    setting = "advertised.listeners"
    if entries is None:
        return bound
    endpoints = [parse_endpoint(entry, setting) for entry in entries]
    _check_names(endpoints, setting)
    told = [endpoint for endpoint in endpoints if is_brokers(endpoint.name)]
    names = [endpoint.name for endpoint in bound]
    unknown = [endpoint.name for endpoint in told if endpoint.name not in names]
    if unknown:
        raise ConfigError(
            "advertised.listeners listener names must be equal to or a subset of the ones defined in "
            f"listeners. Found {','.join(unknown)}. The valid options based on the current configuration "
            f"are {','.join(names)}",
            setting,
        )
    if not told:
        raise ConfigError("There must be at least one broker advertised listener.", setting)
    _check_routable(told)
    return told


def _check_routable(told: Sequence[Endpoint]) -> None:
    if any(endpoint.host == "0.0.0.0" for endpoint in told):  # noqa: S104
        raise ConfigError(
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.",
            "advertised.listeners",
        )


def _check_inter_broker(
    settings: ListenerSettings, protocols: dict[str, str], advertised: dict[str, tuple[str, int]]
) -> None:
    """Check that the listener for connections between brokers is advertised. On a single node, this only
    concerns a listener that the user names: nothing would use Kafka's default of PLAINTEXT."""
    setting, of_protocol = "inter.broker.listener.name", "security.inter.broker.protocol"
    name, protocol = settings.inter_broker_name, settings.inter_broker_protocol
    if name is not None and protocol is not None:
        raise ConfigError(f"Only one of {setting} and {of_protocol} should be set.", setting)
    if name is not None and name.upper() not in protocols:
        raise ConfigError(
            f"Listener with name {name.upper()} defined in {setting} not found in listener.security.protocol.map.",
            setting,
        )
    wanted = name or protocol or (_DEFAULT_INTER_BROKER if settings.speaks_to_brokers else None)
    if wanted is not None and wanted.upper() not in advertised:
        raise ConfigError(
            f"{setting} must be a listener name defined in advertised.listeners. The valid options based on "
            f"currently configured listeners are {','.join(advertised)}",
            setting if name is not None else of_protocol,
        )


def _texts(endpoints: Sequence[Endpoint]) -> str:
    return ",".join(map(endpoint_text, endpoints))

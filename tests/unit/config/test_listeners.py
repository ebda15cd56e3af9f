"""Listeners: what the broker binds, what clients are told, and Kafka's checks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker.config.definitions import ConfigError
from broker.config.listeners import (
    ListenerConfig,
    ListenerSettings,
    broker_listeners,
    controller_listeners,
    moved,
    way_to_brokers,
    way_to_controllers,
)

DEFAULT_MAP = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"


def read(
    listeners: str,
    advertised: str | None = None,
    *,
    protocol_map: str | None = None,
    controllers: Sequence[str] = ("CONTROLLER",),
) -> tuple[ListenerConfig, ...]:
    return broker_listeners(written(listeners, advertised, protocol_map, controllers), lambda: "my-machine")


def read_controllers(listeners: str, advertised: str | None, *controllers: str) -> tuple[ListenerConfig, ...]:
    settings = written(listeners, advertised, None, controllers)
    return controller_listeners(settings, lambda: "my-machine", only_controller=False)


def written(
    listeners: str, advertised: str | None, protocol_map: str | None, controllers: Sequence[str]
) -> ListenerSettings:
    return ListenerSettings(
        listeners=listeners.split(","),
        advertised=None if advertised is None else advertised.split(","),
        protocol_map=DEFAULT_MAP if protocol_map is None else protocol_map,
        protocol_map_given=protocol_map is not None,
        controller_names=controllers,
    )


def error_of(
    listeners: str, advertised: str | None = None, *, protocol_map: str | None = None
) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        read(listeners, advertised, protocol_map=protocol_map)
    return raised.value


def plain(name: str, host: str, port: int, advertised: tuple[str, int] | None) -> ListenerConfig:
    return ListenerConfig(name, "PLAINTEXT", host, port, advertised)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "10.0.0.7", "some-host.example"])
def test_a_listener_is_advertised_by_its_own_host(host: str) -> None:
    assert read(f"PLAINTEXT://{host}:9092") == (plain("PLAINTEXT", host, 9092, (host, 9092)),)


@pytest.mark.parametrize(("written", "host"), [("", ""), ("0.0.0.0", "0.0.0.0"), ("[::]", "::")])
def test_a_listener_on_every_interface_is_advertised_by_the_machines_name(written: str, host: str) -> None:
    assert read(f"PLAINTEXT://{written}:9092") == (plain("PLAINTEXT", host, 9092, ("my-machine", 9092)),)


def test_port_0_is_any_port_and_advertised_as_the_one_it_becomes() -> None:
    assert read("PLAINTEXT://127.0.0.1:0") == (plain("PLAINTEXT", "127.0.0.1", 0, ("127.0.0.1", 0)),)


def test_each_listener_has_its_own_advertised_address() -> None:
    found = read(
        "INSIDE://0.0.0.0:29092,OUTSIDE://0.0.0.0:9092",
        "OUTSIDE://localhost:19092,INSIDE://kafka:29092",
        protocol_map="INSIDE:PLAINTEXT, OUTSIDE:PLAINTEXT",
    )
    assert found == (
        plain("INSIDE", "0.0.0.0", 29092, ("kafka", 29092)),
        plain("OUTSIDE", "0.0.0.0", 9092, ("localhost", 19092)),
    )


def test_two_listeners_may_be_advertised_at_one_port() -> None:
    found = read("A://:1,B://:2", "A://h:9,B://h:9", protocol_map="A:PLAINTEXT,B:PLAINTEXT")
    assert [listener.advertised for listener in found] == [("h", 9), ("h", 9)]


def test_a_listener_that_is_not_advertised_is_bound_all_the_same() -> None:
    found = read("A://h:1,B://h:2", "A://h:9", protocol_map="A:PLAINTEXT,B:PLAINTEXT")
    assert found[1] == plain("B", "h", 2, None)


def test_a_controllers_listener_is_read_but_not_bound() -> None:
    found = read("PLAINTEXT://:9092,CONTROLLER://:9093", "PLAINTEXT://h:9092,CONTROLLER://h:9093")
    assert [listener.name for listener in found] == ["PLAINTEXT"]


def test_a_controllers_listener_may_be_encrypted_since_nobody_connects_to_it() -> None:
    protocol_map = "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_SSL"
    assert len(read("PLAINTEXT://:9092,CONTROLLER://:9093", protocol_map=protocol_map)) == 1


@pytest.mark.parametrize(
    ("written", "host"),
    [("[::1]", "::1"), ("::1", "::1"), ("[fe80::1%eth0]", "fe80::1%eth0")],
)
def test_an_ipv6_address_stands_in_brackets_or_not(written: str, host: str) -> None:
    assert read(f"PLAINTEXT://{written}:9092")[0].host == host


def test_names_are_the_same_in_any_case() -> None:
    found = read(
        "plaintext://h:1,Inside://h:2", "INSIDE://x:3", protocol_map="plaintext:plaintext,inside:Plaintext"
    )
    assert [(listener.name, listener.advertised) for listener in found] == [
        ("PLAINTEXT", None),
        ("INSIDE", ("x", 3)),
    ]


def test_one_port_may_serve_an_ipv4_and_an_ipv6_address() -> None:
    assert len(read("A://127.0.0.1:1,B://[::1]:1", protocol_map="A:PLAINTEXT,B:PLAINTEXT")) == 2


@pytest.mark.parametrize(
    ("listeners", "message"),
    [
        ("A://h:1,B://i:1", "Each listener must have a different port, listeners: A://h:1,B://i:1"),
        (
            "A://127.0.0.1:1,B://:1",
            "Each listener must have a different port, listeners: A://127.0.0.1:1,B://:1",
        ),
        (
            "A://127.0.0.1:1,B://127.0.0.2:1",
            "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, "
            "listeners: A://127.0.0.1:1,B://127.0.0.2:1, port: 1",
        ),
        ("A://h:1,a://h:2", "Each listener must have a different name, listeners: A://h:1,A://h:2"),
    ],
)
def test_listeners_differ_in_name_and_port(listeners: str, message: str) -> None:
    error = error_of(listeners, protocol_map="A:PLAINTEXT,B:PLAINTEXT")
    assert (str(error), error.name) == (message, "listeners")


def test_any_number_of_listeners_may_ask_for_any_port() -> None:
    assert len(read("A://h:0,B://h:0", protocol_map="A:PLAINTEXT,B:PLAINTEXT")) == 2


@pytest.mark.parametrize(
    "entry",
    [
        "PLAINTEXT:9092",
        "9092",
        "PLAINTEXT://h",
        "PLAINTEXT://h:x",
        "PLAINTEXT://a/b:1",
        "PLAINTEXT://h:٣",
        "",
    ],
)
def test_an_invalid_listener_is_refused(entry: str) -> None:
    expected = f"Unable to parse {entry} to a broker endpoint (NAME://HOST:PORT)"
    assert str(error_of(entry)) == expected


@pytest.mark.parametrize("port", ["-1", "65536", "999999"])
def test_an_invalid_port_is_refused(port: str) -> None:
    assert str(error_of(f"PLAINTEXT://h:{port}")).endswith(f": {port} is not a port")


def test_a_listener_needs_a_security_protocol() -> None:
    assert str(error_of("OUTSIDE://h:1")).startswith("No security protocol defined for listener OUTSIDE")


def test_only_controllers_have_a_security_protocol_without_being_named() -> None:
    error = error_of("CONTROLLER://h:1,PLAINTEXT://h:2", protocol_map="PLAINTEXT:PLAINTEXT")
    assert str(error).startswith("No security protocol defined for listener CONTROLLER")


def test_if_anything_is_encrypted_controllers_have_to_be_named_too() -> None:
    error = error_of("SSL://h:1,CONTROLLER://h:2")
    assert str(error).startswith("No security protocol defined for listener CONTROLLER")


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_brokers_and_controllers_have_listeners_of_each_protocol(protocol: str) -> None:
    settings = written("A://h:1", None, f"A:{protocol},CONTROLLER:{protocol}", ("CONTROLLER",))
    settings = settings._replace(inter_broker_name="a", speaks_to_brokers=True)
    [listener] = broker_listeners(settings, lambda: "m")
    assert listener.security_protocol == protocol
    assert way_to_brokers(settings) == ("A", protocol)
    assert way_to_controllers(settings) == ("CONTROLLER", protocol)
    of_protocol = settings._replace(inter_broker_name=None, inter_broker_protocol=protocol)
    assert way_to_brokers(of_protocol) == (protocol, protocol)
    [listener] = controller_listeners(
        written("A://h:1", None, f"A:{protocol}", ("A",)), lambda: "m", only_controller=True
    )
    assert listener.security_protocol == protocol


@pytest.mark.parametrize(
    ("protocol_map", "message"),
    [
        ("A:TLS", "Invalid security protocol `TLS` defined in listener.security.protocol.map"),
        ("A", "Error parsing configuration property 'listener.security.protocol.map': A"),
    ],
)
def test_a_nonsense_map_of_protocols_is_refused(protocol_map: str, message: str) -> None:
    error = error_of("A://h:1", protocol_map=protocol_map)
    assert (str(error), error.name) == (message, "listener.security.protocol.map")


def test_advertised_listeners_have_to_be_listened_on() -> None:
    error = error_of("PLAINTEXT://h:1", "PLAINTEXT://h:1,OTHER://h:2")
    assert error.name == "advertised.listeners"
    assert "Found OTHER. The valid options based on the current configuration are PLAINTEXT" in str(error)


@pytest.mark.parametrize(
    "advertised", ["PLAINTEXT://0.0.0.0:9092", "PLAINTEXT://h:1,PLAINTEXT://i:2", "nonsense"]
)
def test_an_advertised_address_that_leads_nowhere_is_refused(advertised: str) -> None:
    assert error_of("PLAINTEXT://h:1", advertised).name == "advertised.listeners"


def test_a_broker_without_a_listener_of_its_own_is_refused() -> None:
    expected = "There must be at least one broker advertised listener."
    assert str(error_of("CONTROLLER://h:1")).startswith(expected)
    assert str(error_of("PLAINTEXT://h:1,CONTROLLER://h:2", "CONTROLLER://h:2")) == expected


@pytest.mark.parametrize(
    ("listeners", "advertised", "setting"),
    [
        ("PLAINTEXT://h:1", "PLAINTEXT://h:1,CONTROLLER://h:2", "controller.listener.names"),
        ("PLAINTEXT://h:1,CONTROLLER://h:2", "PLAINTEXT://h:1,OTHER://h:2", "controller.listener.names"),
        ("PLAINTEXT://h:1,CONTROLLER://h:2", None, "controller.listener.names"),
        ("CONTROLLER://h:2,OTHER://h:3", "CONTROLLER://0.0.0.0:2", "advertised.listeners"),
    ],
)
def test_a_controller_binds_each_of_its_listeners_and_can_be_reached(
    listeners: str, advertised: str | None, setting: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        read_controllers(listeners, advertised, "CONTROLLER", "OTHER")
    assert raised.value.name == setting


def test_an_unused_controller_needs_no_listener() -> None:
    assert read_controllers("PLAINTEXT://h:1", "PLAINTEXT://h:1", "CONTROLLER") == ()
    (listener,) = read_controllers("PLAINTEXT://h:1,CONTROLLER://h:2", "CONTROLLER://i:3", "CONTROLLER")
    assert listener == plain("CONTROLLER", "h", 2, ("i", 3))


def test_moving_changes_the_brokers_addresses_only() -> None:
    entries = ["PLAINTEXT://:9092", "CONTROLLER://:9093"]
    assert moved(entries, ["controller"], "0.0.0.0", None) == [
        "PLAINTEXT://0.0.0.0:9092",
        "CONTROLLER://:9093",
    ]
    assert moved(entries, ["CONTROLLER"], "::1", 0) == ["PLAINTEXT://[::1]:0", "CONTROLLER://:9093"]


def test_several_listeners_cannot_be_moved_to_one_port() -> None:
    assert moved(["A://:1", "B://:2"], [], "h", None) == ["A://h:1", "B://h:2"]
    with pytest.raises(ConfigError, match="one port can't serve the listeners A, B"):
        moved(["A://:1", "B://:2"], [], None, 5)

"""Limits of hosts: hosts that can't be resolved, values that aren't numbers, and when the name service is asked."""

from __future__ import annotations

import logging
import math
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.config.broker_config import connections_per_host
from broker.config.definitions import ConfigError, StartError
from broker.environment import network as names
from broker.environment.network import SystemNames
from broker.handlers import alter_client_quotas
from broker.network.connection_limits import ConnectionLimits
from broker.network.endpoints import HostNames
from broker.security.authorizer import ANONYMOUS
from broker.server import Server
from protocol.apis import APIS
from protocol.errors import Error
from protocol.messages import metadata_records as records
from tests.compare.plain import message_from
from tests.node.limited_hosts import (
    BROKER,
    OVERRIDES,
    RATE,
    admits,
    answer_at_once,
    set_overrides,
    set_quota,
    store_quota,
)
from tests.support.whole_server import clock_of, handled, started

NAMES = SystemNames()
UNRESOLVED = ("a..b", "x" * 64, "a\0b", "no.such.host.invalid")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of hosts that the name service was asked for. It knows only names of one letter, and gives each
    an address."""
    hosts: list[str] = []

    def look_up(host: str) -> str | None:
        hosts.append(host)
        return f"10.0.0.{ord(host)}" if len(host) == 1 else None

    answer_at_once(monkeypatch, look_up)
    monkeypatch.setattr(SystemNames, "address_of", staticmethod(look_up))
    return hosts


def override(value: str) -> records.ConfigRecord:
    return records.ConfigRecord(resource_type=BROKER, resource_name="", name=OVERRIDES, value=value)


# --- hosts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "a\0b", "\udc80"])
def test_a_name_that_no_name_service_takes_has_no_address(host: str) -> None:
    assert NAMES.address_of(host) is None


@pytest.mark.parametrize(
    ("host", "address"), [("127.0.0.7", "127.0.0.7"), ("[::1]", "::1"), ("::1", "::1"), ("", "127.0.0.1")]
)
def test_an_address_needs_no_lookup(host: str, address: str) -> None:
    assert NAMES.address_of(host) == address


@pytest.mark.parametrize(
    ("found", "address"), [(["::1", "10.0.0.1", "10.0.0.2"], "10.0.0.1"), (["::1", "::2"], "::1")]
)
def test_the_first_of_several_addresses_counts_and_ipv4_before_ipv6(
    monkeypatch: pytest.MonkeyPatch, found: list[str], address: str
) -> None:
    def look_up(*args: Any, **kwargs: Any) -> Any:
        return [(socket.AF_INET6 if ":" in each else socket.AF_INET, 1, 6, "", (each, 0)) for each in found]

    monkeypatch.setattr(names.socket, "getaddrinfo", look_up)
    assert NAMES.address_of("host") == address


def test_a_name_service_that_fails_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise socket.gaierror(socket.EAI_AGAIN, "later")

    monkeypatch.setattr(names.socket, "getaddrinfo", fail)
    assert NAMES.address_of("host") is None


# --- connections by host ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("", {}),
        (",,", {}),
        ("a:1,", {"a": 1}),
        ("a : 1\t, b:2", {"a": 1, "b": 2}),
        ("127.0.0.1:-3", {"127.0.0.1": -3}),
        ("a:+5", {"a": 5}),
        ("a:\u0663", {"a": 3}),
        (":3", {"": 3}),
        ("::1:6", {"::1": 6}),
        ("a:2147483647", {"a": 2**31 - 1}),
    ],
)
def test_connections_by_host_are_read_as_kafka_does(text: str, limits: dict[str, int]) -> None:
    assert connections_per_host(text) == limits


@pytest.mark.parametrize(
    "text",
    ["a", "a:", "a:x", ",a:1", "a:1,,b:2", "a:2147483648", "a:1_0", "[::1]:3", "m\u00fcnchen:1", "a b:1"],
)
def test_connections_by_host_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        connections_per_host(text)


def test_a_number_below_zero_admits_nobody() -> None:
    assert admits(ConnectionLimits(100, 100, {"127.0.0.1": -3}, HostNames(NAMES), 1000), "127.0.0.1") == 0


def test_connections_are_limited_to_the_descriptors_of_the_process() -> None:
    limits = ConnectionLimits(100, 100, {}, HostNames(NAMES), 2)
    assert admits(limits, "127.0.0.1") == 2
    limits.configure(3, 3, {})
    assert admits(limits, "127.0.0.1") == 2
    limits.configure(1, 3, {})
    assert admits(limits, "127.0.0.1") == 1


def test_a_host_that_cannot_be_resolved_leaves_the_limits_as_they_were(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limits = ConnectionLimits(100, 100, {"127.0.0.1": 2}, HostNames(NAMES), 1000)
    limits.configure(100, 3, {"127.0.0.1": 1, "a..b": 3})
    assert limits.unresolved == ["a..b"]
    assert "a..b" in caplog.text
    assert admits(limits, "127.0.0.1") == 2
    assert admits(limits, "127.0.0.2") == 3
    limits.configure(100, 3, {"127.0.0.1": 1})
    assert limits.unresolved == []
    assert admits(limits, "127.0.0.1") == 1


def test_a_host_is_looked_up_when_it_comes_and_not_again(asked: list[str]) -> None:
    limits = ConnectionLimits(100, 100, {"a": 1}, HostNames(NAMES), 1000)
    limits.configure(100, 50, {"a": 1})
    assert asked == ["a"]
    limits.configure(100, 50, {"a": 2, "b": 1})
    assert asked == ["a", "b"]
    limits.configure(100, 50, {"a": 2, "bb": 1})
    limits.configure(100, 40, {"a": 2, "bb": 1})
    assert asked == ["a", "b", "bb"]
    assert admits(limits, "10.0.0.98") == 1


@pytest.mark.parametrize("host", UNRESOLVED[:2])
async def test_a_file_that_names_a_host_that_cannot_be_resolved_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(StartError, match=f"{OVERRIDES}: {host} can't be resolved") as refused:
        await started(tmp_path, f"{OVERRIDES}={host}:3")
    assert "\n" not in str(refused.value)


async def test_an_altered_host_that_cannot_be_resolved_stops_no_broker(tmp_path: Path) -> None:
    node = await started(tmp_path, f"{OVERRIDES}=127.0.0.1:2")
    for host in UNRESOLVED[:2]:
        assert set_overrides(node, f"{host}:3") is Error.NONE
        assert admits(node.connection_limits, "127.0.0.1") == 2
    await node.stop()
    assert node.failure is None

    again = await started(tmp_path, f"{OVERRIDES}=127.0.0.1:2")
    assert admits(again.connection_limits, "127.0.0.1") == 2
    assert set_overrides(again, "127.0.0.1:4") is Error.NONE
    assert admits(again.connection_limits, "127.0.0.1") == 4


@pytest.mark.parametrize(("text", "admitted"), [("127.0.0.1:-3", 0), ("127.0.0.1", 5), ("127.0.0.1:x", 5)])
async def test_a_record_of_the_past_stops_no_broker(
    tmp_path: Path, text: str, admitted: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        node = await started(tmp_path)
        node.metadata.append([override(text)])
        assert admits(node.connection_limits, "127.0.0.1") == admitted
        await node.stop()
        caplog.clear()
        again = await started(tmp_path)
        assert admits(again.connection_limits, "127.0.0.1") == admitted
        await again.stop()
    assert (OVERRIDES in caplog.text) == (admitted == 5)


# --- quotas of addresses ------------------------------------------------------------------------------------


async def test_a_quota_for_an_impossible_host_is_refused(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_at_once(monkeypatch, NAMES.address_of)
    before = node.metadata.next_offset
    for host in UNRESOLVED[:3]:
        assert set_quota(node, host) is Error.INVALID_REQUEST
    assert node.metadata.next_offset == before


async def test_a_host_with_a_quota_is_looked_up_once_a_record(tmp_path: Path, asked: list[str]) -> None:
    node = await started(tmp_path)
    assert set_quota(node, "a") is Error.NONE
    assert set_quota(node, "b") is Error.NONE
    assert asked == ["a", "b"]
    assert set_quota(node, "u", kind="user", key="producer_byte_rate") is Error.NONE
    assert asked == ["a", "b"]
    assert set_quota(node, "b", value=6.0) is Error.NONE  # it may be elsewhere by now
    assert asked == ["a", "b", "b"]
    assert set_quota(node, "c", only=True) is Error.NONE
    assert set_quota(node, "a", value=None) is Error.NONE
    assert asked == ["a", "b", "b", "c", "a"]
    assert node.quotas.connections.limits == {"10.0.0.98": 6}
    assert set_quota(node, "a") is Error.NONE
    assert node.quotas.connections.limits == {"10.0.0.98": 6, "10.0.0.97": 5}
    await node.stop()

    asked.clear()
    again = await started(tmp_path)
    assert sorted(asked) == ["a", "b"]
    assert again.quotas.connections.limits == {"10.0.0.98": 6, "10.0.0.97": 5}


async def test_a_host_that_is_gone_at_a_start_is_passed_over(
    tmp_path: Path, asked: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    node = await started(tmp_path)
    parts = [records.EntityData(entity_type="ip", entity_name="gone")]
    node.metadata.append([records.ClientQuotaRecord(entity=parts, key=RATE, value=1.0)])
    assert "gone" in caplog.text
    assert set_quota(node, "a") is Error.NONE
    assert asked == ["gone", "a"]
    await node.stop()
    again = await started(tmp_path)
    assert again.quotas.connections.limits == {"10.0.0.97": 5}


async def test_a_host_that_is_refused_keeps_the_quota_that_it_has(node: Server, asked: list[str]) -> None:
    assert set_quota(node, "a") is Error.NONE
    with pytest.MonkeyPatch.context() as patch:
        answer_at_once(patch, lambda host: None if host == "a" else "10.0.0.98")
        entries = [
            {
                "entity": [{"entity_type": "ip", "entity_name": host}],
                "ops": [{"key": RATE, "value": 7.0, "remove": False}],
            }
            for host in "ab"
        ]
        fields = {"entries": entries, "validate_only": False}
        context: Any = SimpleNamespace(api_version=1, client_id="c", principal=ANONYMOUS)
        answer = handled(node, alter_client_quotas, context, message_from(APIS[49].request, fields, 1))
    assert [entry.error_code for entry in answer.entries] == [Error.INVALID_REQUEST, Error.NONE]
    assert node.quotas.connections.limits == {"10.0.0.97": 5, "10.0.0.98": 7}
    assert asked == ["a"]


# --- numbers ------------------------------------------------------------------------------------------------

NO_NUMBERS: list[tuple[str, str, Callable[[Server], object]]] = [
    (
        "client-id",
        "producer_byte_rate",
        lambda node: node.quotas.produce.charge(ANONYMOUS.name, "127.0.0.1", 10.0, 1),
    ),
    (
        "client-id",
        "consumer_byte_rate",
        lambda node: node.quotas.fetch.charge(ANONYMOUS.name, "127.0.0.1", 10.0, 1),
    ),
    (
        "client-id",
        "request_percentage",
        lambda node: node.quotas.request.charge(ANONYMOUS.name, "127.0.0.1", 10.0, 1),
    ),
]


@pytest.mark.parametrize(("kind", "key", "charge"), NO_NUMBERS)
async def test_a_quota_that_is_no_number_throttles_nobody(
    tmp_path: Path, kind: str, key: str, charge: Callable[[Server], object]
) -> None:
    node = await started(tmp_path)
    store_quota(node, "127.0.0.1", math.nan, kind=kind, key=key)
    assert charge(node) == 0
    await node.stop()
    again = await started(tmp_path)
    assert charge(again) == 0


async def test_changes_without_a_number_are_not_limited(node: Server) -> None:
    key = "controller_mutation_rate"
    store_quota(node, "c", math.nan, kind="client-id", key=key)
    now_ms = clock_of(node).now_ms()
    mutations = node.quotas.mutation.of_request(ANONYMOUS.name, "c", strict=True, now_ms=now_ms)
    for _ in range(3):
        mutations.take(1000)
    assert mutations.throttle_ms == 0


async def test_connections_without_a_number_are_none_at_all(tmp_path: Path) -> None:
    node = await started(tmp_path)
    store_quota(node, "127.0.0.1", math.nan)
    assert node.quotas.connections.limits == {"127.0.0.1": 0}
    now_ms = clock_of(node).now_ms()
    assert node.quotas.connections.charge("127.0.0.1", now_ms) == 1000
    store_quota(node, None, math.nan)
    assert node.quotas.connections.default == 0
    await node.stop()
    again = await started(tmp_path)
    assert again.quotas.connections.limits == {"127.0.0.1": 0}


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e300])
async def test_a_record_with_a_number_beyond_java_s_int_is_brought_within(
    tmp_path: Path, value: float
) -> None:
    node = await started(tmp_path)
    parts = [records.EntityData(entity_type="ip", entity_name="127.0.0.1")]
    node.metadata.append([records.ClientQuotaRecord(entity=parts, key=RATE, value=value)])
    assert node.quotas.connections.limits == {"127.0.0.1": 2**31 - 1 if value > 0 else -(2**31)}
    node.quotas.connections.charge("127.0.0.1", clock_of(node).now_ms())


@pytest.mark.parametrize(("names", "held"), [(("a", "b"), "b"), (("a", None), None), (("", "b"), "b")])
async def test_the_last_name_of_a_repeated_entity_type_counts(
    tmp_path: Path, names: tuple[str | None, ...], held: str | None
) -> None:
    node = await started(tmp_path)
    key = "producer_byte_rate"
    assert set_quota(node, *names, kind="user", key=key) is Error.NONE
    kept = [*node.metadata.image.kept.of_type(records.ClientQuotaRecord)]
    assert [[part.entity_name for part in record.entity] for record in kept] == [[held]]  # type: ignore[attr-defined]

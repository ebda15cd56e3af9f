"""Clients are asked for metrics as subscriptions say, and what they push is shown for as long as they are there."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from broker.metrics import client_telemetry, clients_page
from broker.server import Server
from protocol.errors import Error
from protocol.messages.configs import (
    GetTelemetrySubscriptionsRequest,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    PushTelemetryRequest,
)
from protocol.messages.metadata import ApiVersionsRequest
from tests.support.otlp import delta_sum, gauge, point, push
from tests.support.scrape import get, scraped, value
from tests.support.straight import Straight
from tests.support.whole_server import clock_of, started
from tests.support.wire import Client

NEW = bytes(16)
INTERVAL_MS = 1_000


async def watched(folder: Path, *settings: str) -> tuple[Server, int]:
    node = await started(folder, "barnabas.metrics.listener=127.0.0.1:0", *settings)
    assert node.metrics is not None
    return node, node.metrics.port


def client_of(node: Server, name: str = "c", software: str = "t") -> Client:
    client = Client(Straight(node), client_id=name)
    asked = ApiVersionsRequest(client_software_name=software, client_software_version="1.0")
    told = client.ask(asked, 3)
    assert {71, 72} <= {each.api_key for each in told.api_keys}
    return client


def subscribe(node: Server, name: str = "s", **configs: str) -> None:
    resource = IncrementalAlterConfigsResource(
        resource_type=16,
        resource_name=name,
        configs=[
            IncrementalAlterableConfig(name=key.replace("_", "."), config_operation=0, value=text)
            for key, text in configs.items()
        ],
    )
    [told] = Client(Straight(node)).ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert told.error_code == Error.NONE, told.error_message


def asked(client: Client, client_id: bytes = NEW) -> Any:
    return client.ask(GetTelemetrySubscriptionsRequest(client_instance_id=client_id), 0)


def pushed(client: Client, told: Any, metrics: bytes = b"", **given: Any) -> Error:
    request = PushTelemetryRequest(
        client_instance_id=told.client_instance_id,
        subscription_id=given.pop("subscription_id", told.subscription_id),
        metrics=metrics,
        **given,
    )
    return Error(client.ask(request, 0).error_code)


async def test_a_node_without_subscriptions_announces_no_telemetry(tmp_path: Path) -> None:
    node = await started(tmp_path)
    told = Client(Straight(node)).ask(
        ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3
    )
    assert {71, 72}.isdisjoint(each.api_key for each in told.api_keys)


async def test_without_subscriptions_a_client_is_asked_for_nothing(tmp_path: Path) -> None:
    node, _ = await watched(tmp_path)
    told = asked(client_of(node))
    assert (told.error_code, told.requested_metrics, told.push_interval_ms) == (0, [], 300_000)
    assert told.client_instance_id != NEW
    assert told.accepted_compression_types == [4, 3, 1, 2]
    assert (told.telemetry_max_bytes, told.delta_temporality) == (1_048_576, True)


async def test_a_client_is_asked_for_the_metrics_of_its_matching_subscriptions(tmp_path: Path) -> None:
    node, _ = await watched(tmp_path)
    subscribe(node, "all", metrics="org.a,org.b", interval_ms="60000")
    subscribe(node, "java", metrics="org.c", interval_ms="1000", match="client_software_name=ja.*")
    subscribe(node, "mine", metrics="*", match="client_id=mine")
    assert asked(client_of(node)).requested_metrics == ["org.a", "org.b"]
    java = asked(client_of(node, software="java"))
    assert (java.requested_metrics, java.push_interval_ms) == (["org.a", "org.b", "org.c"], 1_000)
    assert asked(client_of(node, "mine")).requested_metrics == ["*"]


async def test_no_name_that_a_client_thinks_of_spoils_the_page(tmp_path: Path) -> None:
    """Prometheus refuses a whole page for one label without a name, or for a series that is there twice."""
    node, port = await watched(tmp_path)
    subscribe(node, metrics="*", interval_ms=str(INTERVAL_MS))
    client = client_of(node, "app")
    told = asked(client)
    odd = {"": "1", "__name__": "2", "0a": "3", "\n": "4", "a.b": "5"}
    metrics = push(gauge("x.y", point(1, odd)), gauge("x_y", point(2, {" ": "4", "a_b": "5"})))
    assert pushed(client, told, metrics) is Error.NONE
    shown = [
        (
            name,
            {each for each, _ in labels} - {"client_id", "client_instance_id", "client_software_name"},
            number,
        )
        for (name, labels), number in (await scraped(port)).items()
        if name.startswith("kafka_client_")
    ]
    assert shown == [("kafka_client_x_y", {"_", "a_b"}, 1)]
    page = (await get(port, "/metrics")).body.decode()
    lines = [line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")]
    assert len(lines) == len({*lines})


async def test_pushed_metrics_are_shown_until_the_client_goes(tmp_path: Path) -> None:
    node, port = await watched(tmp_path)
    subscribe(node, metrics="*", interval_ms=str(INTERVAL_MS))
    client = client_of(node, "app")
    told = asked(client)
    of = {
        "client_id": "app",
        "client_instance_id": _text(told.client_instance_id),
        "client_software_name": "t",
    }
    metrics = push(
        gauge("org.apache.kafka.producer.record.send.rate", point(2.5, {"topic-name": "t"})),
        delta_sum("org.apache.kafka.producer.txn.abort.total", point(3)),
    )
    assert pushed(client, told, metrics) is Error.NONE
    clock_of(node).advance_ms(INTERVAL_MS)
    assert pushed(client, told, gzip.compress(metrics), compression_type=1) is Error.NONE
    series = await scraped(port)
    assert value(series, "kafka_client_producer_record_send_rate", topic_name="t", **of) == 2.5
    assert value(series, "kafka_client_producer_txn_abort_total", **of) == 6
    client.close()
    while node.listeners["PLAINTEXT"].connections and node.telemetry._clients:
        await asyncio.sleep(0)
        if not [*node.telemetry.pushed()]:
            break
    assert not [name for name, _ in await scraped(port) if name.startswith("kafka_client_")]


async def test_clients_are_listed_one_by_one(tmp_path: Path) -> None:
    """Ask as the console does: for all clients what its table shows, and for one client everything."""
    node, port = await watched(tmp_path)
    subscribe(node, metrics="*", interval_ms=str(INTERVAL_MS))
    client, other = client_of(node, "app"), client_of(node, "other", software="silent")
    told, silent = asked(client), asked(other)
    lag = gauge(
        "org.apache.kafka.consumer.fetch.manager.records.lag", point(5, {"topic": "t"}), point(float("nan"))
    )
    metrics = push(lag, gauge("org.apache.kafka.consumer.poll.idle.ratio.avg", point(0.5)))
    assert pushed(client, told, metrics) is Error.NONE
    clock_of(node).advance_ms(INTERVAL_MS)
    assert pushed(client, told, b"no metrics") is Error.INVALID_RECORD, "which counts for the quota alone"
    clock_of(node).advance_ms(300)

    async def clients(query: str) -> Any:
        reply = await get(port, f"/clients?{query}")
        assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
        return json.loads(reply.body)

    lag_name, ratio_name = "consumer.fetch.manager.records.lag", "consumer.poll.idle.ratio.avg"
    lags = [[lag_name, {"topic": "t"}, 5], [lag_name, {}, None]]
    found = await clients(f"name={lag_name}&name=producer.record.error.total")
    assert found["count"] == 2
    shown = {each["client_id"]: each for each in found["clients"]}
    assert shown["app"]["metrics"] == lags
    assert (shown["app"]["pushed_ms_ago"], shown["app"]["interval_ms"]) == (INTERVAL_MS + 300, INTERVAL_MS)
    assert (shown["other"]["metrics"], shown["other"]["pushed_ms_ago"]) == ([], None)
    assert shown["other"]["client_software_name"] == "silent"
    [one] = (await clients(f"client={_text(told.client_instance_id)}"))["clients"]
    assert one["metrics"] == [*lags, [ratio_name, {}, 0.5]]
    assert (await clients(f"client={_text(silent.client_instance_id)}&name={lag_name}"))["count"] == 1
    assert (await clients("client="))["clients"] == [], "no client has an empty id"
    assert (await get(port, "/clients?" + "&".join(["name=a"] * 101))).status == 400


@pytest.mark.limit("broker.metrics.clients_page.MOST_CLIENTS_SHOWN")
async def test_only_the_most_recent_of_very_many_clients_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients_page, "MOST_CLIENTS_SHOWN", 2)
    node, port = await watched(tmp_path)
    clients = {name: client_of(node, name) for name in ("first", "second", "third")}
    for client in clients.values():
        asked(client)
    found = json.loads((await get(port, "/clients")).body)
    assert found["count"] == len(clients)
    assert [each["client_id"] for each in found["clients"]] == ["third", "second"]


def _text(client_id: bytes) -> str:
    from protocol.wire.primitives import uuid_to_text

    return uuid_to_text(client_id)


async def test_asking_or_pushing_too_soon_is_refused(tmp_path: Path) -> None:
    node, _ = await watched(tmp_path)
    subscribe(node, metrics="*", interval_ms=str(INTERVAL_MS))
    client = client_of(node)
    told = asked(client)
    assert asked(client, told.client_instance_id).error_code == Error.THROTTLING_QUOTA_EXCEEDED
    assert pushed(client, told) is Error.NONE  # once, at once
    assert pushed(client, told) is Error.THROTTLING_QUOTA_EXCEEDED
    assert pushed(client, told, terminating=True) is Error.NONE
    clock_of(node).advance_ms(INTERVAL_MS)
    assert pushed(client, told) is Error.INVALID_REQUEST, "it has said that it ends"


async def test_a_changed_subscription_is_announced_at_once(tmp_path: Path) -> None:
    node, _ = await watched(tmp_path)
    subscribe(node, metrics="org.a")
    client = client_of(node)
    told = asked(client)
    subscribe(node, metrics="org.b")
    assert pushed(client, told) is Error.UNKNOWN_SUBSCRIPTION_ID
    again = asked(client, told.client_instance_id)
    assert (again.error_code, again.requested_metrics) == (Error.NONE, ["org.b"])
    clock_of(node).advance_ms(again.push_interval_ms)
    assert pushed(client, again) is Error.NONE


async def test_a_nonsense_push_is_refused(tmp_path: Path) -> None:
    node, _ = await watched(tmp_path, "telemetry.max.bytes=1000")
    subscribe(node, metrics="*", interval_ms=str(INTERVAL_MS))
    client = client_of(node)
    told = asked(client)
    for given, error in (
        ({"client_id": NEW}, Error.INVALID_REQUEST),
        ({"subscription_id": told.subscription_id + 1}, Error.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression_type": 9}, Error.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": bytes(1_001)}, Error.TELEMETRY_TOO_LARGE),
        ({"metrics": b"\x0a\x05ab"}, Error.INVALID_RECORD),
        ({"metrics": gzip.compress(bytes(100_000)), "compression_type": 1}, Error.INVALID_RECORD),
        ({"metrics": b"junk", "compression_type": 1}, Error.INVALID_RECORD),
    ):
        clock_of(node).advance_ms(INTERVAL_MS)
        given: dict[str, Any] = dict(given)
        of = told
        if "client_id" in given:
            of = type(told)(client_instance_id=given.pop("client_id"), subscription_id=told.subscription_id)
        assert pushed(client, of, given.pop("metrics", b""), **given) is error


@pytest.mark.limit("broker.metrics.client_telemetry.MOST_CLIENTS")
async def test_the_longest_silent_of_many_clients_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, _ = await watched(tmp_path)
    monkeypatch.setattr(client_telemetry, "MOST_CLIENTS", 2)
    client = client_of(node)
    first, second = asked(client), asked(client)
    asked(client)
    known = [*node.telemetry._clients]
    assert first.client_instance_id not in known
    assert known[0] == second.client_instance_id


@pytest.mark.limit("broker.metrics.client_telemetry.MOST_SERIES")
@pytest.mark.limit("broker.metrics.client_telemetry.MOST_SERIES_OF_ALL")
async def test_pushed_metrics_are_bounded_by_client_and_in_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, _ = await watched(tmp_path)
    monkeypatch.setattr(client_telemetry, "MOST_SERIES", 3)
    monkeypatch.setattr(client_telemetry, "MOST_SERIES_OF_ALL", 5)
    metrics = push(*(gauge(f"m{number}", point(number)) for number in range(10)))
    client = client_of(node)
    told = asked(client), asked(client)
    assert pushed(client, told[0], metrics) is Error.NONE
    assert sorted(len(each.series) for each in node.telemetry.pushed()) == [0, 3]
    assert pushed(client, told[1], metrics) is Error.NONE
    assert [len(each.series) for each in node.telemetry.pushed()] == [3], "the other one is forgotten"


@pytest.mark.limit("broker.metrics.client_telemetry.LEAST_KEPT_MS")
async def test_a_client_that_says_nothing_is_forgotten(tmp_path: Path) -> None:
    node, _ = await watched(tmp_path)
    subscribe(node, metrics="*", interval_ms=str(INTERVAL_MS))
    client = client_of(node)
    asked(client)
    clock_of(node).advance_ms(client_telemetry.LEAST_KEPT_MS + 1)
    asked(client)
    assert len(node.telemetry._clients) == 1

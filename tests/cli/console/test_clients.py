"""The metrics that clients push (KIP-714), client by client: with librdkafka and a browser, and without them."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

import barnabas
from cli.console.telemetry import ClientTelemetry
from protocol.messages.configs import (
    GetTelemetrySubscriptionsRequest,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    PushTelemetryRequest,
)
from protocol.messages.metadata import ApiVersionsRequest
from tests.cli.console.asking import Asking
from tests.cli.console.conftest import OpenPage, console_of
from tests.cli.console.test_beside_a_broker import broker_with_console
from tests.support.otlp import delta_sum, gauge, point, push
from tests.support.ports import free_ports, is_listening
from tests.support.waiting import until
from tests.support.wire import Client

INTERVAL_MS = 200
CLIENT_METRICS = 16
IN_A_JAVA_CLIENT = {
    "producer.request.latency.avg": 1.5,
    "producer.record.send.total": 12.0,
    "producer.record.error.total": 2.0,
    "producer.txn.commit.time.ns.total": 3e6,
    "producer.txn.abort.time.ns.total": 1e6,
    "consumer.coordinator.commit.latency.avg": 4.25,
}


def expect(found: Any) -> Any:
    from playwright.sync_api import expect as of_playwright

    of_playwright.set_options(timeout=30_000)
    return of_playwright(found)


def everything_is_wanted(port: int) -> None:
    """Subscribe to all metrics, as `kafka-client-metrics.sh --alter --name all --metrics '*' --interval 200` does."""
    configs = [
        IncrementalAlterableConfig(name=name, config_operation=0, value=value)
        for name, value in {"metrics": "*", "interval.ms": str(INTERVAL_MS)}.items()
    ]
    resource = IncrementalAlterConfigsResource(
        resource_type=CLIENT_METRICS, resource_name="all", configs=configs
    )
    with Client.connect(port) as client:
        [told] = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert told.error_code == 0, told.error_message


def pushing(port: int, name: str, *metrics: bytes) -> tuple[Client, bytes]:
    """A client of this name that has pushed these metrics as a Java client would, and its instance id."""
    client = Client.connect(port, client_id=name)
    client.ask(ApiVersionsRequest(client_software_name="java", client_software_version="4.4.0"), 3)
    told = client.ask(GetTelemetrySubscriptionsRequest(), 0)
    request = PushTelemetryRequest(
        client_instance_id=told.client_instance_id,
        subscription_id=told.subscription_id,
        metrics=push(*metrics),
    )
    assert client.ask(request, 0).error_code == 0
    return client, told.client_instance_id


@pytest.fixture
def broker() -> Iterator[tuple[barnabas.Broker, str]]:
    """A broker and its listener for metrics."""
    (port,) = free_ports(1)
    listener = f"127.0.0.1:{port}"
    with barnabas.Broker(config={"barnabas.metrics.listener": listener}) as broker:
        everything_is_wanted(broker.port)
        yield broker, listener


def test_each_client_shows_the_metrics_that_it_pushes(
    broker: tuple[barnabas.Broker, str], open_page: OpenPage
) -> None:
    """librdkafka pushes its own metrics. Metrics that it doesn't have are pushed as Java's clients do."""
    node, listener = broker
    numbers = [gauge(f"org.apache.kafka.{name}", point(it)) for name, it in IN_A_JAVA_CLIENT.items()]
    lags = [point(40, {"partition": "0"}), point(2, {"partition": "1"}), point(float("nan"))]
    java, _ = pushing(
        node.port,
        "<b>java</b>",
        *numbers,
        gauge("org.apache.kafka.consumer.fetch.manager.records.lag", *lags),
    )
    settings = {"bootstrap.servers": node.bootstrap}
    producer = Producer({**settings, "client.id": "shop"})
    consumer = Consumer(
        {
            **settings,
            "client.id": "till",
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    with java, console_of("console", "--bootstrap", node.bootstrap, "--metrics", listener) as console:
        page = open_page(f"{console.address}/#/clients")

        def cells(name: str) -> list[str]:
            row = page.locator("#clients tbody tr", has=page.get_by_role("link", name=name, exact=True))
            return row.first.locator("td").all_inner_texts() if row.count() else []

        def go_on() -> list[str]:
            producer.produce("orders", b"v")
            producer.flush(30)
            producer.poll(0.1)
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                consumer.commit(message, asynchronous=False)
            return [cells("shop")[1] if cells("shop") else "–", cells("till")[6] if cells("till") else "–"]

        until(lambda: "–" not in go_on(), "what librdkafka pushes")
        assert cells("shop")[0].startswith("confluent-kafka-python")
        assert cells("shop")[4:8] == ["–", "–", "–", "–"], "librdkafka doesn't tell"
        told = ["java 4.4.0", "1.5 ms", "12", "2", "3 ms", "1 ms (25 %)", "4.25 ms", "42"]
        assert cells("<b>java</b>")[:-1] == told
        page.get_by_label("Filter").fill("java")
        expect(page.locator("#clients tbody tr")).to_have_count(1)
        page.get_by_role("link", name="<b>java</b>").click()
        expect(page.get_by_role("heading", name="<b>java</b>")).to_be_visible()
        expect(page.locator("#metrics tbody tr", has_text="producer.record.error.total")).to_contain_text("2")
        expect(page.locator("#metrics tbody tr", has_text="partition=0")).to_contain_text("40")
    consumer.close()


def test_a_clients_metrics_are_found_until_it_goes(broker: tuple[barnabas.Broker, str]) -> None:
    node, listener = broker
    with console_of("console", "--bootstrap", node.bootstrap, "--metrics", listener) as console:
        client, _ = pushing(node.port, "app", delta_sum("org.apache.kafka.producer.x", point(3)))
        assert console.api("clients")["listeners"] == [listener]
        [found] = console.api("clients")["clients"]
        assert (found["client_id"], found["metrics"]) == ("app", [])
        one = {"client": found["client_instance_id"], "listener": listener}
        assert console.api("client", **one)["metrics"] == [["producer.x", {}, 3]]
        client.close()
        until(lambda: not console.api("clients")["clients"], "the client's end")
        answer = console.get(f"/api/client?client={one['client']}&listener={listener}")
        assert answer.status == 409
        assert b"is connected" in answer.body
        answer = console.get(f"/api/client?client={one['client']}&listener=127.0.0.1:1")
        assert (answer.status, b"isn't one of the listeners" in answer.body) == (409, True), (
            "nobody else is asked"
        )


def test_a_console_says_which_listener_doesnt_answer_and_shows_the_others(
    broker: tuple[barnabas.Broker, str],
) -> None:
    node, listener = broker
    (nobody,) = free_ports(1)
    gone = f"127.0.0.1:{nobody}"
    listeners = ("--metrics", gone, "--metrics", listener)
    client, _ = pushing(node.port, "app", gauge("x", point(1)))
    with client, console_of("console", "--bootstrap", node.bootstrap, *listeners) as console:
        found = console.api("clients")
        assert [each["client_id"] for each in found["clients"]] == ["app"]
        [problem] = found["problems"]
        assert problem.startswith(f"{gone} (from --metrics) doesn't answer")


def test_a_listener_that_takes_its_time_keeps_nothing_from_being_shown(
    broker: tuple[barnabas.Broker, str], open_page: OpenPage
) -> None:
    """The page asks every two seconds. One of the listeners accepts connections, and is silent for three seconds."""
    node, listener = broker
    client, _ = pushing(node.port, "app", gauge("x", point(1)))
    with socket.create_server(("127.0.0.1", 0)) as silent, client:
        listeners = ("--metrics", f"127.0.0.1:{silent.getsockname()[1]}", "--metrics", listener)
        with console_of("console", "--bootstrap", node.bootstrap, *listeners) as console:
            page = open_page(f"{console.address}/#/clients")
            expect(page.get_by_role("link", name="app", exact=True)).to_be_visible()
            expect(page.locator("p.problem")).to_contain_text("doesn't answer")


@contextlib.contextmanager
def listeners_that_answer(*answers: bytes) -> Iterator[list[str]]:
    """Listeners that answer when all of them have been asked."""
    asked = threading.Barrier(len(answers), timeout=30)

    def handler(answer: bytes) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.wait()
                self.send_response(200)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    with contextlib.ExitStack() as running:
        addresses = []
        for answer in answers:
            server = running.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), handler(answer)))
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
            running.callback(server.shutdown)
            addresses.append(f"127.0.0.1:{server.server_port}")
        yield addresses


def test_listeners_are_asked_at_the_same_time() -> None:
    client = {"client_id": "app", "client_instance_id": "i", "metrics": []}
    answers = [json.dumps({"count": 1, "clients": [client]}).encode()] * 3
    with listeners_that_answer(*answers) as listeners:
        told = ClientTelemetry(listeners).all()
    assert (told["count"], told["problems"]) == (3, [])
    assert [each["listener"] for each in told["clients"]] == listeners


@pytest.mark.parametrize(
    "answer",
    [
        b"[]",
        b"{}",
        b'{"count": "1", "clients": []}',
        b'{"count": 1, "clients": {}}',
        b'{"count": 1, "clients": [1]}',
        b'{"count": 1, "clients": [{"client_id": null, "client_instance_id": "i", "metrics": []}]}',
        b'{"count": 1, "clients": [{"client_id": "app", "client_instance_id": "i"}]}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_a_listener_that_answers_nonsense_is_a_problem_and_no_fault(answer: bytes) -> None:
    with listeners_that_answer(answer) as [listener]:
        told = ClientTelemetry([listener]).all()
    assert (told["clients"], told["count"]) == ([], 0)
    [problem] = told["problems"]
    assert problem.startswith(listener)


def test_a_console_that_knows_no_listener_says_how_it_learns_of_one(open_page: OpenPage) -> None:
    with console_of("console", "--bootstrap", "127.0.0.1:1") as console:
        page = open_page(f"{console.address}/#/clients")
        expect(page.locator("#no-listener")).to_contain_text("--metrics HOST:PORT")


def test_the_console_beside_a_broker_knows_its_listener_for_metrics(tmp_path: Path) -> None:
    metrics = ("-o", "barnabas.metrics.listener=127.0.0.1:0")
    with broker_with_console(tmp_path / "data", "--port", "0", *metrics) as (_, console):
        assert_it_asks_its_own_broker(console)


def assert_it_asks_its_own_broker(console: Asking) -> None:
    until(lambda: is_listening("127.0.0.1", console.port), "the console")
    found = console.api("clients")
    assert (len(found["listeners"]), found["problems"], found["clients"]) == (1, [], [])

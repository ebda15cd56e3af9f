"""librdkafka and Java's clients push their metrics by themselves, and what they push is shown (KIP-714)."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Producer

import barnabas
from tests.clients.confluent import PATIENCE_S
from tests.support.apache_kafka import tool
from tests.support.requirements import need_apache_kafka
from tests.support.scrape import Series, series_in

INTERVAL_MS = 200


@pytest.fixture
def watched() -> Iterator[tuple[barnabas.Broker, int]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with barnabas.Broker(config={"barnabas.metrics.listener": f"127.0.0.1:{port}"}) as broker:
        need_apache_kafka()
        subscription = ("--alter", "--name", "all", "--metrics", "*", "--interval", str(INTERVAL_MS))
        tool("client-metrics", "--bootstrap-server", broker.bootstrap, *subscription)
        yield broker, port


def scraped(port: int) -> Series:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
        return series_in(answer.read().decode())


def of_client(series: Series, client_id: str) -> dict[str, float]:
    return {name: found for (name, labels), found in series.items() if ("client_id", client_id) in labels}


def test_librdkafka_pushes_and_it_shows(watched: tuple[barnabas.Broker, int]) -> None:
    broker, port = watched
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "app"})
    found: dict[str, float] = {}
    for _ in range(int(PATIENCE_S * 10)):
        producer.produce("t", b"v")
        producer.flush(PATIENCE_S)
        producer.poll(0.1)
        found = of_client(scraped(port), "app")
        if found.get("kafka_client_producer_request_latency_avg"):
            break
    assert found["kafka_client_producer_request_latency_avg"] > 0


def test_javas_producer_pushes_and_it_shows(watched: tuple[barnabas.Broker, int]) -> None:
    broker, port = watched
    arguments = (
        *("--topic", "t", "--num-records", "600", "--record-size", "10", "--throughput", "100"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}", "client.id=app"),
    )
    with ThreadPoolExecutor(1) as running:
        run = running.submit(tool, "producer-perf", *arguments)
        found: dict[str, float] = {}
        while not run.done() and not found.get("kafka_client_producer_record_send_total"):
            found = of_client(scraped(port), "app")
        run.result()
    assert found.get("kafka_client_producer_record_send_total", 0) > 0, sorted(found)

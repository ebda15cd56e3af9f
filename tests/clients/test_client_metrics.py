"""librdkafka and Java's clients push their metrics by themselves, and what they push is shown (KIP-714)."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer, Producer

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


def test_librdkafkas_consumer_tells_how_long_its_commits_take(watched: tuple[barnabas.Broker, int]) -> None:
    broker, port = watched
    found = (commits := "kafka_client_consumer_coordinator_commit_latency_max", 0.0)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "app",
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["t"])
    try:
        for _ in range(int(PATIENCE_S * 10)):
            producer.produce("t", b"v")
            producer.flush(PATIENCE_S)
            if consumer.poll(0.1) is not None:
                consumer.commit(asynchronous=False)
            found = (commits, of_client(scraped(port), "app").get(commits, 0))
            if found[1]:
                break
    finally:
        consumer.close()
    assert found[1] > 0


def until_found(run: Future[str], port: int, *names: str) -> dict[str, float]:
    """What the client `app` has pushed, once these are more than nothing; it is asked for as long as it runs."""
    found: dict[str, float] = {}
    while not run.done() and not all(found.get(name) for name in names):
        found = of_client(scraped(port), "app") or found
    run.result()
    return found


def test_javas_producer_tells_of_commits_aborts_and_errors(watched: tuple[barnabas.Broker, int]) -> None:
    broker, port = watched
    arguments = (
        *("--topic", "t", "--num-records", "600", "--record-size", "10", "--throughput", "100"),
        *("--transactional-id", "tx", "--transaction-duration-ms", "50"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}", "client.id=app"),
    )
    wanted = [
        f"kafka_client_producer_{name}"
        for name in (
            "record_send_total",
            "record_error_total",
            "txn_commit_time_ns_total",
            "txn_abort_time_ns_total",
        )
    ]
    with ThreadPoolExecutor(1) as running:
        run = running.submit(tool, "producer-perf", *arguments)
        found = until_found(run, port, wanted[0], wanted[2])
    sent, failed, committing_ns, aborting_ns = (found.get(name, -1) for name in wanted)
    assert sent > 0, sorted(found)
    assert failed == 0
    assert committing_ns > 0
    assert aborting_ns == 0


def test_javas_consumer_tells_of_its_lag_and_its_commits(watched: tuple[barnabas.Broker, int]) -> None:
    broker, port = watched
    arguments = (
        *("--bootstrap-server", broker.bootstrap, "--topic", "t", "--group", "g", "--from-beginning"),
        *("--max-messages", "300"),
        *(
            part
            for each in ("client.id=app", "auto.commit.interval.ms=100", "max.poll.records=10")
            for part in ("--consumer-property", each)
        ),
    )
    lag = "kafka_client_consumer_fetch_manager_records_lag"
    commits = "kafka_client_consumer_coordinator_commit_latency_avg"
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    with ThreadPoolExecutor(1) as running:
        run = running.submit(tool, "console-consumer", *arguments)
        found: dict[str, float] = {}
        for _ in range(300):
            producer.produce("t", b"v")
            producer.flush(PATIENCE_S)
            if lag not in found or not found.get(commits, 0) > 0:  # NaN before the first commit
                found = of_client(scraped(port), "app") or found
                producer.poll(0.1)
        run.result()
    assert found.get(commits, 0) > 0, sorted(found)
    assert found.get(lag, -1) >= 0

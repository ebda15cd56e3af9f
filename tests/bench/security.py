"""`python -m tests.bench.security`: what security costs.

First it measures the broker's processor time for a request of one record: without an authorizer, and with one that has
ten ACLs or ten thousand. Then it measures produce and fetch over SASL_SSL with confluent-kafka, beside Apache Kafka if
that is there. All brokers run at the same time and take turns. The printed figures are medians.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

import barnabas
from broker.config.broker_config import STANDARD_AUTHORIZER
from tests.bench import measures
from tests.support.apache_kafka import why_unavailable
from tests.support.certificates import KEPT, Certificates
from tests.support.kafka_server import KafkaServer
from tests.support.ports import free_ports

TOPIC = "measured"
REQUESTS = 3_000
WITHOUT, TEN, MANY = "without", "10 ACLs", "10,000 ACLs"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";'
MEGABYTES = 100
WARMING = 3
"""Rounds that don't count: Java compiles the encryption meanwhile."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.security", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=["authorizer", "encryption"])
    options = parser.parse_args()
    if options.only != "encryption":
        _authorizer(options.rounds)
    if options.only != "authorizer":
        _encryption(options.rounds)
    return 0


# --- the authorizer -------------------------------------------------------------------------------------------


def _authorizer(rounds: int) -> None:
    authorizing = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
    with contextlib.ExitStack() as stack:
        brokers = {
            name: stack.enter_context(barnabas.Broker(config=config, log_level="error"))
            for name, config in ((WITHOUT, {}), (TEN, authorizing), (MANY, authorizing))
        }
        for name, count in ((WITHOUT, 0), (TEN, 10), (MANY, 10_000)):
            measures.create_topic(brokers[name].bootstrap, TOPIC)
            _create_acls(brokers[name].bootstrap, count)
        took_us: dict[str, list[float]] = {name: [] for name in brokers}
        for number in range(rounds + 1):
            for name in (WITHOUT, TEN, MANY) if number % 2 else (MANY, TEN, WITHOUT):
                broker = brokers[name]
                before_s = _cpu_s(broker.pid)
                measures.single_records_raw(broker.bootstrap, TOPIC, REQUESTS)
                if number:
                    took_us[name].append((_cpu_s(broker.pid) - before_s) / REQUESTS * 1e6)
        base_us = statistics.median(took_us[WITHOUT])
        for name, each in took_us.items():
            took = statistics.median(each)
            print(
                f"one record a request, {name:12} {took:7.1f} us of the processor, {base_us / took:.3f}x as many"
            )


def _cpu_s(pid: int) -> float:
    return time.clock_gettime(~pid << 3 | 2)  # clock_getcpuclockid(3)


def _create_acls(bootstrap: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    bindings = [
        AclBinding(
            ResourceType.TOPIC,
            TOPIC if number == 0 else f"other-{number}",
            ResourcePatternType.LITERAL if number % 2 == 0 else ResourcePatternType.PREFIXED,
            "User:ANONYMOUS" if number % 3 == 0 else f"User:user-{number % 100}",
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        for number in range(count)
    ]
    for start in range(0, count, 1000):
        for future in admin.create_acls(bindings[start : start + 1000]).values():
            future.result()


# --- encryption -----------------------------------------------------------------------------------------------


def _encryption(rounds: int) -> None:
    certificates = Certificates(KEPT)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ports = dict(_brokers(stack, certificates, folder))
        figures: dict[tuple[str, str], list[float]] = {}
        for port in ports.values():
            admin = AdminClient(_client(port, certificates))
            admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
        for number in range(1 - WARMING, rounds + 1):
            for name in ports if number % 2 else reversed(ports):
                for what, do in (("produce", _produce), ("fetch", _fetch)):
                    pace = do(ports[name], certificates)
                    if number > 0:
                        figures.setdefault((what, name), []).append(pace)
        for what in ("produce", "fetch"):
            ours = statistics.median(figures[what, "barnabas"])
            for name in ports:
                pace = statistics.median(figures[what, name])
                print(f"SASL_SSL {what:8} {name:12} {pace:7.1f} MB/s, barnabas has {ours / pace:.2f}x of it")


def _brokers(
    stack: contextlib.ExitStack, certificates: Certificates, folder: Path
) -> Iterator[tuple[str, int]]:
    theirs, plain, controller, ours = free_ports(4)
    given = {
        **certificates.settings(),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,S:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.s.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.s.plain.sasl.jaas.config": JAAS,
    }
    listeners = f"PLAINTEXT://127.0.0.1:0,S://127.0.0.1:{ours}"
    stack.enter_context(barnabas.Broker(config={**given, "listeners": listeners}, log_level="error"))
    yield "barnabas", ours
    if why := why_unavailable():
        print(f"Apache Kafka isn't measured: {why}", file=sys.stderr)
        return
    kafka = KafkaServer(
        folder / "kafka",
        {
            **given,
            "listeners": f"PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},S://127.0.0.1:{theirs}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},S://127.0.0.1:{theirs}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        },
    )
    kafka._port = theirs  # it is up once this one is
    stack.enter_context(kafka)
    yield "Apache Kafka", theirs


def _client(port: int, certificates: Certificates, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": f"localhost:{port}",
        "broker.address.family": "v4",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "alice-secret",
        "ssl.ca.location": str(certificates.certificate),
        **more,
    }


def _produce(port: int, certificates: Certificates) -> float:
    producer = Producer(
        _client(port, certificates, **{"linger.ms": 5, "queue.buffering.max.messages": 1_000_000})
    )
    value = bytes(range(256)) * 4
    began_s = time.perf_counter()
    for number in range(MEGABYTES * 1024):
        producer.produce(TOPIC, value)
        if not number % 1000:
            producer.poll(0)
    assert producer.flush(120) == 0
    return MEGABYTES / (time.perf_counter() - began_s)


def _fetch(port: int, certificates: Certificates) -> float:
    """Read what was produced last."""
    config = {"group.id": "measured", "enable.auto.commit": False}
    consumer = Consumer(_client(port, certificates, **config))
    at = TopicPartition(TOPIC, 0)
    _, end = consumer.get_watermark_offsets(at, timeout=60)
    left = MEGABYTES * 1024
    consumer.assign([TopicPartition(TOPIC, 0, end - left)])
    began_s = time.perf_counter()
    while left:
        found = consumer.consume(min(left, 10_000), timeout=30)
        assert found
        left -= len(found)
    took_s = time.perf_counter() - began_s
    consumer.close()
    return MEGABYTES / took_s


if __name__ == "__main__":
    sys.exit(main())

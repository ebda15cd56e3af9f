"""A broker of ours in a cluster with a controller and a broker of Apache Kafka's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient

import barnabas
from tests.interop.observing import properties_of
from tests.support import apache_kafka, waiting
from tests.support.apache_kafka import ApacheKafka, tool
from tests.support.ports import free_ports
from tests.support.requirements import need_apache_kafka

PATIENCE_S = 120.0
KAFKAS, OURS = 1, 2
# Each broker uses its own settings until these topics exist, so they have to be the same.
INTERNAL = {
    "offsets.topic.num.partitions": 4,
    "offsets.topic.replication.factor": 2,
    "transaction.state.log.num.partitions": 4,
    "transaction.state.log.replication.factor": 2,
    "transaction.state.log.min.isr": 1,
}


@contextmanager
def kafka_that_is_joined(
    folder: Path, *more: str, version: str | None = None, release: str | None = None
) -> Iterator[ApacheKafka]:
    need_apache_kafka()
    settings = [f"{name}={value}" for name, value in INTERNAL.items()]
    with apache_kafka.running(folder, *settings, *more, version=version, release=release) as kafka:
        yield kafka


def voters_of(kafka: ApacheKafka) -> str:
    return properties_of(kafka.directory / "server.properties")["controller.quorum.voters"]


def cluster_id_of(kafka: ApacheKafka) -> str:
    return properties_of(kafka.data / "meta.properties")["cluster.id"]


def settings_to_join(kafka: ApacheKafka) -> dict[str, object]:
    return {
        "process.roles": "broker",
        "node.id": OURS,
        "controller.quorum.voters": voters_of(kafka),
        "controller.listener.names": "CONTROLLER",
        "broker.heartbeat.interval.ms": 200,
        **INTERNAL,
    }


def formatted(folder: Path, kafka: ApacheKafka, port: int, log_dirs: Sequence[Path]) -> Path:
    """The server.properties of a broker whose folders Kafka's own tool has formatted."""
    file = folder / "server.properties"
    listeners = {"listeners": f"PLAINTEXT://127.0.0.1:{port}", "log.dirs": ",".join(map(str, log_dirs))}
    lines = settings_to_join(kafka) | listeners
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    tool("storage", "format", "-t", cluster_id_of(kafka), "-c", file)
    return file


def joining(folder: Path, kafka: ApacheKafka) -> barnabas.Broker:
    """The joining broker, not started yet."""
    (port,) = free_ports(1)
    data = folder / "ours"
    formatted(folder, kafka, port, [data])
    return barnabas.Broker(data=data, port=port, config=settings_to_join(kafka))


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def wait_until_both_are_there(kafka: ApacheKafka) -> AdminClient:
    asking = admin(kafka.bootstrap)
    waiting.until(
        lambda: asking.list_topics(timeout=PATIENCE_S).brokers.keys() == {KAFKAS, OURS},
        "Kafka's broker tells of ours",
        PATIENCE_S,
    )
    return asking

"""What a job is killed on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import barnabas
from tests.spark.kills.cluster import OneOfThree
from tests.spark.kills.supervisor import Killed
from tests.support.apache_kafka import why_unavailable
from tests.support.kafka_server import KafkaServer

MAKE: dict[str, Callable[[Path], contextlib.AbstractContextManager[Killed]]] = {
    "barnabas": lambda folder: barnabas.Broker(data=folder),
    "cluster": lambda folder: OneOfThree(),
    "kafka": KafkaServer,
}


@contextlib.contextmanager
def running(broker: str, folder: Path) -> Iterator[Killed]:
    """One of `MAKE`, which may keep what it has in the folder."""
    with MAKE[broker](folder) as server:
        yield server


def those_there_are(brokers: list[str]) -> list[str]:
    """All of these, but for Apache Kafka where it can't be had, which is said."""
    reason = why_unavailable() if "kafka" in brokers else ""
    if reason:
        print(f"Apache Kafka can't be had ({reason}): it is left out.")
    return [broker for broker in brokers if broker != "kafka" or not reason]

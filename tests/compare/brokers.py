"""The two brokers that scripts are played to, started from the same properties."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import barnabas
from tests.support import apache_kafka
from tests.support.apache_kafka import RUNNER, ApacheKafka
from tests.support.ports import free_ports

from .properties import PROPERTIES, server_properties


@dataclass(frozen=True, slots=True)
class Kafka:
    """Apache Kafka, run by `tests/kafka/kafka`."""

    running: ApacheKafka

    @property
    def port(self) -> int:
        return int(self.running.bootstrap.rpartition(":")[2])

    @property
    def data(self) -> Path:
        return self.running.data

    def restart(self, *, kill: bool) -> None:
        folder = self.running.directory
        subprocess.run([RUNNER, "kill" if kill else "down", folder], check=True)
        lines = (folder / "server.properties").read_text().splitlines()
        subprocess.run(
            [RUNNER, "up", folder, str(self.port), *lines],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "KAFKA_OPTS": apache_kafka.BROKER_OPTIONS},
            check=True,
        )


@contextlib.contextmanager
def kafka(folder: Path, properties: str) -> Iterator[Kafka]:
    with apache_kafka.running(folder, *PROPERTIES[properties].splitlines()) as running:
        yield Kafka(running)


@dataclass(frozen=True, slots=True)
class Barnabas:
    """barnabas, a process of its own."""

    broker: barnabas.Broker
    data: Path

    @property
    def port(self) -> int:
        return self.broker.port

    def restart(self, *, kill: bool) -> None:
        if kill:
            self.broker.kill()
        self.broker.restart()


@contextlib.contextmanager
def barnabas_broker(folder: Path, properties: str) -> Iterator[Barnabas]:
    port, controller_port = free_ports(2)
    file = folder / "server.properties"
    file.write_text(server_properties(properties, port=port, controller_port=controller_port))
    with barnabas.Broker(data=folder / "data", properties=file) as broker:
        yield Barnabas(broker, folder / "data")

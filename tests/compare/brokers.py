"""The two brokers for scripts, started from the same properties."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import barnabas
from tests.support import apache_kafka
from tests.support.apache_kafka import RUNNER, ApacheKafka
from tests.support.ports import free_ports
from tests.support.waiting import until

from .properties import PROPERTIES, SIGNED_IN, UNWATCHED, log_dirs, sasl_listener, server_properties


@dataclass(frozen=True, slots=True)
class Kafka:
    """Apache Kafka, run by `tests/kafka/kafka`."""

    running: ApacheKafka
    sasl_port: int = 0

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
    directories = log_dirs(properties, folder)
    more = [] if directories is None else [f"log.dirs={directories}"]
    sasl_port = 0
    if properties in SIGNED_IN:
        port, controller_port, sasl_port = free_ports(3)
        more += sasl_listener(port, controller_port, sasl_port)
    with apache_kafka.running(folder, *PROPERTIES[properties].splitlines(), *more) as running:
        yield Kafka(running, sasl_port)


@dataclass(frozen=True, slots=True)
class Barnabas:
    """barnabas, in a process of its own."""

    broker: barnabas.Broker
    data: Path
    sasl_port: int = 0

    @property
    def port(self) -> int:
        return self.broker.port

    def restart(self, *, kill: bool) -> None:
        if kill:
            self.broker.kill()
        self.broker.restart()


class BarnabasInDirectories:
    """barnabas with several log directories, which `barnabas.Broker` doesn't support."""

    def __init__(self, command: list[str], port: int, data: Path) -> None:
        self.port = port
        self.sasl_port = 0
        self.data = data
        self._command = command
        self.begin()

    def begin(self) -> None:
        """Start it on the same directories and port."""
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: process.poll() is not None or _answers(self.port), "barnabas answers")
        return process

    def end(self, *, kill: bool = False) -> None:
        self._process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        self._process.wait()

    def restart(self, *, kill: bool) -> None:
        self.end(kill=kill)
        self.begin()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@contextlib.contextmanager
def in_directories(file: Path, directories: str, port: int) -> Iterator[BarnabasInDirectories]:
    command = [sys.executable, "-m", "broker", "--config", str(file), "-o", f"log.dirs={directories}"]
    several = BarnabasInDirectories(command, port, Path(directories.partition(",")[0]))
    try:
        yield several
    finally:
        several.end(kill=True)


@contextlib.contextmanager
def barnabas_broker(folder: Path, properties: str) -> Iterator[Barnabas | BarnabasInDirectories]:
    port, controller_port, sasl_port = free_ports(3)
    file = folder / "server.properties"
    text = server_properties(properties, port=port, controller_port=controller_port)
    if properties in SIGNED_IN:
        text += "".join(f"{line}\n" for line in sasl_listener(port, controller_port, sasl_port))
    if properties not in UNWATCHED:
        text += "barnabas.metrics.listener=127.0.0.1:0\n"
    file.write_text(text)
    directories = log_dirs(properties, folder)
    if directories is not None:
        with in_directories(file, directories, port) as several:
            yield several
        return
    with barnabas.Broker(data=folder / "data", properties=file) as broker:
        yield Barnabas(broker, folder / "data", sasl_port)

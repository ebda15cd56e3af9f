"""Apache Kafka as a process to kill and restart, with the interface of `barnabas.Broker`."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, Self

from tests.support.apache_kafka import RUNNER, tool
from tests.support.ports import free_ports, is_listening

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
# the default of `kafka-server-start.sh`
JVM_OPTIONS = "-Xmx1g -Xms1g"
START_TIMEOUT_S = 240.0
POLL_S = 0.001


class Server(Protocol):
    """What `barnabas.Broker` and `KafkaServer` have in common."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def data(self) -> Path: ...
    def start(self) -> object: ...
    def kill(self) -> None: ...
    def stop(self) -> None: ...


class KafkaServer:
    """One combined broker and controller on loopback, in a folder of its own that is formatted when this is made.

    config: settings by name; Kafka's own defaults otherwise, replication factors of 1 aside.
    start_timeout_s: how long `start()` waits.
    jvm_options: by default those of Kafka's own script, for measurements; tests use `apache_kafka.BROKER_OPTIONS`.
    """

    def __init__(
        self,
        directory: Path,
        config: Mapping[str, object] | None = None,
        *,
        start_timeout_s: float = START_TIMEOUT_S,
        jvm_options: str = JVM_OPTIONS,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.data = directory / "data"
        self._log = directory / "broker.log"
        self._port, controller_port = free_ports(2)
        self._properties = directory / "server.properties"
        self._properties.write_text(_properties(self.data, self._port, controller_port, config or {}))
        self._process: subprocess.Popen[bytes] | None = None
        self._start_timeout_s = start_timeout_s
        self._jvm_options = jvm_options
        tool("storage", "format", "-t", CLUSTER_ID, "-c", self._properties)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        """Start it, and wait until its port accepts connections."""
        with self._log.open("ab") as log:
            self._process = _spawn(self._properties, log, self._jvm_options)
        deadline_s = time.monotonic() + self._start_timeout_s
        while not is_listening("127.0.0.1", self._port):
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                self.kill()
                raise RuntimeError(f"Apache Kafka did not start:\n{self._log.read_text()[-3000:]}")
            time.sleep(POLL_S)
        return self

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _spawn(properties: Path, log: IO[bytes], jvm_options: str) -> subprocess.Popen[bytes]:
    # The runner replaces itself with the JVM, so this is the broker's own process.
    return subprocess.Popen(
        [RUNNER, "class", "kafka.Kafka", properties],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=_environment(jvm_options),
    )


def _environment(jvm_options: str) -> dict[str, str]:
    return {**os.environ, "KAFKA_OPTS": jvm_options}


def _properties(data: Path, port: int, controller_port: int, config: Mapping[str, object]) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": data,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        **config,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())

"""barnabas and Apache Kafka as they take turns on one folder, behind one port."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import barnabas
from protocol.errors import Error
from protocol.messages.produce import InitProducerIdRequest, InitProducerIdResponse
from tests.support.apache_kafka import BROKER_OPTIONS, RUNNER
from tests.support.ports import free_ports
from tests.support.waiting import process_is_gone, until
from tests.support.wire import Client

START_ATTEMPTS = 3
NO_PRODUCER = -1
LIVING_CLIENTS = {"controlled.shutdown.enable": "false"}
"""For clients of librdkafka that outlive a Kafka that is stopped. Alone and fenced, in its controlled shutdown, it may
still answer a Metadata request: without any broker, and from then on such a client knows of none, for ever
(confluentinc/librdkafka#5301). All else of a clean stop remains."""
HARMLESS_ON_A_SLOW_MACHINE = (
    "apiKey=CONTROLLER_REGISTRATION",  # the controller registers with itself too early at first, and tries again
    "Exceptionally slow controller event",
    "Stopped loading records",  # a coordinator was still loading when Kafka was told to stop
)
"""Parts of the lines that Apache Kafka logs as errors when it has too little of the processor."""
_VERSION = 1


class Turns:
    """The folder `directory/data` and the broker running on it, if any. The context manager stops it at the end.

    `settings` go to both brokers. `version` is Kafka's, where it isn't that of `tests/kafka/pom.xml`.
    """

    def __init__(
        self, directory: Path, settings: Mapping[str, str] | None = None, *, version: str | None = None
    ) -> None:
        self.directory = directory
        self._environment = {**os.environ, "KAFKA_OPTS": BROKER_OPTIONS}
        if version is not None:
            self._environment["KAFKA_VERSION"] = version
        self.data = directory / "data"
        self.settings = dict(settings or {})
        self.port, self.controller_port = free_ports(2)
        self._barnabas: barnabas.Broker | None = None
        self._kafka_pid = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, who: str) -> None:
        """`barnabas` or `kafka`, on the folder as it is."""
        if who == "barnabas":
            self._barnabas = barnabas.Broker(data=self.data, port=self.port, config=self.settings).start()
        else:
            self.start_kafka()

    def start_kafka(self) -> None:
        """Apache Kafka, on the folder as it is."""
        controller = f"127.0.0.1:{self.controller_port}"
        settings = {
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            **self.settings,
        }
        for _ in range(START_ATTEMPTS):
            started = subprocess.run(
                [RUNNER, "up", self.directory, str(self.port), *(f"{k}={v}" for k, v in settings.items())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env=self._environment,
                check=False,
            )
            if started.returncode == 0:
                self._kafka_pid = int((self.directory / "pid").read_text())
                return
        raise AssertionError(f"Apache Kafka did not start: {started.stderr}\n{self.kafka_log[-4000:]}")

    @property
    def kafka_log(self) -> str:
        """The output of the last Kafka."""
        path = self.directory / "broker.log"
        return path.read_text() if path.exists() else ""

    @property
    def kafka_errors(self) -> list[str]:
        """The lines of `kafka_log` that tell of an error, without those of a slow machine."""
        return [
            line
            for line in self.kafka_log.splitlines()
            if "ERROR" in line and not any(part in line for part in HARMLESS_ON_A_SLOW_MACHINE)
        ]

    def stop(self) -> None:
        """End whoever runs, cleanly."""
        if self._barnabas is not None:
            self._barnabas.stop()
            self._barnabas = None
        self._end_kafka(signal.SIGTERM)

    def kill(self) -> None:
        """End whoever runs by SIGKILL."""
        if self._barnabas is not None:
            self._barnabas.kill()
            self._barnabas = None
        self._end_kafka(signal.SIGKILL)

    def _end_kafka(self, number: int) -> None:
        pid, self._kafka_pid = self._kafka_pid, 0
        if pid:
            os.kill(pid, number)
            until(lambda: process_is_gone(pid), "Apache Kafka is gone")
            # the process counts as gone with its first thread, its locks go with the last one
            until(lambda: _is_unlocked(self.data), "Apache Kafka's lock is gone")

    def __enter__(self) -> Turns:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()

    def new_producer_id(self) -> int:
        """The answer of InitProducerId to an idempotent producer without an id."""
        while (response := self._init_producer_id()).error_code == Error.COORDINATOR_LOAD_IN_PROGRESS:
            pass  # Kafka asks its controller for a block first
        assert response.error_code == 0, response
        return response.producer_id

    def _init_producer_id(self) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout_ms=1000,
            producer_id=NO_PRODUCER,
            producer_epoch=NO_PRODUCER,
        )
        with Client.connect(self.port) as client:
            answer: InitProducerIdResponse = client.ask(request, _VERSION)
        return answer


def _is_unlocked(data: Path) -> bool:
    path = data / ".lock"
    if not path.exists():  # Kafka removes it when it stops
        return True
    with path.open("r+b") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True

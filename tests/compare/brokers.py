"""Starting and stopping the two brokers that scripts are played to."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from .properties import server_properties

ROOT = Path(__file__).resolve().parents[2]
RUNNER = ROOT / "tests" / "kafka" / "kafka"
UNAVAILABLE = 69
"""The runner's exit status where Apache Kafka can't be had."""

START_S = 60.0


class KafkaUnavailable(Exception):
    """Apache Kafka can't be had here; the text says why."""


def two_free_ports() -> tuple[int, int]:
    """Two neighbours: the runner puts the controller on the port behind the broker's."""
    for _ in range(100):
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port, port + 1
    raise OSError("no two free ports next to each other")


@dataclass(slots=True)
class Kafka:
    """Apache Kafka, run by `tests/kafka/kafka`."""

    folder: Path
    properties: str
    port: int = 0

    def start(self) -> Kafka:
        if not RUNNER.exists():
            raise KafkaUnavailable(f"{RUNNER} is not there")
        if self.port == 0:
            self.port, _ = two_free_ports()
        text = server_properties(
            self.properties, port=self.port, controller_port=self.port + 1, data=str(self.folder / "data")
        )
        done = subprocess.run(
            [RUNNER, "up", self.folder, str(self.port), *text.splitlines()],
            env=os.environ | {"KAFKA_OPTS": "-Xmx400m -Xms400m -XX:TieredStopAtLevel=1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == UNAVAILABLE:
            raise KafkaUnavailable(done.stderr.strip())
        if done.returncode != 0:
            raise RuntimeError(f"Kafka didn't start: {done.stderr.strip()}")
        return self

    def stop(self, *, kill: bool = False) -> None:
        subprocess.run([RUNNER, "kill" if kill else "down", self.folder], check=True)

    def restart(self, *, kill: bool) -> None:
        self.stop(kill=kill)
        self.start()


@dataclass(slots=True)
class Barnabas:
    """barnabas, run from the checkout."""

    folder: Path
    properties: str
    port: int = 0
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> Barnabas:
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "server.properties"
        if self.port == 0:
            self.port, controller_port = two_free_ports()
            config.write_text(
                server_properties(
                    self.properties,
                    port=self.port,
                    controller_port=controller_port,
                    data=str(self.folder / "data"),
                )
            )
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "broker", "--config", str(config)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline_s = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return self
            except ConnectionRefusedError:
                if self._process.poll() is not None or time.monotonic() > deadline_s:
                    raise RuntimeError(f"barnabas didn't start:\n{self.log()}") from None
                time.sleep(0.01)

    def log(self) -> str:
        return (self.folder / "broker.log").read_text()[-4000:]

    def stop(self, *, kill: bool = False) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise RuntimeError(f"barnabas didn't stop on SIGTERM:\n{self.log()}") from None

    def restart(self, *, kill: bool) -> None:
        self.stop(kill=kill)
        self.start()

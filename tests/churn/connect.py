"""A worker of Kafka Connect: a file's lines go to a topic, and from there to another file.

It keeps what it has to know in three compacted topics: connectors, offsets of the source, states. The connectors are
altered, paused and resumed all the while, and the worker is killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.clients.confluent import create_topic
from tests.support.apache_kafka import TOOL_OPTIONS
from tests.support.ports import free_ports
from tests.support.waiting import until, until_answered

POM = Path(__file__).with_name("pom.xml")
LOG4J = Path(__file__).parents[1] / "kafka" / "log4j2.yaml"
CONFIGS, OFFSETS, STATUS = "connect-configs", "connect-offsets", "connect-status"
LINES = "lines"
PATIENCE_S = 400.0


def jars() -> Path:
    """The folder with Connect's jars, fetched once. CalledProcessError where they can't be had."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "apache-kafka-reference"
    found = cache / "connect"
    if not found.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".connect-") as folder:
            (Path(folder) / "pom.xml").write_bytes(POM.read_bytes())
            goal = [
                "dependency:copy-dependencies",
                "-DincludeScope=runtime",
                f"-DoutputDirectory={folder}/jars",
            ]
            subprocess.run(["mvn", "-q", "-B", *goal], cwd=folder, check=True)
            os.rename(f"{folder}/jars", found)
    return found


class Connect:
    """A worker, and the two connectors."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.source, self.sink = folder / "source.txt", folder / "sink.txt"
        self.source.touch()
        self._log = folder / "connect.log"
        (port,) = free_ports(1)
        self._url = f"http://127.0.0.1:{port}"
        self._properties = folder / "connect.properties"
        self._properties.write_text(_settings(bootstrap, port))
        self._process: subprocess.Popen[bytes] | None = None
        self._rounds = 0
        create_topic(bootstrap, LINES)

    def start(self) -> None:
        """Returns when it answers."""
        libraries = jars()
        command = [
            "java",
            *TOOL_OPTIONS.split(),
            f"-Dlog4j2.configurationFile={LOG4J}",
            "-cp",
            f"{libraries}/*",
        ]
        command += ["org.apache.kafka.connect.cli.ConnectDistributed", str(self._properties)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until_answered(lambda: self._ask("GET", "/connectors"), "Connect answers", PATIENCE_S)

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(PATIENCE_S)
            self._process = None

    def make_connectors(self) -> None:
        for name, config in self._configs().items():
            self._insist("PUT", f"/connectors/{name}/config", config)

    def churn(self) -> None:
        """One alteration; a worker that is about to take over says no, and is asked another time."""
        self._rounds += 1
        name = ("source", "sink")[self._rounds % 2]
        try:
            match self._rounds % 5:
                case 0 | 1:
                    self._ask("PUT", f"/connectors/{name}/config", self._configs()[name])
                case 2:
                    self._ask("PUT", f"/connectors/{name}/pause")
                case 3:
                    self._ask("PUT", f"/connectors/{name}/resume")
                case _:
                    self._ask("POST", f"/connectors/{name}/restart?includeTasks=true")
        except (urllib.error.URLError, OSError):
            return

    def resume(self) -> None:
        for name in ("source", "sink"):
            self._insist("PUT", f"/connectors/{name}/resume")

    def states(self) -> dict[str, str]:
        """By connector and by task."""
        found = {}
        for name in ("source", "sink"):
            status = self._ask("GET", f"/connectors/{name}/status")
            found[name] = status["connector"]["state"]
            found |= {f"{name} {task['id']}": task["state"] for task in status["tasks"]}
        return found

    def wait_until_all_run(self) -> None:
        running = {"source": "RUNNING", "sink": "RUNNING", "source 0": "RUNNING", "sink 0": "RUNNING"}

        def all_run() -> None:
            found = self.states()
            for name, state in found.items():
                if state == "FAILED":
                    self._ask("POST", f"/connectors/{name.split()[0]}/restart?includeTasks=true")
            assert found == running, found

        until_answered(all_run, "both connectors run", PATIENCE_S)

    def wait_until_sunk(self, lines: int) -> None:
        until(lambda: len(set(self.sink_lines())) >= lines, f"{lines} lines in {self.sink}", PATIENCE_S)

    def sink_lines(self) -> list[str]:
        return self.sink.read_text().splitlines() if self.sink.exists() else []

    def _configs(self) -> dict[str, dict[str, str]]:
        package = "org.apache.kafka.connect.file"
        common = {"tasks.max": "1", "number.of.the.alteration": str(self._rounds)}
        return {
            "source": common
            | {
                "connector.class": f"{package}.FileStreamSourceConnector",
                "file": str(self.source),
                "topic": LINES,
            },
            "sink": common
            | {
                "connector.class": f"{package}.FileStreamSinkConnector",
                "file": str(self.sink),
                "topics": LINES,
            },
        }

    def _insist(self, method: str, path: str, body: Mapping[str, str] | None = None) -> None:
        until_answered(lambda: self._ask(method, path, body), f"{method} {path}", PATIENCE_S)

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None


def _settings(bootstrap: str, port: int) -> str:
    converter = "org.apache.kafka.connect.storage.StringConverter"
    settings: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "group.id": "connect",
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": converter,
        "value.converter": converter,
        "exactly.once.source.support": "enabled",
        "offset.flush.interval.ms": 200,
        "scheduled.rebalance.max.delay.ms": 500,
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 500,
        "plugin.discovery": "only_scan",
        "consumer.auto.offset.reset": "earliest",
        "consumer.isolation.level": "read_committed",
        # a worker that was killed leaves a transaction open, and the next one reads to the end of what is committed
        "producer.transaction.timeout.ms": 10_000,
        "connector.client.config.override.policy": "All",
    }
    for name, topic in zip(("config", "offset", "status"), (CONFIGS, OFFSETS, STATUS), strict=True):
        settings[f"{name}.storage.topic"] = topic
        settings[f"{name}.storage.replication.factor"] = 1
    return "".join(f"{name}={value}\n" for name, value in settings.items())

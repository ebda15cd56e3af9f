"""The examples for testcontainers. There is no Docker here: the containers' commands run on this machine."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from protocol.messages.metadata import MetadataRequest
from tests.support.ports import free_ports
from tests.support.requirements import need_program
from tests.support.wire import Client

pytest.importorskip("testcontainers.core.container", reason="needs testcontainers, of the extra release")

from testcontainers.core.container import DockerContainer

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "testcontainers"
ENTRY_POINT = ROOT / "docker" / "entrypoint.sh"


@pytest.fixture
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "barnabas_container", EXAMPLES / "python" / "barnabas_container.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def no_docker(tmp_path: Path, example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run containers as processes, with this machine's ports, paths and entry point."""
    outside, inside = free_ports(2)
    runs = tmp_path / "barnabas"
    runs.write_text(f'#!/bin/sh\nexec {sys.executable} -P {ROOT}/barnabas/launcher.py "$@"\n')
    runs.chmod(0o755)
    log = tmp_path / "log"

    def here(text: str) -> str:
        text = text.replace(example.ADVERTISED, str(tmp_path / "advertised"))
        text = text.replace("/entrypoint.sh", str(ENTRY_POINT))
        return text.replace(":9092", f":{outside}").replace(":29092", f":{inside}")

    def start(self: DockerContainer) -> DockerContainer:
        told = {name: here(value) for name, value in self.env.items()}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
        environment = {**kept, **told, "BARNABAS": str(runs), "KAFKA_LOG_DIRS": str(tmp_path / "data")}
        command = [here(word) for word in self._kwargs["entrypoint"]]
        with log.open("w") as output:
            self.process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        return self

    def stop(self: DockerContainer, *_: object) -> None:
        self.process.terminate()
        self.process.wait(60)

    monkeypatch.setattr(DockerContainer, "__init__", _without_a_daemon)
    monkeypatch.setattr(DockerContainer, "start", start)
    monkeypatch.setattr(DockerContainer, "stop", stop)
    monkeypatch.setattr(DockerContainer, "get_container_host_ip", lambda self: "127.0.0.1")
    monkeypatch.setattr(DockerContainer, "get_exposed_port", lambda self, port: {9092: outside}[port])
    monkeypatch.setattr(DockerContainer, "get_logs", lambda self: (log.read_bytes(), b""))
    monkeypatch.setattr(
        DockerContainer,
        "exec",
        lambda self, words: subprocess.run([here(word) for word in words], check=True),
    )


def _without_a_daemon(self: DockerContainer, image: str) -> None:
    self.env, self.ports, self._kwargs, self.image = {}, {}, {}, image


@pytest.mark.usefixtures("no_docker")
def test_the_container_advertises_the_port_that_leads_to_it(example: ModuleType) -> None:
    with example.BarnabasContainer() as kafka, Client.of(kafka.bootstrap) as client:
        (broker,) = client.ask(MetadataRequest(topics=[]), 8).brokers
        assert f"{broker.host}:{broker.port}" == kafka.bootstrap


def test_the_class_in_java_is_one_for_testcontainers(tmp_path: Path) -> None:
    mvn = need_program("mvn")
    need_program("javac")
    compiled = subprocess.run(
        [mvn, "--batch-mode", "--quiet", "-f", EXAMPLES / "java", f"-DbuildDirectory={tmp_path}", "compile"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert compiled.returncode == 0, compiled.stdout
    assert [*tmp_path.rglob("BarnabasContainer.class")]

"""The compose file of a cluster, without Docker: its containers run as processes on this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.messages.metadata import MetadataRequest
from tests.support.ports import free_ports
from tests.support.waiting import until
from tests.support.wire import Client

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
FILE = DOCKER / "compose.cluster.yaml"
BROKERS = ("broker-1", "broker-2", "broker-3")


def environments() -> dict[str, dict[str, str]]:
    """Return each service's environment. The parser knows only the YAML that the file uses: mappings, lists of texts,
    and an anchor."""
    anchors: dict[str, dict[str, str]] = {}
    found: dict[str, dict[str, str]] = {}
    top = service = ""
    into: dict[str, str] = {}
    for line in FILE.read_text().splitlines():
        depth = len(line) - len(line.lstrip())
        key, colon, value = line.strip().partition(":")
        value = value.strip()
        if not colon or line.lstrip().startswith(("#", "-")):
            continue
        if depth == 0:
            top = key
            if value.startswith("&"):
                into = anchors.setdefault(value[1:], {})
        elif top == "services" and depth == 2:
            service = key
        elif top == "services" and depth == 4:
            into = found.setdefault(service, {}) if key == "environment" else {}
        elif key == "<<":
            into.update(anchors[value.removeprefix("*")])
        else:
            into[key] = value
    return found


def test_each_service_has_a_volume_of_its_own_and_a_port_that_it_advertises() -> None:
    text = FILE.read_text()
    volumes = re.findall(r"^      - (\S+-data):/var/lib/kafka/data$", text, re.MULTILINE)
    assert len(volumes) == len({*volumes}) == 4
    assert re.findall(r"^  (\S+-data):$", text, re.MULTILINE) == volumes
    published = re.findall(r'- "127\.0\.0\.1:(\d+):(\d+)"', text)
    outside = [
        re.search(r"OUTSIDE://localhost:(\d+)", environment["KAFKA_ADVERTISED_LISTENERS"])
        for environment in environments().values()
        if environment["KAFKA_PROCESS_ROLES"] == "broker"
    ]
    assert published == [(port[1], port[1]) for port in outside if port is not None]
    assert len(published) == 3


class Containers:
    """The containers as processes here. Each has ports of its own on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ports: dict[tuple[str, str], int] = {}
        self._found = environments()
        self._processes: list[subprocess.Popen[str]] = []

    def environment(self, service: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
        settings = {
            name: re.sub(r"(0\.0\.0\.0|localhost|controller|broker-\d):(\d+)", self._here(service), value)
            for name, value in self._found[service].items()
        }
        nowhere = {"BARNABAS_CONFIG": str(self.folder), "PYTHONPATH": str(ROOT)}
        return {**kept, **settings, **nowhere, "KAFKA_LOG_DIRS": str(self.folder / service)}

    def _here(self, service: str):  # type: ignore[no-untyped-def]
        def replaced(found: re.Match[str]) -> str:
            host, port = found.groups()
            key = (service if host in ("0.0.0.0", "localhost") else host), port
            if key not in self._ports:
                (self._ports[key],) = free_ports(1)
            return f"127.0.0.1:{self._ports[key]}"

        return replaced

    def start(self, service: str) -> None:
        runs = self.folder / "barnabas"
        if not runs.exists():  # it can't be written while the previous service is about to run it
            runs.write_text(f'#!/bin/sh\nexec {sys.executable} -m broker "$@"\n')
            runs.chmod(0o755)
        log = self.folder / f"{service}.log"
        with log.open("w") as output:
            self._processes.append(
                subprocess.Popen(
                    [DOCKER / "entrypoint.sh"],
                    env={**self.environment(service), "BARNABAS": str(runs)},
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )

    def is_healthy(self, service: str) -> bool:
        command = [sys.executable, DOCKER / "healthcheck.py"]
        checked = subprocess.run(command, env=self.environment(service), capture_output=True, check=False)
        return checked.returncode == 0

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture
def containers(tmp_path: Path) -> Iterator[Containers]:
    made = Containers(tmp_path)
    yield made
    made.end()


def test_the_services_are_one_cluster_and_each_is_healthy(containers: Containers) -> None:
    services = ("controller", *BROKERS)
    assert {*environments()} == {*services}
    assert not containers.is_healthy("controller")
    for service in services:
        containers.start(service)
    for service in services:
        log = containers.folder / f"{service}.log"
        until(lambda log=log: "started" in log.read_text(), f"{service} has started")
        assert containers.is_healthy(service)
    for listener in ("INSIDE", "OUTSIDE"):
        said = re.search(
            rf"{listener}://(\S+?)(,|$)", containers.environment("broker-2")["KAFKA_ADVERTISED_LISTENERS"]
        )
        assert said is not None

        def told(bootstrap: str = said[1]) -> set[str]:
            with Client.of(bootstrap) as client:
                brokers = client.ask(MetadataRequest(topics=[]), 8).brokers
            return {f"{each.node_id}@{each.host}:{each.port}" for each in brokers}

        expected = set()
        for service in BROKERS:
            advertised = containers.environment(service)["KAFKA_ADVERTISED_LISTENERS"]
            at = re.search(rf"{listener}://(\S+?)(,|$)", advertised)
            assert at is not None
            expected.add(f"{service[-1]}@{at[1]}")
        until(lambda wanted=expected, ask=told: ask() == wanted, f"all brokers are known at {listener}")

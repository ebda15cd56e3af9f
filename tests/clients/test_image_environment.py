"""What the container's entry point and its environment come to, without a container."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.ports import free_ports

ROOT = Path(__file__).parents[2]
ENTRY_POINT = ROOT / "docker" / "entrypoint.sh"
PATIENCE_S = 240.0


@pytest.fixture
def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}


def program(path: Path, line: str) -> str:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("told", "passed_on"),
    [
        (
            {},
            {
                "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092",
                "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
                "KAFKA_LOG_DIRS": "/var/lib/kafka/data",
            },
        ),
        (
            {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092", "KAFKA_LOG_DIRS": "/data"},
            {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092", "KAFKA_LOG_DIRS": "/data"},
        ),
    ],
    ids=["told nothing", "told what to advertise"],
)
def test_the_entry_point_listens_everywhere_by_default(
    tmp_path: Path, clean_environment: dict[str, str], told: dict[str, str], passed_on: dict[str, str]
) -> None:
    show = program(tmp_path / "show", "env")
    environment = {**clean_environment, **told, "BARNABAS": show}
    shown = subprocess.run([ENTRY_POINT], env=environment, capture_output=True, text=True, check=True).stdout
    assert dict(re.findall(r"^(KAFKA_\w+)=(.*)$", shown, re.MULTILINE)) == passed_on


def test_a_client_of_each_listener_in_the_compose_file_gets_that_listeners_address(
    tmp_path: Path, clean_environment: dict[str, str]
) -> None:
    compose = (ROOT / "docker" / "compose.yaml").read_text("utf-8")
    inside, outside = free_ports(2)
    ports = {"29092": str(inside), "9092": str(outside)}
    on_free_ports = re.sub("29092|9092", lambda port: ports[port[0]], compose)
    environment = {
        **clean_environment,
        **dict(re.findall(r'^ +(KAFKA_\w+): "?([^"\n]*)"?$', on_free_ports, re.MULTILINE)),
        "KAFKA_LOG_DIRS": str(tmp_path / "data"),
        "BARNABAS": program(
            tmp_path / "barnabas", f'exec {sys.executable} -P {ROOT}/barnabas/launcher.py "$@"'
        ),
    }
    with subprocess.Popen([ENTRY_POINT], env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "started" in process.stdout.readline()
        try:
            assert told_by(inside) == ("kafka", inside)
            assert told_by(outside) == ("localhost", outside)
        finally:
            process.terminate()
    assert process.returncode == 0
    assert (tmp_path / "data" / "meta.properties").exists()


def told_by(port: int) -> tuple[str, int]:
    (broker,) = (
        AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
        .list_topics(timeout=PATIENCE_S)
        .brokers.values()
    )
    return broker.host, broker.port

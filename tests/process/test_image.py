"""The container's files and the systemd unit, tested without Docker or systemd."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import barnabas
from broker.process.command_line import parse_command_line

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a container without settings. It names the folder in which settings may be mounted."""
    (tmp_path / "config").mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    return {**kept, "BARNABAS_CONFIG": str(tmp_path / "config")}


def entered(tmp_path: Path, environment: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return the arguments and the `KAFKA_` variables that the entry point passes on."""
    show = tmp_path / "show"
    show.write_text('#!/bin/sh\nprintf "argument %s\\n" "$@"\nenv\n')
    show.chmod(0o755)
    shown = subprocess.run(
        [DOCKER / "entrypoint.sh", "--log-level", "info"],
        env={**environment, "BARNABAS": str(show)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    variables = dict(re.findall(r"^(KAFKA_\w+)=(.*)$", shown, re.MULTILINE))
    return re.findall(r"^argument (.*)$", shown, re.MULTILINE), variables


def test_a_mounted_file_is_read_and_its_settings_are_not_overridden(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    file = tmp_path / "config" / "server.properties"
    file.write_text("log.dirs = /data\nadvertised.listeners: PLAINTEXT://here:9092\n")
    arguments, variables = entered(tmp_path, environment)
    assert arguments == ["--config", str(file), "--log-level", "info"]
    assert variables == {}


def test_settings_missing_from_a_mounted_file_are_as_without_one(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "config" / "server.properties").write_text("num.partitions=3\n#listeners=PLAINTEXT://:1\n")
    _, variables = entered(tmp_path, environment)
    assert variables == {
        "KAFKA_LOG_DIRS": "/var/lib/kafka/data",
        "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
    }


@pytest.mark.parametrize(
    "variable", ["KAFKA_LOG_DIRS", "KAFKA_LOG_DIR", "KAFKA_CFG_LOG_DIRS", "KAFKA_CFG_LOG_DIR"]
)
def test_data_goes_where_the_environment_says_however_it_does(
    tmp_path: Path, environment: dict[str, str], variable: str
) -> None:
    """Otherwise the data would be in an anonymous volume, and gone with the container."""
    _, variables = entered(tmp_path, {**environment, variable: "/mine"})
    places = {name: value for name, value in variables.items() if "LOG_DIR" in name}
    assert places == {variable: "/mine"}


def test_without_a_mounted_file_no_file_is_named(tmp_path: Path, environment: dict[str, str]) -> None:
    arguments, _ = entered(tmp_path, environment)
    assert arguments == ["--log-level", "info"]


def test_key_stores_and_their_passwords_are_files_in_the_folder_for_secrets(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """The variables have the names that the apache/kafka image gives them."""
    for name, content in (("server.p12", "x"), ("ca.p12", "y"), ("password", "open sesame\n")):
        (tmp_path / name).write_text(content)
    told = {
        "KAFKA_SSL_KEYSTORE_FILENAME": "server.p12",
        "KAFKA_SSL_KEYSTORE_CREDENTIALS": "password",
        "KAFKA_SSL_TRUSTSTORE_FILENAME": "ca.p12",
        "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "password",
        "KAFKA_SSL_KEYSTORE_TYPE": "PKCS12",
    }
    _, variables = entered(tmp_path, {**environment, "BARNABAS_SECRETS": str(tmp_path), **told})
    assert {name: value for name, value in variables.items() if "_SSL_" in name} == {
        "KAFKA_SSL_KEYSTORE_LOCATION": str(tmp_path / "server.p12"),
        "KAFKA_SSL_KEYSTORE_PASSWORD": "open sesame",
        "KAFKA_SSL_KEYSTORE_TYPE": "PKCS12",
        "KAFKA_SSL_TRUSTSTORE_LOCATION": str(tmp_path / "ca.p12"),
        "KAFKA_SSL_TRUSTSTORE_PASSWORD": "open sesame",
    }


def test_a_secret_that_is_not_there_ends_the_start_with_its_name(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    told = {"KAFKA_SSL_KEY_CREDENTIALS": "password", "BARNABAS_SECRETS": str(tmp_path)}
    ended = subprocess.run(
        [DOCKER / "entrypoint.sh"], env={**environment, **told}, capture_output=True, text=True
    )
    assert ended.returncode == 2
    assert f"KAFKA_SSL_KEY_CREDENTIALS: there is no {tmp_path}/password" in ended.stderr


def test_users_come_in_only_by_the_environment(tmp_path: Path) -> None:
    """A JAAS line names them, in a variable named like all others. Or they are in a file that KAFKA_OPTS names."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    jaas = tmp_path / "kafka_server_jaas.conf"
    jaas.write_text(f'KafkaServer {{ {module} required user_alice="from the file"; }};')
    listeners = {
        "KAFKA_LISTENERS": "SASL_PLAINTEXT://:9092,OTHER://:9093",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "SASL_PLAINTEXT:SASL_PLAINTEXT,OTHER:SASL_PLAINTEXT",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "SASL_PLAINTEXT",
        "KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN",
        "KAFKA_SASL_MECHANISM_INTER_BROKER_PROTOCOL": "PLAIN",
    }
    line = f'{module} required username="alice" password="x" user_alice="from the line";'
    told = {
        **listeners,
        "KAFKA_LISTENER_NAME_SASL__PLAINTEXT_PLAIN_SASL_JAAS_CONFIG": line,
        "KAFKA_OPTS": f"-Djava.security.auth.login.config={jaas}",
    }
    config = parse_command_line(["--data", str(tmp_path / "data")], told).config
    assert config.sasl["SASL_PLAINTEXT"].passwords == {"alice": "from the line"}
    assert config.sasl["OTHER"].passwords == {"alice": "from the file"}


def health(environment: dict[str, str], **told: str) -> int:
    command = [sys.executable, DOCKER / "healthcheck.py"]
    return subprocess.run(command, env={**environment, **told}, capture_output=True, check=False).returncode


def test_the_health_check_asks_the_broker_where_it_listens(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    with barnabas.Broker() as broker:
        listeners = f"CONTROLLER://0.0.0.0:1,PLAINTEXT://0.0.0.0:{broker.port}"
        assert health(environment, KAFKA_LISTENERS=listeners) == 0
        assert health(environment, KAFKA_CFG_LISTENERS=f"PLAINTEXT://127.0.0.1:{broker.port}") == 0
        assert health(environment, KAFKA_ADVERTISED_LISTENERS=f"PLAINTEXT://elsewhere:{broker.port}") == 0
        (tmp_path / "config" / "server.properties").write_text(
            f"a=b\nlisteners = PLAINTEXT://:{broker.port}\n"
        )
        assert health(environment) == 0
        port = broker.port
    assert health(environment, KAFKA_LISTENERS=f"PLAINTEXT://:{port}") == 1


def test_the_images_build_receives_all_files_that_it_copies() -> None:
    """The classic builder reads the same list, and nothing in the Dockerfile needs another builder."""
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    dockerfile = (DOCKER / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--from|\. )(.*) \S+$", dockerfile, re.MULTILINE)
    assert copied
    assert {name for line in copied for name in line.split()} <= let_in
    assert {"pyproject.toml", "README.md", "LICENSE", "hatch_build.py", "barnabas"} <= let_in
    assert "--chmod" not in dockerfile
    assert "HEALTHCHECK" in dockerfile
    assert os.access(DOCKER / "entrypoint.sh", os.X_OK)


def test_the_unit_starts_the_broker_as_a_service_that_says_when_it_is_ready() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(ROOT / "systemd" / "barnabas.service")
    service = unit["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert Path(program).name == "barnabas"
    assert [*parse_command_line(arguments, {}).config.log_dirs] == ["/var/lib/barnabas"]
    assert service["Type"] == "notify"
    assert service["StateDirectory"] == "barnabas"
    assert service["RestartPreventExitStatus"] == "2"

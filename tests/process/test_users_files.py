"""Settings files that users have for other Kafkas. Each starts a broker, or one line says what to write instead.

The files are in `tests/data/users`. The first line of each says where it comes from.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from protocol.messages.metadata import MetadataRequest
from tests.support.ports import free_ports
from tests.support.requirements import need_program
from tests.support.waiting import until
from tests.support.wire import Client

ROOT = Path(__file__).parents[2]
FILES = ROOT / "tests" / "data" / "users"
BARNABAS = [sys.executable, "-P", str(ROOT / "barnabas" / "launcher.py")]
PATIENCE_S = 60

ALONE = [
    "apache-kafka.env",
    "bitnami.env",
    "bitnami-zookeeper.env",
    "confluent-kraft.properties",
    "cp-kafka.env",
    "cp-kafka-zookeeper.env",
    "kafka-3-zookeeper.properties",
    "kafka-server.properties",
    "strimzi-no-providers.properties",
    "wurstmeister.env",
]
"""The files that start a single node, which is its own controller."""


class Here:
    """This machine in place of the one for which a file was written: other ports, other folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ports: dict[str, int] = {}

    def port(self, port: str) -> int:
        if port not in self._ports:
            (self._ports[port],) = free_ports(1)
        return self._ports[port]

    def text(self, text: str) -> str:
        """Return the text with addresses on this machine, and with files in the test's folder."""
        text = re.sub(
            r"(?<=[/@=])(localhost|broker|kafka|0\.0\.0\.0|[\w-]+(?:\.[\w-]+)+|):(\d{4,5})\b",
            lambda found: f"127.0.0.1:{self.port(found[2])}",
            text,
        )
        text = text.replace("/etc/kafka/secrets", str(self.folder))
        return re.sub(r"(?<==)/(?:tmp|var)/\S+", lambda found: str(self.folder / Path(found[0]).name), text)


def command_and_environment(here: Here, file: str) -> tuple[list[str], dict[str, str]]:
    text = here.text((FILES / file).read_text("utf-8"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    if file.endswith(".properties"):
        written = here.folder / file
        written.write_text(text)
        command = [*BARNABAS, "--config", str(written), "--cluster-id", "4L6g3nShT-eMCtK--X86sw"]
        return command if "\nlisteners=" in text else [*command, "--port", str(here.port("9092"))], kept
    runs = here.folder / "barnabas"
    if not runs.exists():
        runs.write_text("#!/bin/sh\nexec " + " ".join(BARNABAS) + ' "$@"\n')
        runs.chmod(0o755)
    told = dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))
    if not {"KAFKA_LISTENERS", "KAFKA_ADVERTISED_LISTENERS"} & {*told} and "KAFKA_CFG_LISTENERS" not in told:
        address = f"PLAINTEXT://127.0.0.1:{here.port('9092')}"  # the image's own default is 0.0.0.0:9092
        told |= {"KAFKA_LISTENERS": address, "KAFKA_ADVERTISED_LISTENERS": address}
    elsewhere = {
        "BARNABAS": str(runs),
        "BARNABAS_CONFIG": str(here.folder / "none"),
        "BARNABAS_SECRETS": str(here.folder),
        "KAFKA_LOG_DIRS": str(here.folder / "data"),
    }
    return [str(ROOT / "docker" / "entrypoint.sh")], {**kept, **told, **elsewhere}


@contextmanager
def started(here: Here, file: str) -> Iterator[Path]:
    """Start a node with that file, and return its log."""
    command, environment = command_and_environment(here, file)
    log = here.folder / f"{file}.log"
    with log.open("w") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        until(lambda: "started" in log.read_text() or process.poll() is not None, f"{file} has started")
        assert process.poll() is None, log.read_text()
        yield log
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def ended(here: Here, file: str) -> tuple[int, str]:
    """Run a node that doesn't start, and return its exit status and what it printed."""
    command, environment = command_and_environment(here, file)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    return done.returncode, done.stderr


def nodes(bootstrap: str) -> Sequence[tuple[int, str]]:
    with Client.of(bootstrap) as client:
        found = client.ask(MetadataRequest(topics=[]), 8).brokers
    return [(each.node_id, f"{each.host}:{each.port}") for each in found]


def test_each_file_is_tried() -> None:
    elsewhere = {*REFUSED, "kafka-broker.properties", "kafka-controller.properties", "apache-kafka-sasl.env"}
    assert {path.name for path in FILES.iterdir()} == {*ALONE} | elsewhere | {"apache-kafka-ssl.env"}


@pytest.mark.parametrize("file", ALONE)
def test_a_file_made_for_another_kafka_starts_this_one(file: str, tmp_path: Path) -> None:
    here = Here(tmp_path)
    port = here.port("9094" if file == "bitnami.env" else "9092")
    with started(here, file) as log:
        ((node_id, address),) = nodes(f"127.0.0.1:{port}")
        assert address.endswith(f":{port}")
        said = re.search(r"(?:node\.id|broker\.id|NODE_ID|BROKER_ID)=(\d+)", (FILES / file).read_text())
        assert node_id == (int(said[1]) if said else 1)
        assert "Traceback" not in log.read_text()


def test_kafkas_files_for_a_controller_and_a_broker_make_a_cluster(tmp_path: Path) -> None:
    here = Here(tmp_path)
    with started(here, "kafka-controller.properties"), started(here, "kafka-broker.properties"):
        port = here.port("9092")
        until(lambda: nodes(f"127.0.0.1:{port}") == [(2, f"127.0.0.1:{port}")], "the broker is known")


def test_users_of_a_jaas_file_sign_in(tmp_path: Path) -> None:
    here = Here(tmp_path)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    (tmp_path / "broker_jaas.conf").write_text(
        f'KafkaServer {{ {module} required username="admin" password="secret" user_admin="secret"; }};\n'
    )
    with started(here, "apache-kafka-sasl.env") as log:
        assert f"connect to 127.0.0.1:{here.port('9094')}" in log.read_text()


REFUSED = {
    "strimzi-plain.properties": "config.providers=strimzienv,strimzisecrets is refused: config providers aren't built;"
    " write the values themselves",
    "bitnami-sasl.env": "KAFKA_CLIENT_USERS isn't read; write the users into a line of JAAS instead: "
    "KAFKA_LISTENER_NAME_<LISTENER, with __ for _>_PLAIN_SASL_JAAS_CONFIG="
    'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="password";',
}


@pytest.mark.parametrize("file", REFUSED)
def test_a_missing_file_is_one_line_that_says_what_to_write_instead(file: str, tmp_path: Path) -> None:
    status, said = ended(Here(tmp_path), file)
    assert status == 2
    assert said.count("\n") == 1
    assert REFUSED[file] in said


def test_key_stores_of_java_are_refused_with_the_command_that_converts_them(tmp_path: Path) -> None:
    keytool = need_program("keytool")
    for store in ("kafka01.keystore.jks", "kafka.truststore.jks"):
        made = [
            keytool,
            "-genkeypair",
            "-keyalg",
            "EC",
            "-alias",
            "a",
            "-dname",
            "CN=broker",
            "-storetype",
            "JKS",
        ]
        secrets = ["-storepass", "abcdefgh", "-keypass", "abcdefgh"]
        subprocess.run([*made, "-keystore", tmp_path / store, *secrets], check=True, capture_output=True)
    for name in ("keystore", "ssl_key", "truststore"):
        (tmp_path / f"kafka_{name}_creds").write_text("abcdefgh")
    status, said = ended(Here(tmp_path), "apache-kafka-ssl.env")
    assert status == 2
    assert said.count("\n") == 1
    assert "isn't read" in said
    assert f"keytool -importkeystore -srckeystore {tmp_path}/kafka01.keystore.jks" in said

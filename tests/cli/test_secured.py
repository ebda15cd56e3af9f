"""A Kafka that wants TLS and a password: the commands' own client, and librdkafka."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.conftest import Ran, run_cli
from tests.support import apache_kafka
from tests.support.ports import free_ports
from tests.support.requirements import need_program

LOGIN = "org.apache.kafka.common.security"


class Secured(NamedTuple):
    """A secured Kafka. `trusted` is the PEM file of its certificate's signer."""

    bootstrap: str
    trusted: Path

    def run(self, *arguments: object, stdin: str = "", mechanism: str = "PLAIN", **settings: str) -> Ran:
        given = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": "ana",
            "sasl.password": f"secret of {mechanism}",
            "ssl.ca.location": str(self.trusted),
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        options = [part for name, value in given.items() for part in ("-X", f"{name}={value}")]
        return run_cli(*arguments, *options, stdin=stdin, bootstrap=self.bootstrap)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, needs_kafka: Callable[..., str]) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    certificate, store = folder / "certificate.pem", folder / "store.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
    subprocess.run(
        [need_program("openssl"), *made, "-keyout", folder / "key.pem", "-out", certificate],
        check=True,
        capture_output=True,
    )
    store.write_text((folder / "key.pem").read_text() + certificate.read_text())
    plain, controller, port = free_ports(3)
    listeners = f"PLAINTEXT://127.0.0.1:{plain},SECURE://127.0.0.1:{port}"
    settings = {
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.secure.plain.sasl.jaas.config": f"{LOGIN}.plain.PlainLoginModule required "
        'user_ana="secret of PLAIN";',
        **{
            f"listener.name.secure.{name}.sasl.jaas.config": f"{LOGIN}.scram.ScramLoginModule required;"
            for name in ("scram-sha-256", "scram-sha-512")
        },
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
    }
    with apache_kafka.running(folder, *(f"{name}={value}" for name, value in settings.items())) as kafka:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            needs_kafka(
                "configs", "--bootstrap-server", kafka.bootstrap, "--alter", "--entity-type", "users",
                "--entity-name", "ana", "--add-config", f"{mechanism}=[password=secret of {mechanism}]",
            )  # fmt: skip
        yield Secured(f"127.0.0.1:{port}", certificate)


@pytest.mark.xdist_group("cli-apache")
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_with_the_password_is_let_in(secured: Secured, topic: str, mechanism: str) -> None:
    made = secured.run("topics", "create", topic, mechanism=mechanism)
    assert (made.status, made.err) == (0, f"{topic}: created\n"), made.err
    assert secured.run("produce", topic, stdin="a\n", mechanism=mechanism).status == 0
    assert secured.run("consume", topic, "-e", mechanism=mechanism).lines == ["a"]


@pytest.mark.xdist_group("cli-apache")
def test_a_user_without_it_reads_the_reason_in_one_line(secured: Secured) -> None:
    for settings, status, words in [
        ({"sasl_password": "wrong"}, 1, "refuses this user"),
        ({"mechanism": "SCRAM-SHA-512", "sasl_password": "wrong"}, 1, "refuses this user"),
        ({"mechanism": "GSSAPI"}, 2, "SCRAM-SHA-512"),
        ({"sasl_username": ""}, 2, "sasl.username"),
        ({"ssl_ca_location": ""}, 3, "certificate"),
        ({"ssl_ca_location": "/nowhere.pem"}, 2, "ssl"),
        ({"security_protocol": "TLS"}, 2, "SASL_SSL"),
        ({"security_protocol": "PLAINTEXT"}, 1, "does it want TLS?"),
    ]:
        ran = secured.run("topics", **settings)  # type: ignore[arg-type]
        assert (ran.status, ran.out, ran.err.count("\n")) == (status, "", 1), (settings, ran)
        assert words in ran.err, (settings, ran)

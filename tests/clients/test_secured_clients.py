"""Each client comes in by what `client_config` gives it, by each mechanism and by a certificate, and may do what was
allowed; with anything wrong about it none does."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import barnabas
from tests.clients.confluent import PATIENCE_S
from tests.clients.sending import sent_by_aiokafka, sent_by_confluent, sent_by_kafka_python
from tests.support.requirements import need_program

USERS = {"alice": 'se"cret\\ of=alice;', "bob": "bob's"}
TOPIC, OTHER = "orders", "others"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
WAYS = [(security, mechanism) for security in ("sasl_plaintext", "sasl_ssl") for mechanism in MECHANISMS] + [
    ("ssl", None)
]
FETCH_TIMEOUT_S = 240

Way = tuple[str, str | None]


class Brokers:
    """One for each kind of security, started for the first test that wants it. alice may write to a topic of two."""

    def __init__(self) -> None:
        self._started: dict[str, barnabas.Broker] = {}

    def of(self, security: str) -> barnabas.Broker:
        if security not in self._started:
            if security != "sasl_plaintext":
                pytest.importorskip("cryptography", reason="needs the extra security")
            broker = barnabas.Broker(security=security, users=USERS)
            self._started[security] = broker.start()
            admin = AdminClient(broker.client_config())
            for made in admin.create_topics([NewTopic(name, 1, 1) for name in (TOPIC, OTHER)]).values():
                made.result(PATIENCE_S)
            broker.allow("alice", "produce", topic=TOPIC)
        return self._started[security]

    def close(self) -> None:
        for broker in self._started.values():
            broker.close()


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    brokers = Brokers()
    yield brokers
    brokers.close()


def by_confluent(config: dict[str, Any], topic: str) -> str:
    refusals = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._ALL_BROKERS_DOWN)
    return sent_by_confluent({**config, "log_level": 0}, topic, refusals)


def by_kafka_python(config: dict[str, Any], topic: str) -> str:
    return sent_by_kafka_python({**config, "bootstrap_timeout_ms": 3_000, "max_block_ms": 60_000}, topic)


IN_PYTHON: dict[str, Callable[[dict[str, Any], str], str]] = {
    "confluent-kafka": by_confluent,
    "kafka-python": by_kafka_python,
    "aiokafka": sent_by_aiokafka,
}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(filter(None, way)))
@pytest.mark.parametrize("library", IN_PYTHON)
def test_each_client_comes_in_and_may_do_what_its_rules_allow(
    brokers: Brokers, library: str, way: Way
) -> None:
    security, mechanism = way
    broker = brokers.of(security)
    config = broker.client_config("alice", library, mechanism)  # type: ignore[call-overload]
    assert IN_PYTHON[library](config, TOPIC) == "written"
    assert IN_PYTHON[library](config, OTHER) == "TOPIC_AUTHORIZATION_FAILED"
    denial = broker.denials[-1]
    assert (denial.principal, denial.resource, denial.resource_type) == ("User:alice", OTHER, "topic")
    assert IN_PYTHON[library](broker.client_config(None, library, mechanism), OTHER) == "written"  # type: ignore[call-overload]


WRONGS = [
    *(("sasl_plaintext", mechanism, "password") for mechanism in MECHANISMS),
    ("sasl_ssl", "PLAIN", "password"),
    ("sasl_ssl", "PLAIN", "ca"),
    *(
        ("ssl", None, wrong)
        for wrong in ("ca", "expired_certificate", "foreign_certificate", "no_certificate")
    ),
]


@pytest.mark.parametrize("way", WRONGS, ids=lambda way: "-".join(filter(None, way)))
@pytest.mark.parametrize("library", IN_PYTHON)
def test_no_client_comes_in_with_anything_wrong(
    brokers: Brokers, library: str, way: tuple[str, str | None, str]
) -> None:
    security, mechanism, wrong = way
    config = brokers.of(security).client_config("alice", library, mechanism, wrong=wrong)  # type: ignore[call-overload]
    assert IN_PYTHON[library](config, TOPIC) == "refused"


def test_new_connections_see_a_rotated_certificate(brokers: Brokers) -> None:
    broker = brokers.of("sasl_ssl")
    config = broker.client_config("alice")
    before = Producer({**config, "log_level": 0})
    before.produce(TOPIC, b"v")
    assert before.flush(PATIENCE_S) == 0
    broker.rotate_certificates(expired=True)
    assert by_confluent(config, TOPIC) == "refused"
    before.produce(TOPIC, b"v")  # by the connection that it has
    assert before.flush(PATIENCE_S) == 0
    broker.rotate_certificates()
    assert by_confluent(config, TOPIC) == "written"


@pytest.mark.parametrize("security", ["sasl_plaintext", "sasl_ssl", "ssl"])
def test_kcat_comes_in(brokers: Brokers, needs_kcat: str, security: str) -> None:
    """By PLAIN, or a certificate: of SCRAM, librdkafka before 2.6 says a nonce that Kafka refuses, and so do we."""
    arguments = brokers.of(security).client_config("alice", "kcat")
    subprocess.run([needs_kcat, *arguments, "-P", "-t", TOPIC], input=b"v\n", check=True, timeout=PATIENCE_S)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(filter(None, way)))
def test_java_comes_in(brokers: Brokers, needs_kafka: Callable[..., str], tmp_path: Path, way: Way) -> None:
    security, mechanism = way
    broker = brokers.of(security)
    config = broker.client_config(None, "java", mechanism)
    file = tmp_path / "admin.properties"
    file.write_text("".join(f"{name}={escaped(value)}\n" for name, value in config.items()))
    common = ("--bootstrap-server", broker.bootstrap, "--command-config", file)
    told = needs_kafka("acls", *common, "--list", "--principal", "User:alice")
    assert "(principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW)" in told


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\")


def test_kafkas_tool_takes_the_command_that_a_denial_names(
    brokers: Brokers, needs_kafka: Callable[..., str], tmp_path: Path
) -> None:
    broker = brokers.of("sasl_plaintext")
    config = broker.client_config("bob")
    assert by_confluent(config, TOPIC) == "TOPIC_AUTHORIZATION_FAILED"
    denial = broker.denials[-1]
    file = tmp_path / "admin.properties"
    admin = broker.client_config(None, "java")
    file.write_text("".join(f"{name}={escaped(value)}\n" for name, value in admin.items()))
    program, *arguments = denial.command.replace("admin.properties", str(file)).split()
    assert program == "kafka-acls.sh"
    needs_kafka("acls", *arguments)
    broker.revoke("bob", denial.operation, topic=TOPIC)


KAFKAJS = "kafkajs@2.2.4"
KAFKAJS_PROGRAM = """
const { Kafka, logLevel } = require('kafkajs')
const run = async () => {
  const [config, topic] = [JSON.parse(process.argv[2]), process.argv[3]]
  const producer = new Kafka({ ...config, logLevel: logLevel.NOTHING, retry: { retries: 1 } }).producer()
  try {
    await producer.connect()
    await producer.send({ topic, messages: [{ value: 'v' }] })
    console.log('written')
  } catch (error) {
    console.log(error.type || (error.cause && error.cause.type) || 'refused')
  } finally {
    await producer.disconnect()
  }
}
run()
"""


@pytest.fixture(scope="module")
def kafkajs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that uses it; skips where it can't be had."""
    npm = need_program("npm")
    folder = tmp_path_factory.mktemp("kafkajs")
    try:
        command = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", KAFKAJS]
        subprocess.run(command, check=True, capture_output=True, timeout=FETCH_TIMEOUT_S)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"needs KafkaJS, which can't be had: {error}")
    (folder / "send.js").write_text(KAFKAJS_PROGRAM)
    return folder / "send.js"


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(filter(None, way)))
def test_kafkajs_comes_in(brokers: Brokers, kafkajs: Path, way: Way) -> None:
    node = need_program("node")
    security, mechanism = way
    broker = brokers.of(security)

    def sent(topic: str, **more: Any) -> str:
        config = broker.client_config("alice", "kafkajs", mechanism, **more)
        command = [node, kafkajs.name, json.dumps(config), topic]
        done = subprocess.run(
            command, cwd=kafkajs.parent, check=True, capture_output=True, text=True, timeout=PATIENCE_S
        )
        return done.stdout.strip()

    assert sent(TOPIC) == "written"
    assert sent(OTHER) == "TOPIC_AUTHORIZATION_FAILED"
    assert sent(TOPIC, wrong="password" if mechanism else "ca") not in (
        "written",
        "TOPIC_AUTHORIZATION_FAILED",
    )


FRANZ_GO = "github.com/twmb/franz-go@v1.22.3"
FRANZ_GO_PROGRAM = """
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	client, err := kgo.NewClient(barnabasOpts()...)
	if err == nil {
		record := &kgo.Record{Topic: os.Args[1], Value: []byte("v")}
		err = client.ProduceSync(ctx, record).FirstErr()
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("written")
}
"""


@pytest.fixture(scope="module")
def franz_go(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a program that uses it; skips where it can't be had."""
    go = need_program("go")
    folder = tmp_path_factory.mktemp("franz_go")
    (folder / "main.go").write_text(FRANZ_GO_PROGRAM)
    for step in (["mod", "init", "sends"], ["get", FRANZ_GO]):
        try:
            subprocess.run([go, *step], cwd=folder, check=True, capture_output=True, timeout=FETCH_TIMEOUT_S)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            pytest.skip(f"needs franz-go, which can't be had: {error}")
    return folder


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(filter(None, way)))
def test_franz_go_comes_in(brokers: Brokers, franz_go: Path, way: Way) -> None:
    go = need_program("go")
    security, mechanism = way
    source = brokers.of(security).client_config("alice", "franz-go", mechanism)
    (franz_go / "barnabas.go").write_text(source)
    for step in (["mod", "tidy"], ["vet", "."], ["build", "-o", "sends", "."]):
        done = subprocess.run(
            [go, *step], cwd=franz_go, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S
        )
        assert done.returncode == 0, done.stderr

    def sent(topic: str) -> str:
        command = [str(franz_go / "sends"), topic]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S).stdout

    assert sent(TOPIC) == "written\n"
    assert "TOPIC_AUTHORIZATION_FAILED" in sent(OTHER)


@pytest.mark.parametrize("library", IN_PYTHON)
def test_a_client_comes_in_by_a_token(library: str) -> None:
    pytest.importorskip("joserfc", reason="needs the extra security")
    with barnabas.Broker(security="sasl_plaintext", users=USERS, tokens=True) as broker:
        broker.allow("alice", "produce", topic=TOPIC)
        config = broker.client_config("alice", library, "OAUTHBEARER")  # type: ignore[call-overload]
        assert IN_PYTHON[library](config, TOPIC) == "written"
        assert broker.token("alice") != broker.expired_token("alice")
        if library == "kafka-python":  # the others try again for long
            config = broker.client_config("alice", library, wrong="expired_token")
            assert IN_PYTHON[library](config, TOPIC) == "refused"
        broker.restart()
        config = broker.client_config("alice", library, "OAUTHBEARER")  # type: ignore[call-overload]
        assert IN_PYTHON[library](config, TOPIC) == "written"


def test_revoking_a_right_during_a_transaction_aborts_it_in_a_cluster() -> None:
    """On whichever broker it is, at once."""
    with barnabas.Cluster(brokers=2, security="sasl_plaintext", users=USERS) as cluster:
        cluster.allow("alice", "produce")
        producer = Producer({**cluster.client_config("alice"), "transactional.id": "t", "log_level": 0})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.produce(TOPIC, b"before")
        assert producer.flush(PATIENCE_S) == 0
        cluster.deny("alice", "write", transactional_id="t")
        with pytest.raises(KafkaException) as refused:
            producer.commit_transaction(PATIENCE_S)
        assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert cluster.denials[-1].resource_type == "transactional_id"

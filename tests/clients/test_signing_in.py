"""Clients sign in by each of their mechanisms, get an error if they can't, and may do what ACLs allow."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

import barnabas
from tests.clients.confluent import PATIENCE_S
from tests.clients.sending import sent_by_aiokafka, sent_by_confluent, sent_by_kafka_python

PASSWORDS = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required " + " ".join(
    f'user_{user}="{password}"' for user, password in PASSWORDS.items()
)
CONFIG = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS + ";",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TOPIC, OTHER = "orders", "others"


def settings(bootstrap: str, user: str, mechanism: str, password: str | None = None) -> dict[str, Any]:
    """librdkafka's."""
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": PASSWORDS[user] if password is None else password,
    }


@pytest.fixture(scope="module")
def broker() -> Iterator[barnabas.Broker]:
    """alice may write to one of two topics. bob may do nothing."""
    with barnabas.Broker(config=CONFIG) as broker:
        admin = AdminClient(settings(broker.bootstrap, "admin", "PLAIN"))
        for made in admin.create_topics([NewTopic(name, 1, 1) for name in (TOPIC, OTHER)]).values():
            made.result(PATIENCE_S)
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            wanted = [
                UserScramCredentialUpsertion(user, info, password.encode())
                for user, password in PASSWORDS.items()
            ]
            for altered in admin.alter_user_scram_credentials(wanted).values():
                altered.result(PATIENCE_S)
        acl = AclBinding(
            ResourceType.TOPIC,
            TOPIC,
            ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            AclOperation.WRITE,
            AclPermissionType.ALLOW,
        )
        for created in admin.create_acls([acl]).values():
            created.result(PATIENCE_S)
        yield broker


def by_confluent(bootstrap: str, user: str, mechanism: str, topic: str, password: str | None = None) -> str:
    return sent_by_confluent(settings(bootstrap, user, mechanism, password), topic)


def in_python(bootstrap: str, user: str, mechanism: str, password: str | None) -> dict[str, Any]:
    """Of kafka-python and aiokafka."""
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": PASSWORDS[user] if password is None else password,
    }


def by_kafka_python(
    bootstrap: str, user: str, mechanism: str, topic: str, password: str | None = None
) -> str:
    within_ms = PATIENCE_S * 1000 if password is None else 1_000
    config = {**in_python(bootstrap, user, mechanism, password), "bootstrap_timeout_ms": within_ms}
    return sent_by_kafka_python(config, topic)


def by_aiokafka(bootstrap: str, user: str, mechanism: str, topic: str, password: str | None = None) -> str:
    return sent_by_aiokafka(in_python(bootstrap, user, mechanism, password), topic)


Send = Callable[..., str]
CLIENTS: dict[str, Send] = {
    "confluent": by_confluent,
    "kafka_python": by_kafka_python,
    "aiokafka": by_aiokafka,
}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_each_client_signs_in_and_may_do_what_acls_allow(
    broker: barnabas.Broker, client: str, mechanism: str
) -> None:
    send = CLIENTS[client]
    assert send(broker.bootstrap, "alice", mechanism, TOPIC) == "written"
    assert send(broker.bootstrap, "alice", mechanism, OTHER) == "TOPIC_AUTHORIZATION_FAILED"


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_with_a_wrong_password_no_client_gets_in(
    broker: barnabas.Broker, client: str, mechanism: str
) -> None:
    assert CLIENTS[client](broker.bootstrap, "alice", mechanism, TOPIC, "alice-secre") == "refused"


def test_kcat_signs_in(broker: barnabas.Broker, needs_kcat: str) -> None:
    """By PLAIN: of SCRAM, librdkafka before 2.6 says a nonce that Kafka refuses since CVE-2024-56128, and so do we."""
    options = [f"-X{name}={value}" for name, value in settings(broker.bootstrap, "admin", "PLAIN").items()]
    told = subprocess.run(
        [needs_kcat, "-L", "-J", *options], capture_output=True, text=True, check=True
    ).stdout
    assert f'"topic":"{TOPIC}"' in told


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafkas_tools_sign_in(
    broker: barnabas.Broker, needs_kafka: Callable[..., str], tmp_path: Path, mechanism: str
) -> None:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{module} required "
        'username="admin" password="admin-secret";\n'
    )
    common = ("--bootstrap-server", broker.bootstrap, "--command-config", file)
    assert TOPIC in needs_kafka("topics", *common, "--list").split()
    told = needs_kafka("acls", *common, "--list", "--topic", TOPIC)
    assert "(principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW)" in told


def test_revoking_a_right_during_a_transaction_aborts_it(broker: barnabas.Broker) -> None:
    """What an application must survive: the error, an abort, and nothing of it is read."""
    admin = AdminClient(settings(broker.bootstrap, "admin", "PLAIN"))
    rights = [
        AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            "User:bob",
            "*",
            AclOperation.WRITE,
            AclPermissionType.ALLOW,
        )
        for kind, name in ((ResourceType.TOPIC, TOPIC), (ResourceType.TRANSACTIONAL_ID, "bobs"))
    ]
    for made in admin.create_acls(rights).values():
        made.result(PATIENCE_S)
    producer = Producer({**settings(broker.bootstrap, "bob", "PLAIN"), "transactional.id": "bobs"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(TOPIC, b"before")
    assert producer.flush(PATIENCE_S) == 0
    revoked = AclBindingFilter(
        ResourceType.TOPIC,
        TOPIC,
        ResourcePatternType.LITERAL,
        "User:bob",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    for gone in admin.delete_acls([revoked]).values():
        assert len(gone.result(PATIENCE_S)) == 1
    told: list[str] = []
    producer.produce(TOPIC, b"behind", on_delivery=lambda error, _: told.append(error.name()))
    producer.flush(PATIENCE_S)
    assert told == ["TOPIC_AUTHORIZATION_FAILED"]
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(PATIENCE_S)
    assert refused.value.args[0].txn_requires_abort()
    producer.abort_transaction(PATIENCE_S)
    assert "Principal = User:bob is Denied operation = WRITE" in broker.log

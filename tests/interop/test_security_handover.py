"""Apache Kafka and barnabas on one folder, in turns: they admit the same users, with the same rights."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

import barnabas
from broker.security.sasl_client import Credentials
from protocol.errors import Error
from protocol.messages.groups import DescribeGroupsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.security import (
    AclCreation,
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from protocol.wire.schema import Message
from tests.interop.nodes import Turns
from tests.support.ports import free_ports
from tests.support.requirements import need_apache_kafka
from tests.support.waiting import until
from tests.support.wire import Client

pytestmark = pytest.mark.xdist_group("apache_kafka")

LISTENER = "listener.name.sasl_plaintext."
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
DIGESTS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
CODES = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
TOPICS = ("orders", "orders-new", "secrets")
SALT = b"salt of sixteen!"

PATIENCE_S = 30.0

Who = tuple[str, str, str]
"""User, mechanism and password."""
ALICE = ("alice", "SCRAM-SHA-256", "alice-secret")
PEOPLE: tuple[Who, ...] = (
    ("admin", "PLAIN", "admin-secret"),
    ("admin", "PLAIN", "wrong"),
    ALICE,
    ("alice", "SCRAM-SHA-256", "wrong"),
    ("alice", "SCRAM-SHA-512", "alice-secret"),
    ("bob", "SCRAM-SHA-512", "bob-secret"),
    ("carol", "SCRAM-SHA-256", "carol-secret"),
)

ANY, ALLOW, DENY = 1, 3, 2
TOPIC, GROUP, CLUSTER = 2, 3, 4
LITERAL, PREFIXED = 3, 4
ALL, READ, WRITE, DESCRIBE, ALTER = 2, 3, 4, 8, 7


def acl(
    user: str,
    operation: int,
    kind: int,
    name: str,
    *,
    pattern: int = LITERAL,
    host: str = "*",
    rule: int = ALLOW,
) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=f"User:{user}",
        host=host,
        operation=operation,
        permission_type=rule,
    )


class SecuredTurns(Turns):
    """At a listener at which everybody signs in, and who does what is decided by ACLs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (self.secured_port,) = free_ports(1)
        listeners = (
            f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self.controller_port},"
            f"SASL_PLAINTEXT://127.0.0.1:{self.secured_port}"
        )
        self.settings = {
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap},SASL_PLAINTEXT://127.0.0.1:{self.secured_port}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
            ),
            "sasl.enabled.mechanisms": f"PLAIN,{','.join(DIGESTS)}",
            f"{LISTENER}plain.sasl.jaas.config": f'{PLAIN} user_admin="admin-secret";',
            **{f"{LISTENER}{name.lower()}.sasl.jaas.config": f"{SCRAM};" for name in DIGESTS},
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin;User:ANONYMOUS",
            "connection.failed.authentication.delay.ms": "0",
        }

    def start(self, who: str) -> None:
        if who == "kafka":
            self.start_kafka()
        else:
            quorum = f"1@127.0.0.1:{self.controller_port}"
            config = {**self.settings, "controller.quorum.voters": quorum}
            self._barnabas = barnabas.Broker(data=self.data, config=config).start()

    # --- who may what ---------------------------------------------------------------------------------------

    def ask(self, request: Message, version: int, who: Who = PEOPLE[0]) -> Any:
        """As somebody; what keeps him out is an AssertionError."""
        user, mechanism, password = who
        with Client.connect(self.secured_port) as client:
            conversation = Credentials(mechanism, user, password).begin(lambda: "fyko+d2lbbFgONRv9qkxdawL")
            shaken = client.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
            assert not shaken.error_code
            token: bytes | None = conversation.first()
            while token is not None:
                told = client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
                assert not told.error_code, (told.error_code, told.error_message)
                token = conversation.evaluate(bytes(told.auth_bytes))
            return client.ask(request, version)

    def rights(self, who: Who) -> object:
        """A user's rights on topics, the cluster and a group, as bits, or the reason for a refusal."""
        topics = [MetadataRequestTopic(name=name) for name in TOPICS]
        request = MetadataRequest(
            topics=topics,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )
        try:
            found = self.ask(request, 10, who)
        except AssertionError as error:
            return error.args[0]
        [group] = self.ask(
            DescribeGroupsRequest(groups=["readers"], include_authorized_operations=True), 5, who
        ).groups
        return (
            [(each.name, each.error_code, each.topic_authorized_operations) for each in found.topics],
            found.cluster_authorized_operations,
            (group.error_code, group.authorized_operations),
        )

    def table(self) -> dict[Who, object]:
        return {who: self.rights(who) for who in PEOPLE}

    def settled(self, last: Who) -> dict[Who, object]:
        """The table once what was changed last, an ACL, is in force: `orders` is shown to who was let in last."""
        until(lambda: "('orders', 0," in repr(self.rights(last)), "the rights are in force", PATIENCE_S)
        return self.table()

    def comes_to(self, expected: dict[Who, object]) -> None:
        """Wait until the change is in force."""
        try:
            until(lambda: self.table() == expected, "all have their rights", PATIENCE_S)
        except AssertionError:
            assert self.table() == expected
            raise

    # --- changes --------------------------------------------------------------------------------------------

    def create(self, *names: str) -> None:
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        answer = self.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
        assert {each.error_code for each in answer.topics} == {Error.NONE}

    def let_in(self, user: str, mechanism: str, password: str) -> None:
        salted = hashlib.pbkdf2_hmac(DIGESTS[mechanism], password.encode(), SALT, 4096)
        upsertion = ScramCredentialUpsertion(
            name=user, mechanism=CODES[mechanism], iterations=4096, salt=SALT, salted_password=salted
        )
        self._alter_credentials(AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]))

    def let_go(self, user: str, mechanism: str) -> None:
        deletion = ScramCredentialDeletion(name=user, mechanism=CODES[mechanism])
        self._alter_credentials(AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[]))

    def _alter_credentials(self, request: AlterUserScramCredentialsRequest) -> None:
        answer = self.ask(request, 0)
        assert {each.error_code for each in answer.results} == {Error.NONE}

    def allow(self, *acls: AclCreation) -> None:
        answer = self.ask(CreateAclsRequest(creations=[*acls]), 3)
        assert {each.error_code for each in answer.results} == {Error.NONE}

    def revoke(self, user: str) -> None:
        wanted = DeleteAclsFilter(
            resource_type_filter=ANY,
            resource_name_filter=None,
            pattern_type_filter=ANY,
            principal_filter=f"User:{user}",
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        )
        [answer] = self.ask(DeleteAclsRequest(filters=[wanted]), 3).filter_results
        assert not answer.error_code
        assert answer.matching_acls


def first_rights(turns: SecuredTurns) -> None:
    turns.create(*TOPICS)
    turns.let_in(*ALICE)
    turns.let_in("bob", "SCRAM-SHA-512", "bob-secret")
    turns.allow(
        acl("alice", ALL, TOPIC, "orders", pattern=PREFIXED),
        acl("alice", WRITE, TOPIC, "orders-new", rule=DENY),
        acl("alice", READ, GROUP, "readers"),
        acl("bob", READ, TOPIC, "*"),
        acl("bob", DESCRIBE, TOPIC, "secrets", host="127.0.0.0/8", rule=DENY),
        acl("bob", ALTER, CLUSTER, "kafka-cluster", host="127.0.0.1"),
        acl("*", READ, GROUP, "read", pattern=PREFIXED, host="10.0.0.1"),
    )


def other_rights(turns: SecuredTurns) -> None:
    """Nobody else has a credential of bob's mechanism: where its only user is removed and another one comes, Kafka may
    forget the latter as it starts anew (`ScramDelta.apply` puts him into a map that it has dropped)."""
    turns.let_go("bob", "SCRAM-SHA-512")
    turns.let_in("carol", "SCRAM-SHA-256", "carol-secret")
    turns.revoke("alice")
    turns.allow(
        acl("alice", DESCRIBE, TOPIC, "secrets"),
        acl("carol", ALL, TOPIC, "*", host="127.0.0.1"),
        acl("carol", ALL, TOPIC, "sec", pattern=PREFIXED, rule=DENY),
    )


@pytest.mark.parametrize("order", [("barnabas", "kafka"), ("kafka", "barnabas")])
def test_the_same_people_are_let_in_with_the_same_rights(order: tuple[str, str], tmp_path: Path) -> None:
    need_apache_kafka()
    first, second = order
    with SecuredTurns(tmp_path) as turns:
        turns.start(first)
        before = turns.table()
        assert len({repr(each) for each in before.values()}) > 1
        first_rights(turns)
        with_first = turns.settled(ALICE)
        assert with_first != before
        turns.stop()
        turns.start(second)
        turns.comes_to(with_first)
        other_rights(turns)
        with_second = turns.settled(("carol", "SCRAM-SHA-256", "carol-secret"))
        turns.stop()
        turns.start(first)
        turns.comes_to(with_second)

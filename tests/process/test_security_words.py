"""Tests state rights, ACLs and denials in the same words."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.rights import (
    ALLOW,
    DENY,
    OPERATIONS,
    RESOURCES,
    SUPPORTED,
    Denial,
    acls,
    kafka_acls_text,
    rule_text,
)
from broker.controller.acls import OPERATION_NAMES, RESOURCE_TYPE_NAMES, PatternType, Permission
from broker.security.authorizer import CLUSTER_NAME, SUPPORTED_OPERATIONS

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
READ, WRITE, CREATE, DESCRIBE = 3, 4, 5, 8


def test_the_words_are_kafkas_by_the_brokers_own_codes() -> None:
    assert {name.upper(): code for name, code in RESOURCES.items()} == {
        name: code for code, name in RESOURCE_TYPE_NAMES.items()
    }
    assert {name.upper(): code for name, code in OPERATIONS.items()} == {
        name: code for code, name in OPERATION_NAMES.items()
    }
    for kind, words in SUPPORTED.items():
        known = next(of for each, of in SUPPORTED_OPERATIONS.items() if each.name.lower() == kind)
        assert {OPERATIONS[word] for word in words} == {*map(int, known)}
    assert (ALLOW, DENY) == (Permission.ALLOW, Permission.DENY)


@pytest.mark.parametrize(
    ("said", "made"),
    [
        (("write", {"topic": "orders"}), [(TOPIC, "orders", 3, WRITE)]),
        (("WRITE", {"topic": ["a", "b"]}), [(TOPIC, "a", 3, WRITE), (TOPIC, "b", 3, WRITE)]),
        (("all", {"group": "*"}), [(GROUP, "*", 3, 2)]),
        (("IdempotentWrite", {"cluster": True}), [(CLUSTER, CLUSTER_NAME, 3, 12)]),
        (("describe-configs", {"topic": "t"}), [(TOPIC, "t", 3, 10)]),
        (("produce", {"topic": "t"}), [(TOPIC, "t", 3, each) for each in (WRITE, DESCRIBE, CREATE)]),
        (
            ("consume", {"topic": "t", "group": "g"}),
            [(TOPIC, "t", 3, READ), (TOPIC, "t", 3, DESCRIBE), (GROUP, "g", 3, READ)],
        ),
        (
            ("all", {}),
            [
                (TOPIC, "*", 3, 2),
                (GROUP, "*", 3, 2),
                (CLUSTER, CLUSTER_NAME, 3, 2),
                (TRANSACTIONAL_ID, "*", 3, 2),
            ],
        ),
        (("consume", {}), [(TOPIC, "*", 3, READ), (TOPIC, "*", 3, DESCRIBE), (GROUP, "*", 3, READ)]),
    ],
)
def test_a_word_is_these_rules(
    said: tuple[str, dict[str, Any]], made: list[tuple[int, str, int, int]]
) -> None:
    word, given = said
    whole = [(kind, name, pattern, "User:alice", "*", each, ALLOW) for kind, name, pattern, each in made]
    assert acls("alice", word, ALLOW, given) == whole


def test_a_name_may_be_a_prefix_and_a_host_a_range() -> None:
    assert acls("User:bob", "read", DENY, {"topic": "eu-"}, prefix=True, host="10.0.0.0/8") == [
        (TOPIC, "eu-", PatternType.PREFIXED, "User:bob", "10.0.0.0/8", READ, DENY)
    ]


@pytest.mark.parametrize(
    ("operation", "given", "message"),
    [
        ("wirte", {"topic": "t"}, "no operation 'wirte'.*read, write,.*produce and consume"),
        ("wirte", {}, "no operation 'wirte'"),
        ("", {"topic": "t"}, "no operation ''"),
        ("write", {}, r"write of what\? topic=\.\.\., group"),
        ("cluster_action", {}, "of what.*cluster=True"),
        ("cluster_action", {"topic": "t"}, "isn't an operation on a topic: those are read,.* and all"),
        ("create", {"group": "g"}, "isn't an operation on a group"),
        (
            "produce",
            {"group": "g"},
            "nothing to do with a group: it is about topic=... and transactional_id=...",
        ),
        ("write", {"topic": ""}, "give a name or several"),
        ("write", {"topic": []}, "give a name or several"),
        ("write", {"topic": ["a", 7]}, "give a name or several"),
        ("write", {"topic": 7}, "give a name or several"),
        ("alter", {"cluster": "c"}, "cluster=True"),
    ],
)
def test_nonsense_is_refused_with_the_valid_words(
    operation: str, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        acls("alice", operation, ALLOW, given)


def test_the_cluster_has_no_prefix_and_a_user_and_a_host_have_a_name() -> None:
    with pytest.raises(ValueError, match="no prefix"):
        acls("alice", "alter", ALLOW, {"cluster": True}, prefix=True)
    with pytest.raises(ValueError, match="no user"):
        acls("", "read", ALLOW, {"topic": "t"})
    with pytest.raises(ValueError, match="host=''"):
        acls("alice", "read", ALLOW, {"topic": "t"}, host="")


def test_a_rule_is_shown_as_the_call_and_the_command_that_make_it() -> None:
    acl = (TOPIC, "eu-", 4, "User:alice", "10.0.0.1", 10, DENY)
    assert rule_text(acl) == 'deny("alice", "describe_configs", topic="eu-", prefix=True, host="10.0.0.1")'
    assert kafka_acls_text(acl, "h:1") == (
        "kafka-acls.sh --bootstrap-server h:1 --command-config admin.properties --add --deny-principal User:alice "
        "--deny-host 10.0.0.1 --operation DescribeConfigs --topic eu- --resource-pattern-type prefixed"
    )
    acl = (CLUSTER, CLUSTER_NAME, 3, "User:alice", "*", 12, ALLOW)
    assert rule_text(acl) == 'allow("alice", "idempotent_write", cluster=True)'
    assert kafka_acls_text(acl, "h:1").endswith("--operation IdempotentWrite --cluster")


def denial(**told: Any) -> Denial:
    usual: dict[str, Any] = {
        "request": "Produce",
        "principal": "User:alice",
        "host": "127.0.0.1",
        "listener": "SASL_SSL",
        "operation": "write",
        "resource_type": "topic",
        "resource": "orders",
        "rule": "DefaultDeny",
        "acl": None,
        "time_ms": 0,
        "node": "",
        "bootstrap": "h:1",
    }
    return Denial(**{**usual, **told})


def test_a_denial_without_a_rule_is_explained_with_the_rule_that_would_allow_it() -> None:
    assert str(denial()) == (
        "Produce of User:alice from 127.0.0.1 was denied: it needs WRITE on topic 'orders', and no rule allows it "
        "(DefaultDeny).\n"
        "This would allow it:\n"
        '  broker.allow("alice", "write", topic="orders")\n'
        "  kafka-acls.sh --bootstrap-server h:1 --command-config admin.properties --add --allow-principal User:alice "
        "--operation Write --topic orders"
    )


def test_a_denial_by_a_rule_is_explained_with_the_call_that_takes_the_rule_back() -> None:
    acl = (TOPIC, "ord", 4, "User:*", "*", 2, DENY)
    assert str(denial(acl=acl, rule="MatchingAcl", node="broker 2")) == (
        "Produce of User:alice from 127.0.0.1 was denied at broker 2: it needs WRITE on topic 'orders', and a rule "
        'denies it, and it wins over all that allow: deny("*", "all", topic="ord", prefix=True).\n'
        "This would remove the denying rule:\n"
        '  cluster.revoke("*", "all", topic="ord", prefix=True, denied=True)\n'
        "  kafka-acls.sh --bootstrap-server h:1 --command-config admin.properties --remove --force --deny-principal "
        "'User:*' --operation All --topic ord --resource-pattern-type prefixed"
    )


def test_a_rule_that_only_kafkas_tools_can_express_has_only_their_command() -> None:
    explained = str(denial(resource_type="delegation_token", operation="describe", resource="id"))
    assert "broker." not in explained
    assert "--operation Describe --delegation-token id" in explained

"""What a node remembers of its denials."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.controller.acls import Acl
from broker.process.security_questions import (
    LONGEST_NAME,
    LONGEST_RULE,
    MOST_DENIALS,
    MOST_TOLD,
    Denials,
    known_acls,
)
from broker.security.authorizer import Operation, Principal, ResourceType
from broker.security.standard_authorizer import DEFAULT_DENY, Rule, StandardAuthorizer

CONTEXT: Any = SimpleNamespace(
    api_key=0, principal=Principal("User", "alice"), peer_host="::1", listener_name="SSL"
)


def heard(*, times: int = 1, name: str = "orders", rule: Rule = DEFAULT_DENY) -> Denials:
    denials = Denials(lambda: 1_000)
    for _ in range(times):
        denials(CONTEXT, Operation.WRITE, ResourceType.TOPIC, name, rule)
    return denials


def test_a_denial_is_kept_with_its_whole_explanation() -> None:
    acl = Acl(2, "ord", 4, "User:*", "*", 2, 2)
    (kept,) = heard(rule=acl).behind(0)
    assert kept == {
        "number": 1,
        "time_ms": 1_000,
        "request": "Produce",
        "principal": "User:alice",
        "host": "0:0:0:0:0:0:0:1",
        "listener": "SSL",
        "operation": "WRITE",
        "resource_type": "TOPIC",
        "resource": "orders",
        "rule": str(acl),
        "acl": [*acl],
    }


def test_denials_come_a_few_at_a_time_whichever_came_before() -> None:
    denials = heard(times=MOST_DENIALS + 25)
    told: list[Any] = []
    while some := denials.behind(told[-1] if told else 0):
        assert len(some) <= 10
        told += [each["number"] for each in some]
    assert told == [*range(26, MOST_DENIALS + 26)]
    assert denials.behind(MOST_DENIALS + 25) == []


@pytest.mark.limit("broker.process.security_questions.LONGEST_NAME")
def test_a_name_is_cut_at_the_longest_of_a_topic() -> None:
    (kept,) = heard(name="n" * LONGEST_NAME).behind(0)
    assert kept["resource"] == "n" * LONGEST_NAME
    (kept,) = heard(name="n" * (LONGEST_NAME + 1)).behind(0)
    assert kept["resource"] == "n" * LONGEST_NAME


@pytest.mark.limit("broker.process.security_questions.LONGEST_RULE")
def test_a_long_rule_is_cut_off() -> None:
    rule = Acl(2, "n" * LONGEST_RULE, 4, "User:*", "*", 2, 2)
    (kept,) = heard(rule=rule).behind(0)
    assert kept["rule"] == str(rule)[:LONGEST_RULE]
    assert kept["acl"] is None


@pytest.mark.limit("broker.process.security_questions.MOST_TOLD")
def test_the_first_of_many_rules_are_shown() -> None:
    acls = {Acl(2, f"t{number:03}", 3, "User:alice", "*", 3, 3): b"" for number in range(MOST_TOLD + 1)}
    node: Any = SimpleNamespace(
        authorizer=StandardAuthorizer([], allow_if_no_acl=False),
        metadata=SimpleNamespace(image=SimpleNamespace(kept=SimpleNamespace(acls=acls))),
    )
    assert known_acls(node, "User:alice") == sorted(acls)[:MOST_TOLD]
    assert known_acls(node, "User:bob") == []

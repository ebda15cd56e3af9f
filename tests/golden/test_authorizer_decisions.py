"""What the authorizer decides, and by which rule: as Kafka's own class does, over random ACLs and requests."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.controller.acls import ALL_OPERATIONS, Acl, java_host_address
from broker.security.authorizer import Operation, Principal, ResourceType
from broker.security.standard_authorizer import audit_text
from tests.support.acls import ALLOW, DENY, LITERAL, PREFIXED, Asker, Kept

WHO = ("User:alice", "User:bob", "User:*", "Group:alice", "User:a:b")
HOSTS = ("*", "127.0.0.1", "10.1.2.3", "10.0.0.0/8", "0:0:0:0:0:0:0:1", "::/0", "10.9.0.0/33", "::1")
NAMES = ("a", "ab", "abc", "abd", "b", "*", "a*", "bcd", "é", "z")
FROM = ("127.0.0.1", "10.1.2.3", "::1", "fe80::1")
SEEDS = 60


def drawn(luck: random.Random) -> Acl:
    return Acl(
        luck.choice((2, 2, 2, 3)),
        luck.choice(NAMES),
        luck.choice((LITERAL, PREFIXED)),
        luck.choice(WHO),
        luck.choice(HOSTS if luck.random() < 0.4 else ("*",)),
        luck.choice((ALL_OPERATIONS, 3, 4, 6, 8, 10, 11)),
        luck.choice((ALLOW, ALLOW, ALLOW, DENY)),
    )


def played(seed: int) -> tuple[list[str], list[str]]:
    """What is asked of Kafka's class, and what ours answers."""
    luck = random.Random(seed)
    super_users = luck.choice(("", "User:bob", "User:bob;User:a:b"))
    allow = luck.random() < 0.5
    kept = Kept(*filter(None, super_users.split(";")), allow_if_no_acl=allow)
    acls = {drawn(luck): None for _ in range(luck.randint(0, 30))}
    kept.add(*acls)
    gone = luck.sample([*acls], len(acls) // 3)
    kept.remove(*gone)
    back = luck.sample(gone, len(gone) // 2)
    kept.add(*back)
    there = [each for each in acls if each not in gone or each in back]
    asked = [f"new\t{super_users}\t{str(allow).lower()}"]
    asked += ["\t".join(map(str, ("acl", *map(_plain, each)))) for each in there]
    answered = []
    for _ in range(60):
        who, host = luck.choice(("User:alice", "User:bob", "User:a:b", "User:carol")), luck.choice(FROM)
        asker = Asker(Principal(*who.split(":", 1)), host)
        operation = Operation(luck.choice((3, 4, 6, 7, 8, 10, 11)))
        of = ResourceType(luck.choice((2, 3)))
        if luck.random() < 0.3:
            asked.append(f"any\t{who}\t{host}\t{operation.value}\t{of.value}")
            answered.append("ALLOWED" if kept.authorizer.allows_any(asker, operation, of) else "DENIED")
            continue
        name = luck.choice((*NAMES, "abcd", "ax", "bcde"))
        asked.append(f"ask\t{who}\t{host}\t{operation.value}\t{of.value}\t{name}")
        rule = kept.authorizer._rule(asker.principal, java_host_address(host), operation, of, name)
        answered.append(audit_text(asker, operation, of, name, rule, 1))
        assert kept.authorizer.allows(asker, operation, of, name) == (" is Allowed " in answered[-1])
    return asked, answered


def test_decisions_and_their_rules_are_those_of_kafkas_own_class(
    needs_kafka: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Path(__file__).parent / "java" / "AuthorizerDecisions.java"
    compiled = ["javac", "-cp", needs_kafka("classpath").strip(), "-d", tmp_path, program]
    subprocess.run(compiled, check=True, timeout=120)
    monkeypatch.setitem(os.environ, "KAFKA_CP", str(tmp_path))
    asked: list[str] = []
    answered: list[str] = []
    for seed in range(SEEDS):
        more, ours = played(seed)
        asked += more
        answered += ours
    kafkas = needs_kafka("class", "AuthorizerDecisions", stdin="\n".join([*asked, ""])).splitlines()
    questions = [line for line in asked if line.startswith(("ask", "any"))]
    assert len(kafkas) == len(questions) == len(answered)
    differ = [each for each in zip(questions, kafkas, answered, strict=True) if each[1] != each[2]]
    assert not differ, "\n".join(map("\n  ".join, differ[:20])) + f"\n{len(differ)} of {len(answered)}"


def _plain(value: object) -> object:
    return int(value) if isinstance(value, int) else value

"""How ACLs are found: only a few are looked at, however many there are."""

from __future__ import annotations

from broker.controller.acls import ALL_OPERATIONS, WILDCARD, Acl, PatternType, Permission
from broker.security.authorizer import ResourceType
from broker.security.standard_authorizer import AclIndex


def acl(
    principal: str, name: str, pattern: PatternType = PatternType.LITERAL, operation: int = ALL_OPERATIONS
) -> Acl:
    return Acl(ResourceType.TOPIC, name, pattern, principal, WILDCARD, operation, Permission.ALLOW)


def test_acls_are_found_by_the_names_of_their_principals() -> None:
    index = AclIndex()
    own = [acl("User:a", "x"), acl("User:a", "x", PatternType.PREFIXED), acl("User:a", "x", operation=3)]
    everyones = acl("User:*", "y")
    others = [acl(f"User:{number}", "x") for number in range(100)]
    for each in (*own, everyones, *others):
        index.add(each)
    found = [*index.of_principals(ResourceType.TOPIC, "User:a", "User:*")]
    assert sorted(found) == sorted((*own, everyones))
    assert [*index.of_principals(ResourceType.GROUP, "User:a", "User:*")] == []

    index.remove(own[0])
    assert sorted(index.of_principals(ResourceType.TOPIC, "User:a")) == sorted(own[1:])
    for each in (*own[1:], everyones, *others):
        index.remove(each)
    assert not index._by_principal
    assert not index._by_pattern

"""What the authorizer decides, rule by rule. (`tests/golden` compares it with Kafka's own class.)"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable

import pytest

from broker.controller.acls import ALL_OPERATIONS, Acl, host_range, is_in_range, java_host_address
from broker.controller.image import KeptRecords
from broker.security import standard_authorizer
from broker.security.authorizer import (
    DESCRIBE,
    READ,
    TOPIC,
    WRITE,
    AllowEverything,
    Authorizer,
    Operation,
    Principal,
    ResourceType,
)
from broker.security.node_authorizer import authorizer_of
from protocol.messages.metadata_records import AccessControlEntryRecord
from protocol.waiting import at_once
from tests.support.acls import ALICE, DENY, PREFIXED, Kept, acl

# --- each rule ----------------------------------------------------------------------------------------------


def test_an_operation_without_an_allowing_acl_is_denied() -> None:
    assert not Kept().authorizer.allows(ALICE, READ, TOPIC, "orders")


def test_a_resource_without_acls_is_open_to_everybody_if_set_so() -> None:
    kept = Kept(allow_if_no_acl=True).add(acl(who="User:bob"))
    assert not kept.authorizer.allows(ALICE, READ, TOPIC, "orders")
    assert kept.authorizer.allows(ALICE, READ, TOPIC, "others")


def test_a_super_user_may_whatever_is_denied() -> None:
    kept = Kept("User:alice").add(acl(ALL_OPERATIONS, "*", permission=DENY))
    assert kept.authorizer.allows(ALICE, READ, TOPIC, "orders")
    assert kept.authorizer.allows_any(ALICE, WRITE, TOPIC)


@pytest.mark.parametrize("near", [acl(), acl(pattern=PREFIXED, name="ord"), acl(name="*")])
def test_a_denial_wins_over_an_allowance_nearer_to_the_resource(near: Acl) -> None:
    for far in (acl(name="*", permission=DENY), acl(name="o", pattern=PREFIXED, permission=DENY)):
        assert not Kept().add(near, far).authorizer.allows(ALICE, READ, TOPIC, "orders")


@pytest.mark.parametrize(
    ("name", "is_one"), [("order", True), ("orders", True), ("orde", False), ("Orders", False), ("", False)]
)
def test_a_prefix_is_about_each_name_that_begins_with_it(name: str, is_one: bool) -> None:
    kept = Kept().add(acl(name="order", pattern=PREFIXED))
    assert kept.authorizer.allows(ALICE, READ, TOPIC, name) is is_one


def test_the_prefix_of_a_star_is_no_wildcard() -> None:
    kept = Kept().add(acl(name="*", pattern=PREFIXED))
    assert not kept.authorizer.allows(ALICE, READ, TOPIC, "orders")
    assert kept.authorizer.allows(ALICE, READ, TOPIC, "*x")


@pytest.mark.parametrize("operation", [READ, WRITE, Operation.DELETE, Operation.ALTER])
def test_operations_on_a_topic_imply_describing_it_and_denials_imply_nothing(
    operation: Operation,
) -> None:
    assert Kept().add(acl(operation)).authorizer.allows(ALICE, DESCRIBE, TOPIC, "orders")
    denied = Kept().add(acl(operation, permission=DENY), acl(ALL_OPERATIONS, name="*"))
    assert denied.authorizer.allows(ALICE, DESCRIBE, TOPIC, "orders")


def test_a_right_holds_until_its_acl_goes_and_from_when_it_comes() -> None:
    kept = Kept()
    for _ in range(2):
        assert not kept.authorizer.allows(ALICE, READ, TOPIC, "orders")
        assert not kept.authorizer.allows_any(ALICE, READ, TOPIC)
        kept.add(acl())
        assert kept.authorizer.allows(ALICE, READ, TOPIC, "orders")
        assert kept.authorizer.allows_any(ALICE, READ, TOPIC)
        kept.remove(acl())


@pytest.mark.limit("broker.controller.image.MOST_ACL_CHANGES")
def test_more_changes_than_are_held_come_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.controller.image.MOST_ACL_CHANGES", 2)
    kept = Kept().add(acl(name="gone"))
    kept.remove(acl(name="gone"))
    kept.add(*(acl(name=f"t{number}") for number in range(5)))
    assert [kept.authorizer.allows(ALICE, READ, TOPIC, each) for each in ("t0", "t4", "gone")] == [
        True,
        True,
        False,
    ]


@pytest.mark.limit("broker.security.standard_authorizer.MOST_REMEMBERED")
@pytest.mark.limit("broker.security.standard_authorizer.LONGEST_REMEMBERED")
def test_remembered_decisions_are_bounded_in_number_and_in_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standard_authorizer, "MOST_REMEMBERED", 3)
    kept = Kept().add(acl(name="*"))
    for number in range(10):
        assert kept.authorizer.allows(ALICE, READ, TOPIC, f"t{number}")
        assert len(kept.authorizer._allowed) <= 3
    kept.authorizer._allowed.clear()
    assert kept.authorizer.allows(ALICE, READ, TOPIC, "x" * 30_000)
    assert not kept.authorizer._allowed


# --- the log of decisions -----------------------------------------------------------------------------------


def _logged(caplog: pytest.LogCaptureFixture, level: int, go: Callable[[], object]) -> list[str]:
    caplog.clear()
    with caplog.at_level(level, "kafka.authorizer.logger"):
        go()
    return caplog.messages


def test_denials_are_logged_with_the_rule_and_allowed_requests_at_debug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    authorizer = Kept().add(acl(permission=DENY), acl(name="mine")).authorizer
    [line] = _logged(caplog, logging.INFO, lambda: authorizer.allows(ALICE, READ, TOPIC, "orders"))
    assert line == (
        "Principal = User:alice is Denied operation = READ from host = 127.0.0.1 on resource = Topic:LITERAL:orders "
        "for request = Metadata with resourceRefCount = 1 based on rule MatchingAcl(acl=StandardAcl["
        "resourceType=TOPIC, resourceName=orders, patternType=LITERAL, principal=User:alice, host=*, "
        "operation=READ, permissionType=DENY])"
    )
    for _ in range(2):  # the second time the decision is remembered
        may = lambda: authorizer.allows(ALICE, READ, TOPIC, "mine")  # noqa: E731
        assert _logged(caplog, logging.INFO, may) == []
        [line] = _logged(caplog, logging.DEBUG, may)
        assert " is Allowed operation = READ " in line


def test_a_mere_look_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    authorizer = Kept().authorizer
    look = lambda: authorizer.allows(ALICE, READ, TOPIC, "orders", log_denied=False)  # noqa: E731
    assert _logged(caplog, logging.DEBUG, look) == []


# --- hosts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("10.0.0.0/8", ["10.0.0.0", "10.255.255.255", "10.1.2.3"], ["11.0.0.0", "::1", "nonsense", ""]),
        ("10.1.2.3/8", ["10.200.0.1"], ["9.255.255.255"]),
        ("10.0.0.0/08", ["10.1.1.1"], ["11.1.1.1"]),
        ("0.0.0.0/0", ["1.2.3.4"], ["fe80::1"]),
        ("fe80::1%eth0/64", ["fe80::2", "fe80:0:0:0:0:0:0:9"], ["fe81::1"]),
        ("::/0", ["::1", "fe80::1"], ["1.2.3.4"]),
    ],
)
def test_a_range_has_its_first_and_its_last_address_and_none_of_the_other_kind(
    pattern: str, inside: list[str], outside: list[str]
) -> None:
    assert [is_in_range(host, pattern) for host in inside] == [True] * len(inside)
    assert [is_in_range(host, pattern) for host in outside] == [False] * len(outside)


@pytest.mark.parametrize(
    "pattern",
    [
        *("10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "/8", "10.0.0/8", "10.0.0.0/8 ", "10.0.0.0/8/8"),
        *("host.example/8", "10.0.0.0/+8", "256.0.0.0/8", "::1/129", "::ffff:10.0.0.0/104", ":::/1"),
    ],
)
def test_an_invalid_range_is_refused_and_matches_no_host(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        host_range(pattern)
    assert not is_in_range("10.0.0.1", pattern)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("10.0.0/8", "Could not parse [10.0.0/8]"),
        ("10.0.0.0/33", "Value [33] not in range [0,32]"),
        ("10.300.400.0/33", "Value [300] not in range [0,255]"),
        ("::1/129", "Could not parse [::1/129] - prefix length must be between 0 and 128"),
        ("::1/-1", "Could not parse [::1/-1] - prefix length must be between 0 and 128"),
        ("::g/129", "Could not parse [::g/129] - prefix length must be between 0 and 128"),
        ("::/2147483648", "Could not parse [::/2147483648] - invalid prefix length"),
        ("::1/64/3", "Could not parse [::1/64/3] - invalid prefix length"),
        ("::1/", "Could not parse [::1/] - invalid prefix length"),
        ("1::2::3/64", "Could not parse [1::2::3]"),
        ("::1%/64", "Could not parse [::1%]"),
        ("[::1/64", "Could not parse [[::1]"),
        ("::ffff:10.0.0.0/104", "Could not parse [::ffff:10.0.0.0] - not an IPv6 address"),
    ],
)
def test_a_mistake_in_a_range_is_reported_in_kafkas_words(pattern: str, said: str) -> None:
    """The texts come from a trial with Kafka 4.4.0."""
    with pytest.raises(ValueError, match="^" + re.escape(said) + "$"):
        host_range(pattern)


def test_javas_numbers_are_prefix_lengths() -> None:
    assert {host_range(f"::1/{length}").prefixlen for length in ("64", "+64", "064")} == {64}
    assert host_range("[fe80::1%1]/64") == host_range("fe80::1/64")


@pytest.mark.parametrize(
    ("host", "java"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8::ff00:42:8329", "2001:db8:0:0:0:ff00:42:8329"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
    ],
)
def test_an_address_is_compared_as_java_writes_it(host: str, java: str) -> None:
    assert java_host_address(host) == java


# --- who decides at a node ----------------------------------------------------------------------------------


def test_a_listener_that_is_closed_to_brokers_is_so_before_any_acl_is_looked_at() -> None:
    authorizer = authorizer_of((["User:alice"], False), {"CLIENTS"})
    at_clients = ALICE._replace(listener_name="CLIENTS")
    assert not authorizer.allows(at_clients, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")
    assert authorizer.allows(ALICE, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")
    assert authorizer.allows(at_clients, READ, TOPIC, "orders")
    assert not authorizer.allows(
        at_clients._replace(principal=Principal("User", "bob")), READ, TOPIC, "orders"
    )


def test_no_changes_are_held_if_everybody_may_do_everything() -> None:
    records = KeptRecords()
    everybody: Iterable[Authorizer] = (AllowEverything(), authorizer_of(None, {"CLIENTS"}))
    for authorizer in everybody:
        at_once(authorizer.follow(records))
        records.apply(AccessControlEntryRecord(id=bytes(16), resource_name="a", principal="User:a", host="*"))
        at_once(authorizer.follow(records))
        assert records.take_acl_changes() == []

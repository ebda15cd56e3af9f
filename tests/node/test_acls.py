"""ACLs are created, found and removed by requests as in Kafka. They are in force at once, and after a restart."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.controller import controller
from broker.controller.acls import Acl, PatternType, Permission
from broker.handlers import create_acls, delete_acls, describe_acls
from broker.network.answers import CloseConnectionError
from broker.security.authorizer import READ, TOPIC, Principal
from broker.server import Server
from protocol.errors import Error
from protocol.messages.security import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from tests.support.acls import ALICE, DENY, PREFIXED, acl
from tests.support.whole_server import crash, handled, started

SETTINGS = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:admin; User:root",
)
ANY = 1


def context(name: str = "admin") -> Any:
    return SimpleNamespace(
        api_version=3,
        api_key=30,
        client_id="c",
        principal=Principal("User", name),
        peer_host="127.0.0.1",
        listener_name="PLAINTEXT",
    )


def creation(wanted: Acl) -> AclCreation:
    return AclCreation(
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
        resource_pattern_type=wanted.pattern_type,
        principal=wanted.principal,
        host=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission_type,
    )


def create(node: Server, *wanted: Acl, by: str = "admin") -> list[tuple[int, str | None]]:
    request = CreateAclsRequest(creations=[creation(each) for each in wanted])
    return [
        (each.error_code, each.error_message)
        for each in handled(node, create_acls, context(by), request).results
    ]


def delete(node: Server, *filters: DeleteAclsFilter, by: str = "admin") -> list[tuple[int, set[Acl]]]:
    answer = handled(node, delete_acls, context(by), DeleteAclsRequest(filters=[*filters]))
    return [
        (
            each.error_code,
            {
                Acl(
                    found.resource_type,
                    found.resource_name,
                    found.pattern_type,
                    found.principal,
                    found.host,
                    found.operation,
                    found.permission_type,
                )
                for found in each.matching_acls
            },
        )
        for each in answer.filter_results
    ]


def asked(**fields: Any) -> dict[str, Any]:
    every: dict[str, Any] = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    return {**every, **fields}


def found(node: Server, **fields: Any) -> set[Acl]:
    answer = handled(node, describe_acls, context(), DescribeAclsRequest(**asked(**fields)))
    assert answer.error_code == Error.NONE
    return {
        Acl(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for resource in answer.resources
        for each in resource.acls
    }


MINE, PREFIX = acl(name="orders"), acl(name="ord", pattern=PREFIXED, permission=DENY)
EVERYONES = acl(name="*", who="User:*", host="10.0.0.0/8")


@pytest.fixture
async def node(tmp_path: Path) -> Server:
    return await started(tmp_path, *SETTINGS)


async def test_an_acl_is_in_force_once_it_is_answered_until_it_is_deleted(node: Server) -> None:
    assert not node.authorizer.allows(ALICE, READ, TOPIC, "orders")
    assert create(node, MINE) == [(0, "")]
    assert node.authorizer.allows(ALICE, READ, TOPIC, "orders")
    assert create(node, PREFIX) == [(0, "")]
    assert not node.authorizer.allows(ALICE, READ, TOPIC, "orders")
    assert delete(node, DeleteAclsFilter(**asked(permission_type=int(Permission.DENY)))) == [(0, {PREFIX})]
    assert node.authorizer.allows(ALICE, READ, TOPIC, "orders")


async def test_acls_survive_a_restart_and_a_crash(tmp_path: Path) -> None:
    node = await started(tmp_path, *SETTINGS)
    create(node, MINE, PREFIX, EVERYONES)
    await node.stop()
    node = await started(tmp_path, *SETTINGS)
    assert found(node) == {MINE, PREFIX, EVERYONES}
    delete(node, DeleteAclsFilter(**asked(permission_type=int(Permission.DENY))))
    crash(node)
    node = await started(tmp_path, *SETTINGS)
    assert found(node) == {MINE, EVERYONES}
    assert node.authorizer.allows(ALICE, READ, TOPIC, "orders")


async def test_a_rule_that_exists_or_comes_twice_is_written_once(node: Server) -> None:
    assert create(node, MINE, MINE) == [(0, ""), (0, "")]
    end = node.metadata.log.log_end_offset
    assert create(node, MINE) == [(0, "")]
    assert node.metadata.log.log_end_offset == end
    assert [*node.metadata.image.kept.acls] == [MINE]


@pytest.mark.parametrize(
    ("fields", "meant"),
    [
        ({}, {MINE, PREFIX, EVERYONES}),
        ({"resource_name_filter": "orders"}, {MINE}),
        ({"resource_name_filter": "orders", "pattern_type_filter": 2}, {MINE, PREFIX, EVERYONES}),
        ({"resource_name_filter": "other", "pattern_type_filter": 2}, {EVERYONES}),
        ({"resource_name_filter": "ord", "pattern_type_filter": 3}, set()),
        ({"resource_name_filter": "ord", "pattern_type_filter": 4}, {PREFIX}),
        ({"principal_filter": "User:alice"}, {MINE, PREFIX}),
        ({"host_filter": "10.0.0.0/8"}, {EVERYONES}),
        ({"host_filter": "10.1.2.3"}, set()),
        ({"permission_type": 2}, {PREFIX}),
        ({"operation": 4}, set()),
        ({"resource_type_filter": 3}, set()),
        ({"resource_type_filter": 99}, set()),
    ],
)
async def test_a_filter_finds_the_matching_rules(
    node: Server, fields: dict[str, Any], meant: set[Acl]
) -> None:
    create(node, MINE, PREFIX, EVERYONES)
    assert found(node, **fields) == meant


@pytest.mark.parametrize(
    ("wanted", "error", "message"),
    [
        (acl(of=4, name="other"), 42, "The only valid name for the CLUSTER resource is kafka-cluster"),  # type: ignore[arg-type]
        (acl(name=""), 42, "Invalid empty resource name"),
        (acl(of=1), 42, "Invalid resourceType ANY"),  # type: ignore[arg-type]
        (acl(of=77), 42, "Invalid resourceType UNKNOWN"),  # type: ignore[arg-type]
        (acl(pattern=PatternType.MATCH), 42, "Invalid patternType MATCH"),
        (acl(pattern=1), 42, "Invalid patternType ANY"),  # type: ignore[arg-type]
        (acl(1), 42, "Invalid operation ANY"),
        (acl(99), 42, "Invalid operation UNKNOWN"),
        (acl(permission=1), 42, "Invalid permissionType ANY"),  # type: ignore[arg-type]
        (
            acl(who="alice"),
            42,
            "Could not parse principal from `alice` (no colon is present separating the principal type from the "
            "principal name)",
        ),
        (acl(host=""), 42, "Host pattern cannot be null or empty"),
        (acl(host="10.0.0.0/33"), 42, "Invalid CIDR notation '10.0.0.0/33': "),
    ],
)
async def test_a_nonsense_rule_is_refused_and_the_others_are_made(
    node: Server, wanted: Acl, error: int, message: str
) -> None:
    [good, (code, told)] = create(node, MINE, wanted)
    assert (good, code) == ((0, ""), error)
    assert told is not None
    assert told.startswith(message) if message.endswith(": ") else told == message
    assert found(node) == {MINE}


async def test_ranges_of_hosts_need_the_level_of_kafka_4_4(tmp_path: Path) -> None:
    node = await started(tmp_path, *SETTINGS)
    node.metadata.image.features["metadata.version"] = 31
    assert create(node, acl(host="10.0.0.0/99")) == [
        (35, "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher.")
    ]


async def test_a_user_who_may_not_alter_the_cluster_changes_nothing(node: Server) -> None:
    assert create(node, MINE, by="alice") == [(31, "The request needs ALTER permission.")]
    create(node, MINE)
    [(error, gone)] = delete(node, DeleteAclsFilter(**asked()), by="alice")
    assert (error, gone) == (31, set())
    assert found(node) == {MINE}
    answer = handled(node, describe_acls, context("alice"), DescribeAclsRequest(**asked()))
    assert (answer.error_code, answer.resources) == (31, [])


async def test_each_filter_is_answered_with_its_matches_and_an_unknown_one_as_unknown(node: Server) -> None:
    create(node, MINE, PREFIX)
    every, unknown = DeleteAclsFilter(**asked()), DeleteAclsFilter(**asked(operation=99))
    mine = DeleteAclsFilter(**asked(resource_name_filter="orders"))
    assert delete(node, every, unknown, mine) == [(0, {MINE, PREFIX}), (42, set()), (0, {MINE})]
    assert found(node) == set()


@pytest.mark.parametrize(
    ("handler", "request_"),
    [
        (create_acls, CreateAclsRequest(creations=[AclCreation(resource_type=2, operation=3)])),
        (delete_acls, DeleteAclsRequest(filters=[DeleteAclsFilter(**asked(operation=0))])),
        (describe_acls, DescribeAclsRequest(**asked(pattern_type_filter=0))),
    ],
)
async def test_at_the_code_for_unknown_the_connection_closes(
    node: Server, handler: Any, request_: Any
) -> None:
    with pytest.raises(CloseConnectionError, match="with the code UNKNOWN"):
        handled(node, handler, context(), request_)


async def test_a_request_with_too_many_changes_makes_none(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(node, *(acl(name=f"t{number}") for number in range(4)))
    for module in ("broker.controller.controller", "broker.controller.acl_decisions"):
        monkeypatch.setattr(f"{module}.MAX_RECORDS_PER_REQUEST", 3)
    assert controller.MAX_RECORDS_PER_REQUEST == 3
    too_many = [acl(name=f"u{number}") for number in range(4)]
    message = "Unable to perform excessively large batch operation."
    assert create(node, *too_many) == [(Error.POLICY_VIOLATION, message)] * 4
    assert delete(node, DeleteAclsFilter(**asked())) == [(Error.INVALID_REQUEST, set())]
    assert len(found(node)) == 4

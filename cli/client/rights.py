"""Users and their rights, as a cluster reports them to those who may ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from cli.client.answers import check
from cli.client.cluster import KafkaCluster
from protocol.errors import Error
from protocol.messages.security import (
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

ANY: Final = 1
RESOURCES: Final = {
    2: "topic",
    3: "group",
    4: "cluster",
    5: "transactional id",
    6: "delegation token",
    7: "user",
}
PATTERNS: Final = {3: "literal", 4: "prefixed"}
OPERATIONS: Final = {
    2: "all",
    3: "read",
    4: "write",
    5: "create",
    6: "delete",
    7: "alter",
    8: "describe",
    9: "cluster action",
    10: "describe configs",
    11: "alter configs",
    12: "idempotent write",
    13: "create tokens",
    14: "describe tokens",
    15: "two phase commit",
}
PERMISSIONS: Final = {2: "deny", 3: "allow"}
MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


@dataclass(frozen=True)
class Acl:
    """An ACL in words, with numbers for codes that are newer than this client."""

    resource: str
    name: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str


class _OnWhat(Protocol):
    resource_type: int
    resource_name: str
    pattern_type: int


class _WhoMay(Protocol):
    principal: str
    host: str
    operation: int
    permission_type: int


def acl_of(on: _OnWhat, entry: _WhoMay) -> Acl:
    """Return the ACL of a message, or of a record of the metadata log, in words."""
    return Acl(
        RESOURCES.get(on.resource_type, str(on.resource_type)),
        on.resource_name,
        PATTERNS.get(on.pattern_type, str(on.pattern_type)),
        entry.principal,
        entry.host,
        OPERATIONS.get(entry.operation, str(entry.operation)),
        PERMISSIONS.get(entry.permission_type, str(entry.permission_type)),
    )


def acls_of(cluster: KafkaCluster) -> list[Acl] | None:
    """Return all ACLs, or None if the cluster has no authorizer. Raises CommandError."""
    request = DescribeAclsRequest(
        resource_type_filter=ANY, pattern_type_filter=ANY, operation=ANY, permission_type=ANY
    )
    answer = cluster.ask(request, DescribeAclsResponse)
    if answer.error_code == Error.SECURITY_DISABLED:
        return None
    check(answer.error_code, answer.error_message, "the ACLs")
    return sorted(
        (acl_of(resource, each) for resource in answer.resources for each in resource.acls),
        key=lambda acl: (acl.resource, acl.name, acl.principal, acl.operation),
    )


def users_of(cluster: KafkaCluster) -> dict[str, list[str]]:
    """Return the users with SCRAM credentials, and their mechanisms. Raises CommandError."""
    answer = cluster.ask(
        DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsResponse
    )
    check(answer.error_code, answer.error_message, "the users")
    return {
        each.user: [
            f"{MECHANISMS.get(info.mechanism, info.mechanism)}, {info.iterations} iterations"
            for info in each.credential_infos
        ]
        for each in answer.results
    }

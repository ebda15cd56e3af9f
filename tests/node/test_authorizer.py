"""Principals, operations and resources in Kafka's codes, and what holds if no authorizer is configured."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import cast

import pytest

from broker.handlers import create_acls, delete_acls, describe_acls
from broker.network.connection import Connection
from broker.network.context import RequestContext
from broker.security.authorizer import (
    ANONYMOUS,
    CLUSTER_NAME,
    AllowEverything,
    Authorizer,
    Operation,
    ResourceType,
    authorized_operations,
)
from broker.server import Server
from protocol.errors import Error
from protocol.messages.security import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from protocol.wire.schema import Message
from tests.node.test_connection import Client
from tests.support.denying import Asked, DenyingAuthorizer
from tests.support.whole_server import handled


def context() -> RequestContext:
    return RequestContext(cast(Connection, None), 3, 12, 1, "client")


async def test_a_request_over_a_plain_connection_is_anonymous() -> None:
    client = Client().connect()
    request = RequestContext(client.connection, 3, 12, 1, "client")
    assert request.principal == ANONYMOUS
    assert str(request.principal) == "User:ANONYMOUS"
    assert (request.peer_host, request.listener_name) == ("127.0.0.1", "PLAINTEXT")


def test_without_an_authorizer_everything_that_a_resource_knows_is_allowed() -> None:
    allowed: Authorizer = AllowEverything()
    assert allowed.allows_any(context(), Operation.WRITE, ResourceType.TOPIC)
    bits = {each: authorized_operations(allowed, context(), each, "name") for each in ResourceType}
    assert bits[ResourceType.TOPIC] == 0b1101_1111_1000
    assert bits[ResourceType.GROUP] == 0b1101_0100_1000
    assert bits[ResourceType.CLUSTER] == 0b1_1111_1010_0000
    assert bits[ResourceType.TRANSACTIONAL_ID] == 1 << 8 | 1 << 4 | 1 << 15
    assert bits[ResourceType.DELEGATION_TOKEN] == 1 << 8
    assert bits[ResourceType.USER] == 1 << 13 | 1 << 14


def test_a_denied_operation_has_no_bit() -> None:
    authorizer = DenyingAuthorizer().deny(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    bits = authorized_operations(authorizer, context(), ResourceType.CLUSTER, CLUSTER_NAME)
    assert bits == 0b1_1111_0010_0000
    assert Asked(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME) in authorizer.asked


@pytest.mark.parametrize(
    ("handler", "asked", "text"),
    [
        (
            describe_acls,
            DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1),
            "No Authorizer is configured on the broker",
        ),
        (
            create_acls,
            CreateAclsRequest(creations=[AclCreation(resource_type=2, operation=3, permission_type=3)]),
            "No Authorizer is configured.",
        ),
        (
            delete_acls,
            DeleteAclsRequest(
                filters=[DeleteAclsFilter(resource_type_filter=1, operation=1, permission_type=1)]
            ),
            "No Authorizer is configured.",
        ),
    ],
)
async def test_without_an_authorizer_each_request_for_acls_has_kafkas_text(
    node: Server, handler: ModuleType, asked: Message, text: str
) -> None:
    context = SimpleNamespace(api_version=1, client_id="c", principal=ANONYMOUS, peer_host="127.0.0.1")
    answer = handled(node, handler, context, asked)
    [result] = getattr(answer, "results", None) or getattr(answer, "filter_results", None) or [answer]
    assert (Error(result.error_code), result.error_message) == (Error.SECURITY_DISABLED, text)

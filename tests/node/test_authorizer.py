"""Principals, operations and resources in Kafka's codes, and what stands where no authorizer is configured."""

from __future__ import annotations

from typing import cast

from broker.network.connection import Connection
from broker.network.context import RequestContext
from broker.security.authorized_operations import authorized_operations
from broker.security.authorizer import CLUSTER_NAME, AllowEverything, Authorizer, Operation, ResourceType
from broker.security.principal import ANONYMOUS
from tests.node.test_connection import Client
from tests.support.denying import Asked, DenyingAuthorizer


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


def test_what_is_denied_has_no_bit() -> None:
    authorizer = DenyingAuthorizer().deny(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    bits = authorized_operations(authorizer, context(), ResourceType.CLUSTER, CLUSTER_NAME)
    assert bits == 0b1_1111_0010_0000
    assert Asked(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME) in authorizer.asked

"""Who may do what: the one question that handlers ask before they do anything.

Operations, resources and their codes are Kafka's (`AclOperation`, `ResourceType`); which handler asks for which of
them, and in which order, stands in `KafkaApis` and `ControllerApis`.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from protocol.errors import Error

if TYPE_CHECKING:
    from broker.security.principal import Principal

CLUSTER_NAME = "kafka-cluster"  # the name of the one resource of the type CLUSTER

_WRITE_TXN_MARKERS = 27

# Kafka's texts: of who reads ACLs, and of who would change them
NO_AUTHORIZER = "No Authorizer is configured on the broker"
NO_AUTHORIZER_FOR_CHANGES = "No Authorizer is configured."

AUTHORIZATION_FAILED = {
    Error.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    Error.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    Error.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}
"""What Kafka says to a refusal, where it gives no other reason."""


class Operation(IntEnum):
    """What is done (Kafka: `AclOperation`, without the codes that only filters of ACLs know)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """What it is done to (Kafka: `ResourceType`, without the codes that only filters of ACLs know)."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


(
    READ,
    WRITE,
    CREATE,
    DELETE,
    ALTER,
    DESCRIBE,
    CLUSTER_ACTION,
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
    IDEMPOTENT_WRITE,
    CREATE_TOKENS,
    DESCRIBE_TOKENS,
    TWO_PHASE_COMMIT,
) = Operation
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = ResourceType
# By themselves for those who ask with each record or heartbeat: to Python 3.11 `Operation.READ` is a call.


class AuthorizableRequest(Protocol):
    """What an authorizer sees of a request (Kafka: `AuthorizableRequestContext`)."""

    @property
    def principal(self) -> Principal: ...

    @property
    def peer_host(self) -> str:
        """The address that the request came from."""
        ...

    @property
    def listener_name(self) -> str: ...

    @property
    def api_key(self) -> int:
        """Of what is asked (Kafka: `requestType`)."""
        ...


class Authorizer(Protocol):
    """Kafka's `Authorizer`, as far as handlers ask it."""

    def allows(
        self, context: AuthorizableRequest, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether the sender of the request may do that to the resource of that name."""
        ...

    def allows_any(
        self, context: AuthorizableRequest, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether the sender may do it to some resource of the type, whatever its name (`authorizeByResourceType`)."""
        ...


class AllowEverything:
    """What stands where no authorizer is configured."""

    __slots__ = ()

    def allows(
        self, context: AuthorizableRequest, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        return True

    def allows_any(
        self, context: AuthorizableRequest, operation: Operation, resource_type: ResourceType
    ) -> bool:
        return True


class ClosedListeners:
    """Some listeners refuse what brokers ask of each other: what takes CLUSTER_ACTION, and markers, which in Kafka may
    also be written by who may ALTER the cluster, to end a transaction that hangs. All else is allowed."""

    __slots__ = ("_closed",)

    def __init__(self, closed: Collection[str]) -> None:
        self._closed = closed

    def allows(
        self, context: AuthorizableRequest, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        return self.allows_any(context, operation, resource_type)

    def allows_any(
        self, context: AuthorizableRequest, operation: Operation, resource_type: ResourceType
    ) -> bool:
        if context.listener_name not in self._closed:
            return True
        return operation != CLUSTER_ACTION and context.api_key != _WRITE_TXN_MARKERS


def authorizer_of(closed_to_brokers: Collection[str]) -> Authorizer:
    """Who decides at a broker with these listeners closed to others."""
    return ClosedListeners(closed_to_brokers) if closed_to_brokers else AllowEverything()

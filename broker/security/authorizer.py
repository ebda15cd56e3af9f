"""Who sends requests (`Principal`), and what they may do: the question that handlers ask before they do
anything.

Operations, resources and their codes are Kafka's (`AclOperation`, `ResourceType`). `KafkaApis` and
`ControllerApis` say which handler asks for which of them, and in which order.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from broker.controller.image import GROUP_RESOURCE, TOPIC_RESOURCE
from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from broker.controller.image import KeptRecords

USER_TYPE = "User"


class Principal(NamedTuple):
    """Who a client is. The type is `User`, unless authentication makes up another one."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @property
    def token_authenticated(self) -> bool:
        """True if it has signed in with a delegation token. It is the same principal nevertheless."""
        return False


class TokenPrincipal(Principal):
    """The owner of a delegation token, signed in with that token."""

    __slots__ = ()

    @property
    def token_authenticated(self) -> bool:
        return True


ANONYMOUS = Principal(USER_TYPE, "ANONYMOUS")  # of a connection without authentication


# --- The authorizer -----------------------------------------------------------------------------------------

CLUSTER_NAME = "kafka-cluster"  # the name of the only resource of the type CLUSTER

# Kafka's texts, for those who read ACLs and those who change them
NO_AUTHORIZER = "No Authorizer is configured on the broker"
NO_AUTHORIZER_FOR_CHANGES = "No Authorizer is configured."

AUTHORIZATION_FAILED = {
    Error.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    Error.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    Error.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}
"""Kafka's text for a refusal without another reason."""


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
# Plain names, for code that runs with each record or heartbeat: in Python 3.11, `Operation.READ` is a call.


class AuthorizableRequest(Protocol):
    """The parts of a request that an authorizer sees (Kafka: `AuthorizableRequestContext`)."""

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
        """The API of the request (Kafka: `requestType`)."""
        ...


class Authorizer(Protocol):
    """The parts of Kafka's `Authorizer` that handlers use."""

    @property
    def allows_everything(self) -> bool:
        """True if nobody needs to ask. Then produce and fetch don't."""
        ...

    def allows(
        self,
        context: AuthorizableRequest,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        log_allowed: bool = True,
        log_denied: bool = True,
    ) -> bool:
        """Return True if the sender of the request may do that to the named resource.

        The decision is logged, except where Kafka doesn't log it: for questions that only find out what a
        client may see.
        """
        ...

    def allows_any(
        self, context: AuthorizableRequest, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Return True if the sender may do it to some resource of the type, whatever its name
        (`authorizeByResourceType`)."""
        ...

    async def follow(self, kept: KeptRecords) -> None:
        """Follow the ACLs in the metadata, which may have changed."""
        ...


class AllowEverything:
    """Used if no authorizer is configured."""

    __slots__ = ()

    allows_everything = True

    def allows(
        self,
        context: AuthorizableRequest,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        log_allowed: bool = True,
        log_denied: bool = True,
    ) -> bool:
        """Allow everything, and log nothing."""
        return True

    def allows_any(
        self, context: AuthorizableRequest, operation: Operation, resource_type: ResourceType
    ) -> bool:
        return True

    async def follow(self, kept: KeptRecords) -> None:
        kept.take_acl_changes()


# --- The errors for those who may not do what they ask for (Kafka: `Errors`, with its messages) -------------

_ERRORS = {
    ResourceType.TOPIC: Error.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: Error.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: Error.CLUSTER_AUTHORIZATION_FAILED,
}


def denied(resource_type: ResourceType) -> KafkaError:
    """Return the error for a resource of the type."""
    error = _ERRORS[resource_type]
    return KafkaError(error, AUTHORIZATION_FAILED[error])


def allows_on_cluster(
    authorizer: Authorizer, context: AuthorizableRequest, operation: Operation, *, log_denied: bool = True
) -> bool:
    """Return True if the sender may do that to the cluster (Kafka: `AuthHelper.authorize` for the
    cluster)."""
    return authorizer.allows(context, operation, ResourceType.CLUSTER, CLUSTER_NAME, log_denied=log_denied)


def cluster_refusal(
    authorizer: Authorizer, context: AuthorizableRequest, operation: Operation
) -> KafkaError | None:
    """Return the error if the sender may not do that to the cluster, otherwise None.

    This is for requests that Kafka refuses as a whole through `AuthHelper.authorizeClusterOperation`. Its
    message names the operation, after a dump of its request object. The others have the message of `denied`.
    """
    if allows_on_cluster(authorizer, context, operation):
        return None
    return KafkaError(Error.CLUSTER_AUTHORIZATION_FAILED, f"The request needs {operation.name} permission.")


# --- Everything that a client may do with a resource, as the bit field for clients (Kafka: `AuthHelper`) ----

# Kafka: `AclEntry.supportedOperations`
SUPPORTED_OPERATIONS: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
        Operation.ALTER,
        Operation.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}


def authorized_operations(
    authorizer: Authorizer, context: AuthorizableRequest, resource_type: ResourceType, name: str
) -> int:
    """Return the bit field. Bit n stands for the operation with code n."""
    return sum(
        1 << operation
        for operation in SUPPORTED_OPERATIONS[resource_type]
        if authorizer.allows(context, operation, resource_type, name, log_allowed=False, log_denied=False)
    )


# --- Rights to see and alter settings -----------------------------------------------------------------------
# For brokers, their loggers and subscriptions, the right is on the cluster. For topics and groups, it is on
# each of them (Kafka: `ControllerApis.authorizeAlterResource`, `ConfigHelper`).

_RESOURCE_TYPES = {TOPIC_RESOURCE: ResourceType.TOPIC, GROUP_RESOURCE: ResourceType.GROUP}


class ConfigRights:
    """The sender's rights to settings. `operation` is DESCRIBE_CONFIGS or ALTER_CONFIGS."""

    __slots__ = ("_authorizer", "_context", "_operation")

    def __init__(self, authorizer: Authorizer, context: AuthorizableRequest, operation: Operation) -> None:
        self._authorizer = authorizer
        self._context = context
        self._operation = operation

    def refusal(self, config_resource_type: int, name: str) -> KafkaError | None:
        """Return the error if that isn't allowed, otherwise None."""
        resource_type = _RESOURCE_TYPES.get(config_resource_type, ResourceType.CLUSTER)
        if resource_type is ResourceType.CLUSTER:
            name = CLUSTER_NAME
        if self._authorizer.allows(self._context, self._operation, resource_type, name):
            return None
        return denied(resource_type)

    def require(self, config_resource_type: int, name: str) -> None:
        """Raise the error of `refusal`, if there is one, without its text (Kafka:
        `ApiError.fromThrowable`)."""
        refusal = self.refusal(config_resource_type, name)
        if refusal is not None:
            raise KafkaError(refusal.error)

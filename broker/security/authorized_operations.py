"""All that a client may do with a resource, as the bit field that a client can ask for (Kafka: `AuthHelper`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from broker.security.authorizer import AuthorizableRequest, Authorizer

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
    """Bit n stands for the operation of code n."""
    return sum(
        1 << operation
        for operation in SUPPORTED_OPERATIONS[resource_type]
        if authorizer.allows(context, operation, resource_type, name)
    )

"""What those are told who may not do what they ask for (Kafka: `Errors`, with its messages)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.authorizer import AUTHORIZATION_FAILED, CLUSTER_NAME, Operation, ResourceType
from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from broker.security.authorizer import AuthorizableRequest, Authorizer

_ERRORS = {
    ResourceType.TOPIC: Error.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: Error.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: Error.CLUSTER_AUTHORIZATION_FAILED,
}


def denied(resource_type: ResourceType) -> KafkaError:
    """The error for a resource of the type."""
    error = _ERRORS[resource_type]
    return KafkaError(error, AUTHORIZATION_FAILED[error])


def allows_on_cluster(authorizer: Authorizer, context: AuthorizableRequest, operation: Operation) -> bool:
    """Whether the sender of the request may do that to the cluster (Kafka: `authorizeClusterOperation`)."""
    return authorizer.allows(context, operation, ResourceType.CLUSTER, CLUSTER_NAME)

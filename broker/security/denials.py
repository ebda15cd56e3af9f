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
    """Whether the sender of the request may do that to the cluster (Kafka: `AuthHelper.authorize` of the cluster)."""
    return authorizer.allows(context, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def cluster_refusal(
    authorizer: Authorizer, context: AuthorizableRequest, operation: Operation
) -> KafkaError | None:
    """What the sender is told where that isn't allowed on the cluster, None where it is.

    For requests that Kafka refuses as a whole by `AuthHelper.authorizeClusterOperation`, whose message names the
    operation, and dumps its own request object in front. Of the others the message is that of `denied`.
    """
    if allows_on_cluster(authorizer, context, operation):
        return None
    return KafkaError(Error.CLUSTER_AUTHORIZATION_FAILED, f"The request needs {operation.name} permission.")

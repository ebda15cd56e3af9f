"""Who may see and alter settings: of brokers, their loggers and subscriptions who may do so with the cluster, of topics
and groups who may with each (Kafka: `ControllerApis.authorizeAlterResource`, `ConfigHelper`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.image import GROUP_RESOURCE, TOPIC_RESOURCE
from broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from broker.security.denials import denied

if TYPE_CHECKING:
    from broker.security.authorizer import AuthorizableRequest, Authorizer
    from protocol.errors import KafkaError

_RESOURCE_TYPES = {TOPIC_RESOURCE: ResourceType.TOPIC, GROUP_RESOURCE: ResourceType.GROUP}


class ConfigRights:
    """What the sender of a request may do with settings; `operation` is DESCRIBE_CONFIGS or ALTER_CONFIGS."""

    __slots__ = ("_authorizer", "_context", "_operation")

    def __init__(self, authorizer: Authorizer, context: AuthorizableRequest, operation: Operation) -> None:
        self._authorizer = authorizer
        self._context = context
        self._operation = operation

    def refusal(self, config_resource_type: int, name: str) -> KafkaError | None:
        """What the sender is told where that isn't allowed, None where it is."""
        resource_type = _RESOURCE_TYPES.get(config_resource_type, ResourceType.CLUSTER)
        if resource_type is ResourceType.CLUSTER:
            name = CLUSTER_NAME
        if self._authorizer.allows(self._context, self._operation, resource_type, name):
            return None
        return denied(resource_type)

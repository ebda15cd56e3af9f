"""FindCoordinator (10), versions 0 to 6.

v1: key types; v3: flexible; v4: several keys at once; v6: share groups (KIP-932).

A conscious difference: if the internal topic doesn't exist yet, Kafka starts to create it, answers
COORDINATOR_NOT_AVAILABLE and lets the client ask again. barnabas creates it before the answer, and requests to a
coordinator wait until it is loaded (`broker.early_requests`). So the first group and the first transaction of a fresh
broker are as fast as any later ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.controller.image import alive_node
from broker.coordination.groups import OFFSETS_TOPIC
from broker.coordination.share_states import SHARE_STATE_TOPIC
from broker.coordination.transactions import TRANSACTION_TOPIC
from broker.security.authorizer import (
    AUTHORIZATION_FAILED,
    CLUSTER_ACTION,
    CLUSTER_NAME,
    DESCRIBE,
    ResourceType,
)
from coordinator.share.share_partition_key import SharePartitionKey
from protocol.errors import Error
from protocol.messages.metadata import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from broker.controller.metadata_log import MetadataLog
    from broker.coordination.groups import Groups
    from broker.coordination.share_states import ShareStates
    from broker.coordination.transactions import Transactions
    from broker.handlers.node_ports import BrokerPorts
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer

GROUP = 0
TRANSACTION = 1
SHARE = 2
SHARE_VERSION = 6
BATCH_VERSION = 4

_MESSAGES = AUTHORIZATION_FAILED | {
    Error.COORDINATOR_NOT_AVAILABLE: "The coordinator isn't there yet.",
    Error.INVALID_REQUEST: "There is no such type of coordinator, or no such key of it.",
}

# The resource type whose DESCRIBE right the client needs, and the error if it lacks it.
_PERMISSIONS = {
    GROUP: (ResourceType.GROUP, Error.GROUP_AUTHORIZATION_FAILED),
    TRANSACTION: (ResourceType.TRANSACTIONAL_ID, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}


class _Found(NamedTuple):
    """Where a coordinator is, or why there is none."""

    error: Error = Error.NONE
    node_id: int = -1
    host: str = ""
    port: int = -1


class _Coordinators(NamedTuple):
    """The parts of the node that know where coordinators are."""

    metadata: MetadataLog
    groups: Groups
    transactions: Transactions
    share_states: ShareStates
    missing: dict[str, None]
    """The internal topics that weren't found."""

    def find(self, key_type: int, key: str, listener_name: str) -> _Found:
        """Find the coordinator of a group, a transaction or a share partition."""
        name, coordinators = self._by_type(key_type)
        image = self.metadata.image
        topic = image.topics.get(name)
        if topic is None:
            self.missing[name] = None
            return _Found(Error.COORDINATOR_NOT_AVAILABLE)
        partition = topic.partitions.get(coordinators.partition_of(key))
        node = None if partition is None else alive_node(image, partition.leader, listener_name)
        if node is None:
            return _Found(Error.COORDINATOR_NOT_AVAILABLE)
        return _Found(Error.NONE, node.node_id, node.host, node.port)

    def _by_type(self, key_type: int) -> tuple[str, Groups | Transactions | ShareStates]:
        """The internal topic, and the coordinators that know which of its partitions a key is in."""
        if key_type == GROUP:
            return OFFSETS_TOPIC, self.groups
        if key_type == TRANSACTION:
            return TRANSACTION_TOPIC, self.transactions
        return SHARE_STATE_TOPIC, self.share_states


async def handle(
    node: BrokerPorts,
    context: RequestContext,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse:
    coordinators = _Coordinators(node.metadata, node.groups, node.transactions, node.share_states, {})
    answer = _answer(coordinators, node.authorizer, context, request)
    if coordinators.missing:
        # The internal topic exists as soon as its creation is committed, so the client needn't ask again.
        await node.topics.auto_create([*coordinators.missing])
        answer = _answer(coordinators, node.authorizer, context, request)
    return answer


def _answer(
    coordinators: _Coordinators,
    authorizer: Authorizer,
    context: RequestContext,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse:
    version, key_type = context.api_version, request.key_type
    if version >= BATCH_VERSION:
        if (
            key_type == SHARE
            and version >= SHARE_VERSION
            and request.coordinator_keys
            and not authorizer.allows(context, CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        ):
            return _all_refused(request, Error.CLUSTER_AUTHORIZATION_FAILED)  # as a whole, as in Kafka
        return FindCoordinatorResponse(
            coordinators=[
                _told(key_type, key, _find(coordinators, authorizer, context, key_type=key_type, key=key))
                for key in request.coordinator_keys
            ]
        )
    found = _find(coordinators, authorizer, context, key_type=key_type, key=request.key)
    return FindCoordinatorResponse(
        error_code=found.error,
        error_message=_MESSAGES.get(found.error, found.error.name) if version >= 1 else None,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _told(key_type: int, key: str, found: _Found) -> Coordinator:
    known_type = key_type in (GROUP, TRANSACTION, SHARE)
    return Coordinator(
        key=key,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
        error_code=found.error,
        error_message="" if known_type else _MESSAGES[found.error],
    )


def _all_refused(request: FindCoordinatorRequest, error: Error) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(
                key=key, node_id=-1, host="", port=-1, error_code=error, error_message=_MESSAGES[error]
            )
            for key in request.coordinator_keys
        ]
    )


def _find(
    coordinators: _Coordinators, authorizer: Authorizer, context: RequestContext, *, key_type: int, key: str
) -> _Found:
    if key_type == SHARE:
        if context.api_version < SHARE_VERSION:
            return _Found(Error.INVALID_REQUEST)
        try:
            share_partition = SharePartitionKey.from_text(key)
        except ValueError:
            return _Found(Error.INVALID_REQUEST)
        return coordinators.find(key_type, share_partition.text, context.listener_name)
    if key_type not in _PERMISSIONS:
        return _Found(Error.INVALID_REQUEST)
    resource_type, refusal = _PERMISSIONS[key_type]
    if not authorizer.allows(context, DESCRIBE, resource_type, key):
        return _Found(refusal)
    return coordinators.find(key_type, key, context.listener_name)

"""IncrementalAlterConfigs (44), versions 0 to 1 (KIP-339): set, delete, append and subtract single settings.

All or nothing for each resource; resources don't depend on each other. What is set takes effect before the answer.
The levels of loggers (KIP-412) are the process's and aren't stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from broker import logger_levels
from broker.config.alterations import Alteration, Operation, check_request
from broker.handlers.describe_configs import check_broker_name
from broker.metadata import config_decisions
from broker.metadata.config_decisions import BROKER_LOGGER_RESOURCE, RESOURCE_TYPES
from broker.metadata.image import BROKER_RESOURCE
from protocol.errors import Error, KafkaError
from protocol.messages.configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from protocol.schema import Message

if TYPE_CHECKING:
    from broker.context import RequestContext
    from broker.server import Server

R = TypeVar("R", AlterConfigsResource, IncrementalAlterConfigsResource)


def handle(
    server: Server, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    unheard_of = any(_has_unknown_operation(resource) for resource in request.resources)

    def decide(resource: IncrementalAlterConfigsResource) -> list[Message]:
        return _decide(server, resource, request.validate_only, unheard_of=unheard_of)

    return IncrementalAlterConfigsResponse(
        responses=alter(server, request.resources, decide, validate_only=request.validate_only)
    )


def alter(
    server: Server, resources: Sequence[R], decide: Callable[[R], list[Message]], *, validate_only: bool
) -> list[AlterConfigsResourceResponse]:
    """What this API and AlterConfigs have in common: each resource is decided for itself, by a `decide` that raises
    KafkaError; what was decided is written at once."""
    times_named = Counter((r.resource_type, r.resource_name) for r in resources)
    decided: list[Message] = []
    responses = []
    for resource in resources:
        key = (resource.resource_type, resource.resource_name)
        refusal: KafkaError | None = None
        try:
            if times_named[key] > 1:
                raise KafkaError(Error.INVALID_REQUEST, "Each resource must appear at most once.")
            decided += decide(resource)
        except KafkaError as error:
            refusal = error
        responses.append(_answer(*key, refusal))
    if decided and not validate_only:
        decided += config_decisions.cleared_elr(server.metadata.image, decided)
        failure = server.metadata.try_append(decided)
        if failure is not None:
            for each in responses:
                each.error_code = each.error_code or failure.error
    return responses


def _answer(resource_type: int, name: str, refusal: KafkaError | None) -> AlterConfigsResourceResponse:
    response = AlterConfigsResourceResponse(
        error_message=None, resource_type=resource_type, resource_name=name
    )
    if refusal is not None:
        response.error_code, response.error_message = refusal.error, refusal.message
    return response


def check_resource(server: Server, resource_type: int, name: str, *, loggers: bool) -> None:
    """What the broker that is asked checks of a resource. Raises KafkaError (INVALID_REQUEST)."""
    if resource_type not in RESOURCE_TYPES or (resource_type == BROKER_LOGGER_RESOURCE and not loggers):
        raise KafkaError(Error.INVALID_REQUEST, f"Unknown resource type {resource_type}")
    if resource_type == BROKER_LOGGER_RESOURCE or (resource_type == BROKER_RESOURCE and name):
        check_broker_name(server, name)


def _decide(
    server: Server, resource: IncrementalAlterConfigsResource, validate_only: bool, *, unheard_of: bool
) -> list[Message]:
    kind, name = resource.resource_type, resource.resource_name
    alterations = [
        Alteration(config.name, config.config_operation, config.value) for config in resource.configs
    ]
    check_request(alterations)
    check_resource(server, kind, name, loggers=True)
    if kind == BROKER_LOGGER_RESOURCE:
        logger_levels.check_alterations(alterations)
        if not validate_only:
            logger_levels.alter(alterations)
        return []
    if unheard_of and not (kind == BROKER_RESOURCE and _has_unknown_operation(resource)):
        # Kafka's controller fails on the request as a whole.
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
    return config_decisions.altered(server.metadata.image, server.config, kind, name, alterations)


def _has_unknown_operation(resource: IncrementalAlterConfigsResource) -> bool:
    return any(config.config_operation not in tuple(Operation) for config in resource.configs)

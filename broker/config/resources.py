"""What the APIs that describe and alter settings have in common: the resources, and how they are altered."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from broker.controller import config_decisions
from broker.controller.config_decisions import BROKER_LOGGER_RESOURCE, RESOURCE_TYPES
from broker.controller.image import BROKER_RESOURCE
from broker.controller.record_bounds import MAX_RECORDS_PER_REQUEST, too_many_records
from protocol.errors import Error, KafkaError
from protocol.messages.configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResource,
)
from protocol.wire.schema import Message

if TYPE_CHECKING:
    from broker.server import Server

R = TypeVar("R", AlterConfigsResource, IncrementalAlterConfigsResource)

_LOGGER_OR_BROKER = (BROKER_LOGGER_RESOURCE, BROKER_RESOURCE)


def check_broker_name(server: Server, name: str) -> None:
    """Raises KafkaError where this isn't our id, written as Java reads an int."""
    if re.fullmatch(r"[+-]?[0-9]{1,20}", name) is None:
        raise KafkaError(Error.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if int(name) != server.node_id:
        raise KafkaError(
            Error.INVALID_REQUEST, f"Unexpected broker id, expected {server.node_id}, but received {name}"
        )


def alter(
    server: Server,
    resources: Sequence[R],
    check: Callable[[R], None],
    decide: Callable[[R], list[Message]],
    *,
    validate_only: bool,
) -> list[AlterConfigsResourceResponse]:
    """Each resource is decided for itself; what was decided is written at once.

    `check` and `decide` raise KafkaError: for what Kafka's broker looks at, and for what its controller does. The
    controller gives up all that came to it where that makes too many records, or too long ones; settings of brokers
    are the broker's matter in any case.
    """
    times_named = Counter((r.resource_type, r.resource_name) for r in resources)
    decided: list[Message] = []
    responses: list[AlterConfigsResourceResponse] = []
    controllers: list[AlterConfigsResourceResponse] = []
    too_large: KafkaError | None = None
    for resource in resources:
        response = AlterConfigsResourceResponse(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        responses.append(response)
        try:
            if times_named[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(Error.INVALID_REQUEST, "Each resource must appear at most once.")
            check(resource)
            if resource.resource_type not in _LOGGER_OR_BROKER:
                controllers.append(response)
            new = decide(resource)
        except KafkaError as error:
            _refuse(response, error)
            continue
        if resource.resource_type == BROKER_RESOURCE:
            controllers.append(response)
        if too_large is None:
            decided += new
        if len(decided) > MAX_RECORDS_PER_REQUEST:
            too_large = too_many_records()
    if too_large is None:
        decided += config_decisions.cleared_elr(server.metadata.image, decided)
        if len(decided) > MAX_RECORDS_PER_REQUEST:
            too_large = too_many_records()
    failure = too_large
    if failure is None and not validate_only:
        try:
            failure = server.metadata.try_append(decided)
        except KafkaError as refusal:
            failure = too_large = refusal
    for response in controllers:
        if failure is not None and (failure is too_large or response.error_code == Error.NONE):
            _refuse(response, failure)
    return responses


def _refuse(response: AlterConfigsResourceResponse, refusal: KafkaError) -> None:
    response.error_code, response.error_message = refusal.error, refusal.message


def check_resource(server: Server, resource_type: int, name: str, *, loggers: bool) -> None:
    """What the broker that is asked checks of a resource. Raises KafkaError (INVALID_REQUEST)."""
    if resource_type not in RESOURCE_TYPES or (resource_type == BROKER_LOGGER_RESOURCE and not loggers):
        raise KafkaError(Error.INVALID_REQUEST, f"Unknown resource type {resource_type}")
    if resource_type == BROKER_LOGGER_RESOURCE or (resource_type == BROKER_RESOURCE and name):
        check_broker_name(server, name)

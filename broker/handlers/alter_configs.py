"""AlterConfigs (33), versions 0 to 2: replaces all settings of a resource; what isn't named goes.

Old clients' way, and why IncrementalAlterConfigs came (KIP-339). Loggers can't be altered so.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker.config.alterations import Alteration, Operation, check_request
from broker.handlers.incremental_alter_configs import answer, check_resource
from broker.metadata import config_decisions
from protocol.errors import Error, KafkaError
from protocol.messages.configs import AlterConfigsRequest, AlterConfigsResource, AlterConfigsResponse
from protocol.schema import Message

if TYPE_CHECKING:
    from broker.context import RequestContext
    from broker.server import Server


def handle(server: Server, context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    times_named = Counter((r.resource_type, r.resource_name) for r in request.resources)
    decided: list[Message] = []
    responses = []
    for resource in request.resources:
        key = (resource.resource_type, resource.resource_name)
        refusal: KafkaError | None = None
        try:
            if times_named[key] > 1:
                raise KafkaError(Error.INVALID_REQUEST, "Each resource must appear at most once.")
            decided += _decide(server, resource)
        except KafkaError as error:
            refusal = error
        responses.append(answer(*key, refusal))
    if decided and not request.validate_only:
        decided += config_decisions.cleared_elr(server.metadata.image, decided)
        failure = server.metadata.try_append(decided)
        if failure is not None:
            for each in responses:
                each.error_code = each.error_code or failure.error
    return AlterConfigsResponse(responses=responses)


def _decide(server: Server, resource: AlterConfigsResource) -> list[Message]:
    kind, name = resource.resource_type, resource.resource_name
    check_request([Alteration(config.name, Operation.SET, config.value) for config in resource.configs])
    check_resource(server, kind, name, loggers=False)
    wanted = {config.name: config.value for config in resource.configs if config.value is not None}
    return config_decisions.replaced(server.metadata.image, server.config, kind, name, wanted)

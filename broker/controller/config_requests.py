"""A request that alters settings of several resources: what the broker looks at, who may, and what the controller does.

Kafka: `ConfigAdminManager.preprocess` in the broker that is asked, `ControllerApis` and
`ConfigurationControlManager` where the rest goes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from broker.controller import config_decisions
from broker.controller.config_decisions import BROKER_LOGGER_RESOURCE, RESOURCE_TYPES
from broker.controller.controller_result import ControllerResult
from broker.controller.image import BROKER_RESOURCE, ClusterImage
from broker.controller.pause import Pause
from broker.controller.record_bounds import MAX_RECORDS_PER_REQUEST, too_many_records
from protocol.errors import Error, KafkaError
from protocol.messages.configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResource,
)
from protocol.waiting import turn
from protocol.wire.schema import Message

CHARACTERS_PER_ENTRY = 200
"""So much of a value's text is as much work as an entry: some 10 µs, where each second character is an element."""

R = TypeVar("R", AlterConfigsResource, IncrementalAlterConfigsResource)


class ConfigRequest(Generic[R]):
    """The resources of a request, each altered by itself; what is decided of all of them is written at once.

    `responses` are in the order of the request. `remaining` are those that nobody has answered yet.
    """

    def __init__(self, resources: Sequence[R]) -> None:
        self._times_named = Counter((each.resource_type, each.resource_name) for each in resources)
        self.responses = [
            AlterConfigsResourceResponse(
                error_message=None, resource_type=each.resource_type, resource_name=each.resource_name
            )
            for each in resources
        ]
        self.remaining = [*zip(resources, self.responses, strict=True)]

    async def preprocess(self, check: Callable[[R], bool]) -> None:
        """What the broker that is asked looks at: `check` raises KafkaError, or returns whether more is to be done."""

        def remains(resource: R) -> bool:
            if self._times_named[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(Error.INVALID_REQUEST, "Each resource must appear at most once.")
            return check(resource)

        await self._keep(remains)

    async def authorize(self, refusal: Callable[[int, str], KafkaError | None]) -> None:
        """Refuse those that the client may not alter, by type and name."""

        def allowed(resource: R) -> bool:
            refused = refusal(resource.resource_type, resource.resource_name)
            if refused is not None:
                try:
                    raise refused
                finally:
                    del refused  # its traceback holds this frame
            return True

        await self._keep(allowed)

    async def _keep(self, remains: Callable[[R], bool]) -> None:
        asked, self.remaining = self.remaining, []
        pause = Pause()
        for resource, response in asked:
            if pause.is_due(_work(resource)):
                await turn()
            try:
                if remains(resource):
                    self.remaining.append((resource, response))
            except KafkaError as error:
                _refuse(response, error)

    async def decide(
        self,
        image: ClusterImage,
        decide: Callable[[ClusterImage, R], list[Message]],
        *,
        validate_only: bool,
    ) -> ControllerResult[None]:
        """What the controller makes of the remaining ones. `decide` raises KafkaError where one of them can't be.

        Raises KafkaError (POLICY_VIOLATION) where that makes too many records: see `refuse_remaining`.
        """
        decided: list[Message] = []
        pause = Pause()
        for resource, response in self.remaining:
            if pause.is_due(_work(resource)):
                await turn()
            try:
                decided += decide(image, resource)
            except KafkaError as error:
                _refuse(response, error)
            if len(decided) > MAX_RECORDS_PER_REQUEST:
                raise too_many_records()
        decided += config_decisions.cleared_elr(image, decided)
        if len(decided) > MAX_RECORDS_PER_REQUEST:
            raise too_many_records()

        def answer(error: KafkaError | None) -> None:
            for _, response in self.remaining:
                if error is not None and response.error_code == Error.NONE:
                    _refuse(response, error)

        return ControllerResult([] if validate_only else decided, answer)

    def answered(self, results: Sequence[AlterConfigsResourceResponse]) -> None:
        """What a controller elsewhere says of the remaining ones (Kafka: `reassembleIncrementalResponse`)."""
        told = {(each.resource_type, each.resource_name): each for each in results}
        for resource, response in self.remaining:
            result = told.get((resource.resource_type, resource.resource_name))
            if result is None:
                _refuse(response, KafkaError(Error.UNKNOWN_SERVER_ERROR))
            else:
                response.error_code, response.error_message = result.error_code, result.error_message

    def refuse_remaining(self, error: KafkaError) -> None:
        """The controller gives up all that came to it: even those are told so that were refused already."""
        for _, response in self.remaining:
            _refuse(response, error)


def _work(resource: AlterConfigsResource | IncrementalAlterConfigsResource) -> int:
    """In entries of a step: a list is gone through, too, and its text says how long it may be."""
    characters = sum(len(each.value) for each in resource.configs if each.value is not None)
    return 1 + len(resource.configs) + characters // CHARACTERS_PER_ENTRY


def _refuse(response: AlterConfigsResourceResponse, refusal: KafkaError) -> None:
    response.error_code, response.error_message = refusal.error, refusal.message


def check_resource(node_id: int, resource_type: int, name: str, *, loggers: bool) -> None:
    """What the broker that is asked checks of a resource. Raises KafkaError (INVALID_REQUEST)."""
    if resource_type not in RESOURCE_TYPES or (resource_type == BROKER_LOGGER_RESOURCE and not loggers):
        raise KafkaError(Error.INVALID_REQUEST, f"Unknown resource type {resource_type}")
    if resource_type == BROKER_LOGGER_RESOURCE or (resource_type == BROKER_RESOURCE and name):
        check_broker_name(node_id, name)


def check_controllers_resource(resource: AlterConfigsResource | IncrementalAlterConfigsResource) -> bool:
    """What a controller that is asked checks, for `ConfigRequest.preprocess`: loggers are none of its concerns, and
    brokers needn't be there. Raises KafkaError (INVALID_REQUEST)."""
    resource_type, name = resource.resource_type, resource.resource_name
    if resource_type not in RESOURCE_TYPES or resource_type == BROKER_LOGGER_RESOURCE:
        raise KafkaError(Error.INVALID_REQUEST, f"Unknown resource type {resource_type}")
    if resource_type == BROKER_RESOURCE and name:
        if re.fullmatch(r"[+-]?[0-9]{1,20}", name) is None:
            raise KafkaError(
                Error.INVALID_REQUEST, f"Unable to parse broker name as a base 10 number: {name}"
            )
        if int(name) < 0:
            raise KafkaError(Error.INVALID_REQUEST, "Invalid negative broker ID.")
    return True


def check_broker_name(node_id: int, name: str) -> None:
    """Raises KafkaError where this isn't our id, written as Java reads an int."""
    if re.fullmatch(r"[+-]?[0-9]{1,20}", name) is None:
        raise KafkaError(Error.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if int(name) != node_id:
        raise KafkaError(
            Error.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {name}"
        )

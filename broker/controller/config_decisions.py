"""Altering the settings of resources: a request and the image become records, or an error.

Pure functions decide. Each resource's alterations are made completely or not at all. A request names several
resources: first the broker checks them, then authorization, then the controller decides.

Source: Kafka's `ConfigurationControlManager`, and `ConfigAdminManager` for the broker's checks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from broker.config.alterations import (
    Alteration,
    alter_broker,
    alter_topic,
    changes_of,
    replace_broker,
    replace_topic,
)
from broker.config.setting_checks import Occasion, Proposal, check
from broker.controller.controller import MAX_RECORDS_PER_REQUEST, ControllerResult, too_many_records
from broker.controller.image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ClusterImage,
    invalid_name_reason,
)
from broker.controller.metadata_versions import ELR_VERSION
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.messages.configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResource,
)
from protocol.waiting import Pause, turn
from protocol.wire.schema import Message

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig


BROKER_LOGGER_RESOURCE = 8

RESOURCE_TYPES = (
    TOPIC_RESOURCE,
    BROKER_RESOURCE,
    BROKER_LOGGER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
)
"""ConfigResourceKey.Type, ascending."""

MIN_INSYNC_REPLICAS = "min.insync.replicas"

ConfigResourceKey: TypeAlias = tuple[int, str]
"""Type and name of a resource with settings. A broker resource without a name means all brokers."""


def altered(
    image: ClusterImage, config: BrokerConfig, resource: ConfigResourceKey, alterations: Sequence[Alteration]
) -> list[Message]:
    """Return the records of an incremental alteration that `alterations.check_request` has passed. Raises
    KafkaError."""
    resource_type, name = resource
    stored = image.configs.get(resource, {})
    if resource_type == TOPIC_RESOURCE:
        check_topic_name(name)
        changes = alter_topic(config, stored, alterations)
        _check_topic_exists(image, name)
    elif resource_type == BROKER_RESOURCE:
        changes = alter_broker(
            config, stored, alterations, per_broker=bool(name), elr_enabled=is_elr_enabled(image)
        )
        _check_node_is_registered(image, name)
    elif resource_type == GROUP_RESOURCE:
        changes = _checked(stored, alterations, lambda after: _check_group(config, name, after))
    else:
        changes = _checked(stored, alterations, lambda after: _check_client_metrics(config, name, after))
    return _records(resource, changes)


def replaced(
    image: ClusterImage, config: BrokerConfig, resource: ConfigResourceKey, wanted: Mapping[str, str]
) -> list[Message]:
    """Return the records of an alteration that replaces all settings of a resource. Raises KafkaError."""
    resource_type, name = resource
    stored = image.configs.get(resource, {})
    if resource_type == TOPIC_RESOURCE:
        check_topic_name(name)
        changes = replace_topic(config, stored, wanted)
        _check_topic_exists(image, name)
    elif resource_type == BROKER_RESOURCE:
        changes = replace_broker(
            config, stored, wanted, per_broker=bool(name), elr_enabled=is_elr_enabled(image)
        )
        _check_node_is_registered(image, name)
    else:
        if resource_type == GROUP_RESOURCE:
            _check_group(config, name, wanted)
        else:
            _check_client_metrics(config, name, wanted)
        changes = {key: text for key, text in wanted.items() if stored.get(key) != text}
        changes.update(dict.fromkeys(key for key in stored if key not in wanted))
    return _records(resource, changes)


def is_elr_enabled(image: ClusterImage) -> bool:
    """True if the cluster has eligible leader replicas (KIP-966)."""
    return image.features.get(ELR_VERSION, 0) > 0


def cleared_elr(image: ClusterImage, decided: Sequence[Message]) -> list[Message]:
    """Return the records that clear eligible leader replicas, as min.insync.replicas has changed for them
    (KIP-966)."""
    if not is_elr_enabled(image):
        return []
    return [
        records.ClearElrRecord(
            topic_name=record.resource_name if record.resource_type == TOPIC_RESOURCE else ""
        )
        for record in decided
        if isinstance(record, records.ConfigRecord) and record.name == MIN_INSYNC_REPLICAS
    ]


def check_topic_name(name: str) -> None:
    """Raises KafkaError if no topic can have this name."""
    if not name:
        raise KafkaError(Error.INVALID_REQUEST, "Default topic resources are not allowed.")
    reason = invalid_name_reason(name)
    if reason is not None:
        raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def _check_topic_exists(image: ClusterImage, name: str) -> None:
    if name not in image.topics:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _check_node_is_registered(image: ClusterImage, name: str) -> None:
    """Raises KafkaError if the name isn't that of a registered broker or controller. No name means all of
    them."""
    if name and int(name) not in image.brokers and int(name) not in image.controllers:
        raise KafkaError(Error.BROKER_ID_NOT_REGISTERED, f"No node with id {name} found.")


def _check_group(config: BrokerConfig, name: str, after: Mapping[str, str]) -> None:
    if not name:
        raise KafkaError(Error.INVALID_REQUEST, "Default group resources are not allowed.")
    check(Occasion.ALTER_GROUP, Proposal(config, after))


def _check_client_metrics(config: BrokerConfig, name: str, after: Mapping[str, str]) -> None:
    if not name:
        raise KafkaError(Error.INVALID_REQUEST, "Subscription name can't be empty")
    check(Occasion.ALTER_CLIENT_METRICS, Proposal(config, after))


def _checked(
    stored: Mapping[str, str],
    alterations: Sequence[Alteration],
    check_all: Callable[[Mapping[str, str]], None],
) -> dict[str, str | None]:
    """Return the changes. Kafka's controller knows list settings only of topics and brokers, so other
    settings allow no APPEND or SUBTRACT."""
    changes = changes_of(stored, alterations, lambda key: None)
    check_all({name: text for name, text in {**stored, **changes}.items() if text is not None})
    return {name: text for name, text in changes.items() if stored.get(name) != text}


def _records(resource: ConfigResourceKey, changes: Mapping[str, str | None]) -> list[Message]:
    resource_type, name = resource
    return [
        records.ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=text)
        for key, text in changes.items()
    ]


# --- A request ----------------------------------------------------------------------------------------------
# Kafka: `ConfigAdminManager.preprocess` in the broker that gets the request, `ControllerApis` and
# `ConfigurationControlManager` for the rest.

CHARACTERS_PER_ENTRY = 200
"""So many characters of a value take as long as an entry: some 10 µs, if every second character is a list
element."""

R = TypeVar("R", AlterConfigsResource, IncrementalAlterConfigsResource)


class ConfigRequest(Generic[R]):
    """The resources of a request. Each is altered by itself; all their records are written at once.

    `responses` are in the order of the request. `remaining` are the resources that have no answer yet.
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
        """Run the broker's checks. `check` raises KafkaError, or returns True if the resource needs more
        work."""

        def remains(resource: R) -> bool:
            if self._times_named[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(Error.INVALID_REQUEST, "Each resource must appear at most once.")
            return check(resource)

        await self._keep(remains)

    async def authorize(self, refusal: Callable[[int, str], KafkaError | None]) -> None:
        """Refuse the resources that the client may not alter. `refusal` takes a type and a name."""

        def allowed(resource: R) -> bool:
            refused = refusal(resource.resource_type, resource.resource_name)
            if refused is not None:
                try:
                    raise refused
                finally:
                    del refused  # its traceback refers to this frame
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
        """Decide about the remaining resources. `decide` raises KafkaError for a resource that it refuses.

        Raises KafkaError (POLICY_VIOLATION) if they make too many records: see `refuse_remaining`.
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
        decided += cleared_elr(image, decided)
        if len(decided) > MAX_RECORDS_PER_REQUEST:
            raise too_many_records()

        def answer(error: KafkaError | None) -> None:
            for _, response in self.remaining:
                if error is not None and response.error_code == Error.NONE:
                    _refuse(response, error)

        return ControllerResult([] if validate_only else decided, answer)

    def answered(self, results: Sequence[AlterConfigsResourceResponse]) -> None:
        """Take over another controller's answers for the remaining resources (Kafka:
        `reassembleIncrementalResponse`)."""
        told = {(each.resource_type, each.resource_name): each for each in results}
        for resource, response in self.remaining:
            result = told.get((resource.resource_type, resource.resource_name))
            if result is None:
                _refuse(response, KafkaError(Error.UNKNOWN_SERVER_ERROR))
            else:
                response.error_code, response.error_message = result.error_code, result.error_message

    def refuse_remaining(self, error: KafkaError) -> None:
        """Refuse everything that reached the controller. The error replaces earlier refusals, too."""
        for _, response in self.remaining:
            _refuse(response, error)


def _work(resource: AlterConfigsResource | IncrementalAlterConfigsResource) -> int:
    """A resource's share of a step, in entries. Lists get parsed, so the length of the text counts, too."""
    characters = sum(len(each.value) for each in resource.configs if each.value is not None)
    return 1 + len(resource.configs) + characters // CHARACTERS_PER_ENTRY


def _refuse(response: AlterConfigsResourceResponse, refusal: KafkaError) -> None:
    response.error_code, response.error_message = refusal.error, refusal.message


def check_resource(node_id: int, resource_type: int, name: str, *, loggers: bool) -> None:
    """Run the broker's checks of a resource. Raises KafkaError (INVALID_REQUEST)."""
    if resource_type not in RESOURCE_TYPES or (resource_type == BROKER_LOGGER_RESOURCE and not loggers):
        raise KafkaError(Error.INVALID_REQUEST, f"Unknown resource type {resource_type}")
    if resource_type == BROKER_LOGGER_RESOURCE or (resource_type == BROKER_RESOURCE and name):
        check_broker_name(node_id, name)


def check_controllers_resource(resource: AlterConfigsResource | IncrementalAlterConfigsResource) -> bool:
    """Run a controller's own checks of a resource, for `ConfigRequest.preprocess`. It refuses loggers, and
    doesn't ask for a broker to be there. Raises KafkaError (INVALID_REQUEST)."""
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
    """Raises KafkaError if this isn't our id, written as Java reads an int."""
    if re.fullmatch(r"[+-]?[0-9]{1,20}", name) is None:
        raise KafkaError(Error.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if int(name) != node_id:
        raise KafkaError(
            Error.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {name}"
        )

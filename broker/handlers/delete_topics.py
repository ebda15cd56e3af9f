"""DeleteTopics (20), versions 1 to 6.

v3: TOPIC_DELETION_DISABLED in place of INVALID_REQUEST; v5: error messages; v6: topics by name or by id. Kafka
shuffles its answer so that the order tells nothing. Clients look results up by name or id.
Source: ControllerApis.deleteTopics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.security.authorizer import Operation, ResourceType, allows_on_cluster, denied
from protocol.errors import Error, KafkaError
from protocol.messages.topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.waiting import Pause, turn
from protocol.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage, TopicImage
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer


async def handle(
    node: ControllerPorts,
    context: RequestContext,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse:
    if context.api_version >= 6:
        asked = request.topics
    else:
        asked = [DeleteTopicState(name=name) for name in request.topic_names]
    if not node.config.get_boolean("delete.topic.enable"):
        error = Error.INVALID_REQUEST if context.api_version < 3 else Error.TOPIC_DELETION_DISABLED
        return DeleteTopicsResponse(responses=_all_refused(asked, error))
    if request.timeout_ms <= 0:
        return DeleteTopicsResponse(responses=_all_refused(asked, Error.REQUEST_TIMED_OUT))
    mutations = node.quotas.mutations_of(context, strict_since=5, now_ms=node.clock.now_ms())

    selection = _Selection(node.metadata.image, _Rights(node.authorizer, context))
    await selection.choose(asked)
    outcomes = await node.turns.to_the_end(
        node.topics.delete([*selection.chosen.values()], take=mutations.take)
    )
    if isinstance(outcomes, KafkaError):
        results = _all_refused(asked, outcomes.error)
    else:
        for topic, failure in outcomes:
            selection.tell(topic.name, topic.topic_id, failure)
        results = selection.results
    return DeleteTopicsResponse(throttle_time_ms=mutations.throttle_ms, responses=results)


class _Rights:
    """The rights of the client. If it may delete on the cluster, it may do everything."""

    def __init__(self, authorizer: Authorizer, context: RequestContext) -> None:
        self._authorizer = authorizer
        self._context = context
        self._all = allows_on_cluster(authorizer, context, Operation.DELETE, log_denied=False)

    def describe(self, name: str) -> bool:
        return self._all or self._authorizer.allows(
            self._context, Operation.DESCRIBE, ResourceType.TOPIC, name
        )

    def delete(self, name: str) -> bool:
        return self._all or self._authorizer.allows(self._context, Operation.DELETE, ResourceType.TOPIC, name)


class _Selection:
    """The topics that the request names by id or by name and that the client may delete. `results` has the others."""

    def __init__(self, image: ClusterImage, rights: _Rights) -> None:
        self.chosen: dict[bytes, TopicImage] = {}
        self.results: list[DeletableTopicResult] = []
        self._image = image
        self._rights = rights

    async def choose(self, asked: Sequence[DeleteTopicState]) -> None:
        pause = Pause()
        names: Counter[str] = Counter()
        ids: Counter[bytes] = Counter()
        for topic in asked:
            if pause.is_due():
                await turn()
            if topic.name is None and topic.topic_id == ZERO_UUID:
                self._refuse(
                    None, ZERO_UUID, Error.INVALID_REQUEST, "Neither topic name nor id were specified."
                )
            elif topic.name is None:
                ids[topic.topic_id] += 1
            elif topic.topic_id == ZERO_UUID:
                names[topic.name] += 1
            else:
                message = "A topic is named by its name or by its id."
                self._refuse(topic.name, topic.topic_id, Error.INVALID_REQUEST, message)
        for topic_id, times in ids.items():
            if pause.is_due():
                await turn()
            if times > 1:
                self._refuse(None, topic_id, Error.INVALID_REQUEST, "Duplicate topic id.")
            else:
                self._choose_by_id(topic_id)
        for name, times in names.items():
            if pause.is_due():
                await turn()
            if times > 1:
                self._refuse(name, ZERO_UUID, Error.INVALID_REQUEST, "Duplicate topic name.")
            else:
                self._choose_by_name(name, ids)

    def _choose_by_id(self, topic_id: bytes) -> None:
        found = self._image.topics_by_id.get(topic_id)
        if found is None:
            message = "This server does not host this topic ID."
            self._refuse(None, topic_id, Error.UNKNOWN_TOPIC_ID, message)
        elif self._rights.delete(found.name):
            self.chosen[topic_id] = found
        else:
            told = found.name if self._rights.describe(found.name) else None
            self.tell(told, topic_id, denied(ResourceType.TOPIC))

    def _choose_by_name(self, name: str, ids: Counter[bytes]) -> None:
        found = self._image.topics.get(name)
        if not self._rights.describe(name):
            self.tell(name, ZERO_UUID, denied(ResourceType.TOPIC))
        elif found is None:
            message = "This server does not host this topic-partition."
            self._refuse(name, ZERO_UUID, Error.UNKNOWN_TOPIC_OR_PARTITION, message)
        elif not self._rights.delete(name):
            self.tell(name, ZERO_UUID, denied(ResourceType.TOPIC))
        elif found.topic_id in ids:
            self.chosen.pop(found.topic_id, None)
            message = "The topic was named by its id already."
            self._refuse(name, found.topic_id, Error.INVALID_REQUEST, message)
        else:
            self.chosen[found.topic_id] = found

    def _refuse(self, name: str | None, topic_id: bytes, error: Error, message: str) -> None:
        self.tell(name, topic_id, KafkaError(error, message))

    def tell(self, name: str | None, topic_id: bytes, error: KafkaError | None) -> None:
        """Add a topic's result. `error` is None if it was deleted."""
        result = DeletableTopicResult(name=name, topic_id=topic_id)
        if error is not None:
            result.error_code, result.error_message = error.error, error.message
        self.results.append(result)


def _all_refused(asked: Sequence[DeleteTopicState], error: Error) -> list[DeletableTopicResult]:
    return [
        DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=error) for topic in asked
    ]

"""DeleteTopics (20), versions 1 to 6.

v3: TOPIC_DELETION_DISABLED where INVALID_REQUEST was answered before; v5: error messages; v6: topics by name or by
id. Kafka shuffles its answer, so that places tell nothing; clients look results up by name or id.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker.controller.image import TopicImage
from protocol.errors import Error, KafkaError
from protocol.messages.topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server


def handle(server: Server, context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    if context.api_version >= 6:
        asked = request.topics
    else:
        asked = [DeleteTopicState(name=name) for name in request.topic_names]
    if not server.config.get_boolean("delete.topic.enable"):
        error = Error.INVALID_REQUEST if context.api_version < 3 else Error.TOPIC_DELETION_DISABLED
        return _error(asked, error)
    if request.timeout_ms <= 0:
        return _error(asked, Error.REQUEST_TIMED_OUT)
    response = DeleteTopicsResponse()

    def refuse(name: str | None, topic_id: bytes, error: Error, message: str | None = None) -> None:
        response.responses.append(
            DeletableTopicResult(name=name, topic_id=topic_id, error_code=error, error_message=message)
        )

    names: Counter[str] = Counter()
    ids: Counter[bytes] = Counter()
    for topic in asked:
        if topic.name is None and topic.topic_id == ZERO_UUID:
            refuse(None, ZERO_UUID, Error.INVALID_REQUEST, "Neither topic name nor id were specified.")
        elif topic.name is None:
            ids[topic.topic_id] += 1
        elif topic.topic_id == ZERO_UUID:
            names[topic.name] += 1
        else:
            refuse(
                topic.name,
                topic.topic_id,
                Error.INVALID_REQUEST,
                "A topic is named by its name or by its id.",
            )
    image = server.metadata.image
    to_delete: dict[bytes, TopicImage] = {}
    for topic_id, times in ids.items():
        found = image.topics_by_id.get(topic_id)
        if times > 1:
            refuse(None, topic_id, Error.INVALID_REQUEST, "Duplicate topic id.")
        elif found is None:
            refuse(None, topic_id, Error.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        else:
            to_delete[topic_id] = found
    for name, times in names.items():
        found = image.topics.get(name)
        if times > 1:
            refuse(name, ZERO_UUID, Error.INVALID_REQUEST, "Duplicate topic name.")
        elif found is None:
            refuse(
                name,
                ZERO_UUID,
                Error.UNKNOWN_TOPIC_OR_PARTITION,
                "This server does not host this topic-partition.",
            )
        elif found.topic_id in ids:
            to_delete.pop(found.topic_id, None)
            refuse(name, found.topic_id, Error.INVALID_REQUEST, "The topic was named by its id already.")
        else:
            to_delete[found.topic_id] = found
    mutations = server.quotas.mutations_of(context, strict_since=5, now_ms=server.clock.now_ms())
    try:
        outcomes = server.topics.delete([*to_delete.values()], take=mutations.take)
    except KafkaError as refusal:
        response = _error(asked, refusal.error)
        outcomes = []
    for deleted, failure in outcomes:
        if failure is None:
            response.responses.append(DeletableTopicResult(name=deleted.name, topic_id=deleted.topic_id))
        else:
            refuse(deleted.name, deleted.topic_id, failure.error, failure.message)
    response.throttle_time_ms = mutations.throttle_ms
    return response


def _error(asked: list[DeleteTopicState], error: Error) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=error)
            for topic in asked
        ]
    )

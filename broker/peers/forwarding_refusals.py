"""What a client is told where the controller can't be asked: the error, of each thing that it asked for.

Source: `ForwardingManagerImpl`; `getErrorResponse` of each request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from protocol.apis import APIS

if TYPE_CHECKING:
    from protocol.errors import Error
    from protocol.wire.schema import Message

_ELECT_LEADERS = 43

MakeAnswer = Callable[..., "Message"]
Shape = Callable[[Any, MakeAnswer, int], "Message"]
"""The answer to a request, which it is given with the class of the answer and an error's code."""


def refusal(api_key: int, version: int, request: Message, error: Error) -> Message:
    """In the form that the API has for it."""
    answer = _SHAPES[api_key](request, APIS[api_key].response, int(error))
    if api_key == _ELECT_LEADERS and not version:
        answer.error_code = 0  # type: ignore[attr-defined]  # it has none yet
    return answer


def _of_all(request: Any, response: MakeAnswer, error_code: int) -> Message:
    """One error for the whole."""
    return response(error_code=error_code)


def _of_each(entries: str, results: str, *named: str) -> Shape:
    """An error for each entry, whose fields of these names are those of the entry."""

    def answer(request: Any, response: MakeAnswer, error_code: int) -> Message:
        return response(
            **{
                results: [
                    _entry_of(response, results)(
                        error_code=error_code, **{name: getattr(entry, name) for name in named}
                    )
                    for entry in getattr(request, entries)
                ]
            }
        )

    return answer


def _entry_of(struct: Any, name: str) -> Any:
    """What a list's entries are, by the list's name."""
    return next(field.element for field in struct.FIELDS if field.name == name)


def _deleted(request: Any, response: MakeAnswer, error_code: int) -> Message:
    result = _entry_of(response, "responses")
    by_name = [result(name=name, error_code=error_code) for name in request.topic_names]
    return response(
        responses=by_name
        + [result(name=each.name, topic_id=each.topic_id, error_code=error_code) for each in request.topics]
    )


def _elected(request: Any, response: MakeAnswer, error_code: int) -> Message:
    topic = _entry_of(response, "replica_election_results")
    partition = _entry_of(topic, "partition_result")
    return response(
        error_code=error_code,
        replica_election_results=[
            topic(
                topic=each.topic,
                partition_result=[
                    partition(partition_id=index, error_code=error_code) for index in each.partitions
                ],
            )
            for each in request.topic_partitions or ()
        ],
    )


def _reassigned(request: Any, response: MakeAnswer, error_code: int) -> Message:
    topic = _entry_of(response, "responses")
    partition = _entry_of(topic, "partitions")
    return response(
        error_code=error_code,
        responses=[
            topic(
                name=each.name,
                partitions=[
                    partition(partition_index=of_topic.partition_index, error_code=error_code)
                    for of_topic in each.partitions
                ],
            )
            for each in request.topics
        ],
    )


def _with_users(request: Any, response: MakeAnswer, error_code: int) -> Message:
    result = _entry_of(response, "results")
    users = dict.fromkeys(each.name for each in [*request.deletions, *request.upsertions])
    return response(results=[result(user=user, error_code=error_code) for user in users])


_SHAPES: dict[int, Shape] = {
    19: _of_each("topics", "topics", "name"),
    20: _deleted,
    30: _of_each("creations", "results"),
    31: _of_each("filters", "filter_results"),
    33: _of_each("resources", "responses", "resource_type", "resource_name"),
    37: _of_each("topics", "results", "name"),
    38: _of_all,
    39: _of_all,
    40: _of_all,
    _ELECT_LEADERS: _elected,
    44: _of_each("resources", "responses", "resource_type", "resource_name"),
    45: _reassigned,
    46: _of_all,
    49: _of_each("entries", "entries", "entity"),
    51: _with_users,
    55: _of_all,
    57: _of_all,
    64: _of_all,
    80: _of_all,
    81: _of_all,
}
"""By the key of each API that clients ask and that is forwarded (Kafka: `ApiKeys.forwardable`)."""

FORWARDED = _SHAPES.keys()

_ALLOCATE_PRODUCER_IDS = 67
ENVELOPED = frozenset({*FORWARDED, _ALLOCATE_PRODUCER_IDS})
"""Of which APIs a controller takes a request in an envelope: brokers' own requests for producer ids, too."""

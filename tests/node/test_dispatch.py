"""How an answer leaves the dispatch: a small one as one object, a larger one as the chunks it was encoded into."""

from __future__ import annotations

import pytest

from broker.network.frames import JOINED_ANSWER_BYTES
from broker.network.routes import JOINED_CHUNKS_BYTES, Route, frame_answer
from protocol.messages.topics import DeletableTopicResult, DeleteTopicsResponse

DELETE_TOPICS = 20
TOPIC_BYTES = 75 + 1 + 16 + 2 + 1 + 1  # name, id, error, no message, no tagged fields
REST_BYTES = (
    4 + 4 + 1 + 4 + 2 + 1
)  # size, correlation id, tagged fields, throttle time, topics, tagged fields


def framed(topics: int) -> list[bytes | bytearray | memoryview]:
    response = DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name="t" * 75, topic_id=b"i" * 16, error_message=None) for _ in range(topics)
        ]
    )
    answer = frame_answer(Route(DELETE_TOPICS, 6), 7, response)
    assert answer is not None
    assert int.from_bytes(bytes(answer[0][:4]), "big") == sum(map(len, answer)) - 4
    return answer


def test_a_small_answer_is_one_object() -> None:
    [answer] = framed((JOINED_CHUNKS_BYTES - REST_BYTES) // TOPIC_BYTES)
    assert JOINED_CHUNKS_BYTES - TOPIC_BYTES < len(answer) <= JOINED_CHUNKS_BYTES


@pytest.mark.parametrize("size", [JOINED_CHUNKS_BYTES + 2 * TOPIC_BYTES, JOINED_ANSWER_BYTES])
def test_a_larger_one_is_not_joined_before_it_is_written(size: int) -> None:
    assert len(framed(size // TOPIC_BYTES)) > 1

"""A small answer leaves the dispatch as one object, and a larger one as the chunks that it was encoded into."""

from __future__ import annotations

import sys

import pytest

from broker.network.answers import JOINED_ANSWER_BYTES
from broker.network.dispatch import JOINED_CHUNKS_BYTES, Route, frame_answer
from broker.network.pieces import LIST_BYTES
from protocol.messages.groups import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.messages.metadata import MetadataResponse
from protocol.messages.topics import DeletableTopicResult, DeleteTopicsResponse
from protocol.messages.transactions import AddPartitionsToTxnResponse, EndTxnResponse
from protocol.wire.schema import Message

FETCH = 1
METADATA = 3
OFFSET_COMMIT = 8
DELETE_TOPICS = 20
ADD_PARTITIONS_TO_TXN = 24
END_TXN = 26
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


@pytest.mark.parametrize(
    ("api_key", "version", "head"),
    [(0, 8, "00000007fffffffe"), (0, 9, "00000007fffffffe00"), (18, 4, "00000007fffffffe")],
)
def test_an_answers_header_has_tagged_fields_in_flexible_versions_but_for_api_versions(
    api_key: int, version: int, head: str
) -> None:
    """The header is what Kafka's ResponseHeaderData writes, behind the size."""
    assert Route(api_key, version).head.pack(7, -2).hex() == head


def test_a_small_answer_is_one_object() -> None:
    [answer] = framed((JOINED_CHUNKS_BYTES - REST_BYTES) // TOPIC_BYTES)
    assert JOINED_CHUNKS_BYTES - TOPIC_BYTES < len(answer) <= JOINED_CHUNKS_BYTES


@pytest.mark.parametrize("size", [JOINED_CHUNKS_BYTES + 2 * TOPIC_BYTES, JOINED_ANSWER_BYTES])
def test_a_larger_answer_is_not_joined_before_it_is_written(size: int) -> None:
    assert len(framed(size // TOPIC_BYTES)) > 1


def commit_answers(topics: int, partitions: int) -> list[OffsetCommitResponseTopic]:
    return [
        OffsetCommitResponseTopic(partitions=[OffsetCommitResponsePartition() for _ in range(partitions)])
        for _ in range(topics)
    ]


@pytest.mark.parametrize(
    ("route", "response", "is_short"),
    [
        (Route(OFFSET_COMMIT, 9), OffsetCommitResponse(topics=commit_answers(1, 1_000)), True),
        (Route(OFFSET_COMMIT, 9), OffsetCommitResponse(topics=commit_answers(1, 1_001)), False),
        (Route(OFFSET_COMMIT, 9), OffsetCommitResponse(topics=commit_answers(20, 1)), True),
        (Route(OFFSET_COMMIT, 9), OffsetCommitResponse(topics=commit_answers(21, 1)), False),
        (Route(ADD_PARTITIONS_TO_TXN, 3), AddPartitionsToTxnResponse(), True),
        # later versions answer in another list
        (Route(ADD_PARTITIONS_TO_TXN, 4), AddPartitionsToTxnResponse(), False),
        (Route(END_TXN, 3), EndTxnResponse(), True),
        (Route(METADATA, 12), MetadataResponse(), False),
    ],
)
def test_an_answer_is_encoded_in_passing_where_it_has_few_entries(
    route: Route, response: Message, is_short: bool
) -> None:
    assert route.is_short(response) == is_short


@pytest.mark.parametrize(
    ("route", "short_bytes"),
    [
        (Route(OFFSET_COMMIT, 9), LIST_BYTES),
        (Route(ADD_PARTITIONS_TO_TXN, 3), LIST_BYTES),
        (Route(ADD_PARTITIONS_TO_TXN, 4), 0),
        (Route(FETCH, 12), 0),  # in a session the answer has everything, and the request next to nothing
        (Route(METADATA, 12), 0),
        (Route(END_TXN, 3), sys.maxsize),
    ],
)
def test_an_answer_is_not_examined_if_the_request_shows_that_it_is_short(
    route: Route, short_bytes: int
) -> None:
    assert route.short_bytes == short_bytes

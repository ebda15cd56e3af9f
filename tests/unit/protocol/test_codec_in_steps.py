"""A message is the same if it is decoded and encoded in steps, and no step is long."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from protocol.errors import CodecError
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.wire.codec import (
    ENTRIES_PER_STEP,
    MOST_ENTRIES,
    decode,
    decoder_in_steps,
    encode,
    encoder_in_steps,
)
from protocol.wire.primitives import MOST_TAGGED_FIELDS, encode_unsigned_varint, skip_tagged_fields
from tests.support.large_requests import large_requests


def steps_of(steps: Generator[None, None, Any]) -> tuple[Any, int]:
    """Return the result of the steps, and how often they yielded."""
    count = 0
    while True:
        try:
            steps.send(None)
        except StopIteration as end:
            return end.value, count
        count += 1


@pytest.mark.parametrize("large", [pytest.param(each, id=str(each)) for each in large_requests(3)])
def test_each_request_is_the_same_in_steps(large: Any) -> None:
    message, version = large.message, large.version
    data = encode(message, version)
    (decoded, end), _ = steps_of(decoder_in_steps(type(message), version)(data, 0, len(data)))
    assert (decoded, end) == (decode(type(message), version, data), len(data))
    chunks: list[Any] = []
    steps_of(encoder_in_steps(type(message), version)(message, chunks))
    assert b"".join(chunks) == data


def named(count: int) -> bytes:
    return encode(MetadataRequest(topics=[MetadataRequestTopic(name="t")] * count), 12)


def test_a_step_ends_after_a_number_of_entries_of_whatever_list() -> None:
    for count, expected in ((ENTRIES_PER_STEP - 1, 0), (ENTRIES_PER_STEP, 1), (3 * ENTRIES_PER_STEP + 5, 3)):
        data = named(count)
        (message, _), steps = steps_of(decoder_in_steps(MetadataRequest, 12)(data, 0, len(data)))
        assert steps == expected
        assert steps_of(encoder_in_steps(MetadataRequest, 12)(message, [])) == (None, expected)


@pytest.mark.limit("protocol.wire.codec.MOST_ENTRIES")
def test_a_request_of_more_entries_than_are_taken_is_nonsense() -> None:
    data = named(MOST_ENTRIES + 2 * ENTRIES_PER_STEP)
    with pytest.raises(CodecError, match="more entries than are taken"):
        steps_of(decoder_in_steps(MetadataRequest, 12)(data, 0, len(data)))


@pytest.mark.limit("protocol.wire.primitives.MOST_TAGGED_FIELDS")
def test_too_many_tagged_fields_are_refused() -> None:
    many = encode_unsigned_varint(MOST_TAGGED_FIELDS) + b"\x7f\0" * MOST_TAGGED_FIELDS
    assert skip_tagged_fields(many, 0, len(many)) == len(many)
    more = encode_unsigned_varint(MOST_TAGGED_FIELDS + 1) + b"\x7f\0" * (MOST_TAGGED_FIELDS + 1)
    with pytest.raises(CodecError, match="tagged fields"):
        skip_tagged_fields(more, 0, len(more))
    from protocol.messages.fetch import FetchRequest

    known = encode(FetchRequest(), 12)[:-1]
    assert decode(FetchRequest, 12, known + many) == FetchRequest()
    for number in (more, b"\xff\xff\xff\xff\x0f"):  # Java reads the second number as -1
        with pytest.raises(CodecError, match="tagged fields"):
            decode(FetchRequest, 12, known + number)

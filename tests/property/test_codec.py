"""The codec of any declared message: round trips, and bytes that mean harm."""

import contextlib
import gzip
import json
import struct
import tracemalloc
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import CodecError
from protocol.wire.codec import decode, decoder, encode
from protocol.wire.primitives import encode_unsigned_varint
from protocol.wire.schema import Message
from tests.support.declared_messages import declared_messages
from tests.support.examples import examples
from tests.support.message_strategies import VERSIONS, messages

VECTORS = Path(__file__).parents[1] / "golden" / "vectors" / "messages.jsonl.gz"
exactly = settings(derandomize=True, deadline=None, max_examples=examples(75))

LIES = [
    *(struct.pack(">h", size) for size in (32767, -2)),
    *(struct.pack(">i", size) for size in (2**31 - 1, 100_000_000, -2)),
    *(b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\xff\xff\x7f"),
]
"""Counts and lengths that lie, as int16, int32 and unsigned varint."""


@cache
def vectors() -> list[tuple[type[Message], int, bytes]]:
    """Bytes that Kafka wrote: of each message and version, the longest vector."""
    declared = declared_messages()
    longest: dict[tuple[str, int], str] = {}
    for line in gzip.decompress(VECTORS.read_bytes()).splitlines():
        vector = json.loads(line)
        key = vector["message"], vector["version"]
        if vector["message"] in declared and len(vector["hex"]) >= len(longest.get(key, "")):
            longest[key] = vector["hex"]
    return [(declared[name], version, bytes.fromhex(data)) for (name, version), data in longest.items()]


@exactly
@given(st.data())
def test_a_message_decodes_to_the_encoded_one(data: st.DataObject) -> None:
    cls, version = data.draw(st.sampled_from(VERSIONS))
    message = data.draw(messages(cls, version))
    encoded = encode(message, version)
    decoded, pos = decoder(cls, version)(memoryview(encoded), 0, len(encoded))
    assert decoded == message
    assert pos == len(encoded)


@exactly
@given(st.sampled_from(VERSIONS), st.binary(max_size=200))
def test_arbitrary_bytes_are_a_message_or_a_codec_error(
    declared: tuple[type[Message], int], data: bytes
) -> None:
    cls, version = declared
    try:
        message = decode(cls, version, data)
    except CodecError:
        return
    again = encode(message, version)
    assert encode(decode(cls, version, again), version) == again


@settings(exactly, max_examples=examples(200))
@given(st.data())
def test_mutated_messages_are_messages_or_codec_errors(data: st.DataObject) -> None:
    cls, version, original = data.draw(st.sampled_from(vectors()))
    mutated = bytearray(original)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(mutated)))
        mutated[at : at + data.draw(st.integers(0, 5))] = data.draw(
            st.binary(max_size=5) | st.sampled_from(LIES)
        )
    try:
        _, pos = decoder(cls, version)(mutated, 0, len(mutated))
    except CodecError:
        return
    assert pos <= len(mutated)


def test_every_message_cut_short_anywhere_is_refused() -> None:
    for cls, version, data in vectors():
        decode_this = decoder(cls, version)
        for end in range(len(data)):
            with pytest.raises(CodecError):
                decode_this(data, 0, end)


def test_lengths_and_counts_that_lie_allocate_nothing() -> None:
    """100 million of whatever, said anywhere in a message of some hundred bytes: a megabyte is never needed."""
    first_and_last = [vector for vector in vectors() if vector[1] in vector[0].VERSIONS]
    for cls, version, data in first_and_last:
        decode(cls, version, data)
    tracemalloc.start()
    try:
        for cls, version, data in first_and_last:
            decode_this = decoder(cls, version)
            flexible = cls.FLEXIBLE[0] <= version <= cls.FLEXIBLE[1]
            lie = encode_unsigned_varint(100_000_000) if flexible else struct.pack(">i", 100_000_000)
            for at in range(len(data)):
                lying = data[:at] + lie + data[at + len(lie) :]
                with contextlib.suppress(CodecError):
                    decode_this(lying, 0, len(lying))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000

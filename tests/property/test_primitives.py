import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import CodecError
from protocol.wire.primitives import (
    encode_unsigned_varint,
    read_unsigned_varint,
    skip_tagged_fields,
    uuid_from_text,
    uuid_to_text,
)
from tests.support.examples import examples

uint32 = st.integers(0, 2**32 - 1) | st.sampled_from([0, 127, 128, 16383, 16384, 2**28 - 1, 2**28, 2**32 - 1])
exactly = settings(derandomize=True, deadline=None, max_examples=examples(50))


@exactly
@given(value=uint32, before=st.binary(max_size=4), after=st.binary(max_size=4))
def test_an_unsigned_varint_reads_as_it_was_written(value: int, before: bytes, after: bytes) -> None:
    written = encode_unsigned_varint(value)
    end = len(before) + len(written)
    assert read_unsigned_varint(before + written + after, len(before)) == (value, end)
    assert read_unsigned_varint(memoryview(before + written), len(before), end) == (value, end)


@exactly
@given(value=uint32)
def test_an_unsigned_varint_takes_a_byte_for_every_seven_bits(value: int) -> None:
    assert len(encode_unsigned_varint(value)) == max(1, -(-value.bit_length() // 7))


@exactly
@given(value=uint32)
def test_an_unsigned_varint_cut_short_is_refused(value: int) -> None:
    written = encode_unsigned_varint(value)
    with pytest.raises(CodecError):
        read_unsigned_varint(written, 0, len(written) - 1)


@pytest.mark.parametrize("value", [-1, 2**32])
def test_a_number_beyond_32_bits_has_no_varint(value: int) -> None:
    with pytest.raises(CodecError):
        encode_unsigned_varint(value)


def test_the_bits_beyond_the_32nd_fall_away_as_in_java() -> None:
    assert read_unsigned_varint(b"\x81\x80\x80\x80\x7f", 0) == (0xF0000001, 5)


def test_a_varint_of_six_bytes_is_refused() -> None:
    with pytest.raises(CodecError):
        read_unsigned_varint(b"\x80\x80\x80\x80\x80\x01", 0)


@exactly
@given(data=st.binary(max_size=12))
def test_arbitrary_bytes_are_a_varint_or_a_codec_error(data: bytes) -> None:
    try:
        _, pos = read_unsigned_varint(data, 0)
    except CodecError:
        return
    assert 0 < pos <= min(5, len(data))


@exactly
@given(fields=st.lists(st.tuples(uint32, st.binary(max_size=300)), max_size=5), after=st.binary(max_size=3))
def test_tagged_fields_are_skipped_whatever_is_in_them(fields: list[tuple[int, bytes]], after: bytes) -> None:
    section = encode_unsigned_varint(len(fields)) + b"".join(
        encode_unsigned_varint(tag) + encode_unsigned_varint(len(content)) + content
        for tag, content in fields
    )
    assert skip_tagged_fields(section + after, 0, len(section)) == len(section)
    for end in range(len(section)):
        with pytest.raises(CodecError):
            skip_tagged_fields(section + after, 0, end)


@exactly
@given(uuid=st.binary(min_size=16, max_size=16))
def test_a_uuid_reads_from_the_text_it_was_written_to(uuid: bytes) -> None:
    text = uuid_to_text(uuid)
    assert len(text) == 22
    assert uuid_from_text(text) == uuid
    assert uuid_from_text(text + "==") == uuid


def test_the_text_of_a_uuid_is_url_safe() -> None:
    assert uuid_to_text(b"\xfb\xff" * 8) == "-__7__v_-__7__v_-__7_w"


@pytest.mark.parametrize(
    "text", ["", "AAAA", "A" * 21, "A" * 23, "A" * 24, "+" + "A" * 20 + "ä", "A" * 11 + " " + "A" * 10]
)
def test_other_texts_are_not_uuids(text: str) -> None:
    with pytest.raises(ValueError, match="is no uuid"):
        uuid_from_text(text)

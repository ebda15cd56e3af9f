"""What the compiled codecs do at the edges. The golden tests show that they write Kafka's bytes."""

import struct as packing

import pytest

from protocol.errors import CodecError
from protocol.wire.codec import decode, decoder, encode, encoder
from protocol.wire.schema import (
    Message,
    Struct,
    array,
    binary,
    boolean,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)


class Inner(Struct):
    number: int = int32("0+", default=-1)


class Sample(Message, versions="0-4", flexible="2+"):
    """A message whose first flexible version is 2."""

    text: str = string("0+")
    maybe_text: str | None = string("0+", nullable="0+", default=None)
    ids: list[int] | None = array(int32, "0+", nullable="1+")
    inners: list[Inner] = array(Inner, "0+")
    maybe_inner: Inner | None = struct(Inner, "0+", nullable="0+")
    lost: int = int32("1+", ignorable=True)
    kept: int = int32("1+", default=7)
    kept_list: list[int] = array(int32, "1+")
    tagged_number: int = int64("2+", default=-1, tag=1)
    tagged_inner: Inner | None = struct(Inner, "2+", tag=0)


class Text(Message, versions="0-1", flexible="1+"):
    value: str | None = string("0+", nullable="0+")


class Blob(Message, versions="0-1", flexible="1+"):
    value: bytes | None = binary("0+", nullable="0+")


class Batches(Message, versions="0-1", flexible="1+"):
    partition: int = int32("0+")
    value: object = records("0+", nullable="0+")


class Ids(Message, versions="0-1", flexible="1+"):
    value: list[int] | None = array(int32, "0+", nullable="0+")


class Required(Message, versions="0-1", flexible="1+"):
    value: str = string("0+")


class Flag(Message, versions="0"):
    value: bool = boolean("0+")


class Numbers(Message, versions="0"):
    tiny: int = int8("0+")
    small: int = int16("0+")
    topic_id: bytes = uuid("0+")


# Lengths and nulls


@pytest.mark.parametrize("length", [-1, -2, -5, -32768])
def test_any_negative_length_of_a_nullable_string_is_null(length: int) -> None:
    assert decode(Text, 0, packing.pack(">h", length)).value is None


@pytest.mark.parametrize("cls", [Blob, Batches, Ids])
@pytest.mark.parametrize("length", [-1, -5, -(2**31)])
def test_any_negative_length_of_other_nullables_is_null(cls: type[Message], length: int) -> None:
    head = bytes(4) if cls is Batches else b""
    assert decode(cls, 0, head + packing.pack(">i", length)).value is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("cls", [Text, Blob, Ids])
@pytest.mark.parametrize("length", ["00", "ffffffff0f", "8180808008"])
def test_compact_lengths_that_turn_negative_in_an_int32_are_null(cls: type[Message], length: str) -> None:
    assert decode(cls, 1, bytes.fromhex(length + "00")).value is None  # type: ignore[attr-defined]


def test_the_largest_compact_length_is_not_null_but_cut_short() -> None:
    with pytest.raises(CodecError):
        decode(Blob, 1, bytes.fromhex("8080808008"))


@pytest.mark.parametrize(("version", "data"), [(0, "ffff"), (0, "fffb"), (1, "0000"), (1, "ffffffff0f00")])
def test_null_in_a_field_that_is_not_nullable_is_refused(version: int, data: str) -> None:
    with pytest.raises(CodecError, match="value is null"):
        decode(Required, version, bytes.fromhex(data))


@pytest.mark.parametrize("version", [0, 1])
def test_null_in_a_field_that_is_not_nullable_cannot_be_encoded(version: int) -> None:
    with pytest.raises(CodecError, match="value is null"):
        encode(Required(value=None), version)  # type: ignore[arg-type]


def test_a_field_nullable_only_in_later_versions_cannot_be_null_before() -> None:
    assert decode(Sample, 1, encode(Sample(ids=None), 1)).ids is None
    with pytest.raises(CodecError, match="ids is null"):
        encode(Sample(ids=None), 0)


def test_an_empty_string_is_not_null() -> None:
    for version in (0, 1):
        assert decode(Text, version, encode(Text(value=""), version)).value == ""


@pytest.mark.limit("protocol.wire.primitives.MAX_STRING_BYTES")
@pytest.mark.parametrize("version", [0, 1])
def test_a_string_of_32767_bytes_is_the_longest(version: int) -> None:
    assert decode(Text, version, encode(Text(value="x" * 32767), version)).value == "x" * 32767
    with pytest.raises(CodecError, match="too long"):
        encode(Text(value="ä" * 16384), version)


def test_a_longer_compact_string_is_refused() -> None:
    with pytest.raises(CodecError, match="length"):
        decode(Text, 1, b"\x81\x80\x02" + bytes(32769))


def test_bad_utf_8_is_replaced() -> None:
    assert decode(Text, 0, b"\0\3a\xffb").value == "a\ufffdb"


def test_a_missing_struct_is_one_negative_byte() -> None:
    there, missing = encode(Sample(maybe_inner=Inner(number=3)), 0), encode(Sample(), 0)
    assert there.endswith(b"\1\0\0\0\3")
    assert missing.endswith(b"\xff")
    assert decode(Sample, 0, there).maybe_inner == Inner(number=3)
    assert decode(Sample, 0, missing[:-1] + b"\x80").maybe_inner is None


def test_any_byte_but_zero_is_true() -> None:
    assert [decode(Flag, 0, bytes([byte])).value for byte in (0, 1, 2, 255)] == [False, True, True, True]


# Versions


def test_an_ignorable_field_is_left_out_where_the_version_does_not_have_it() -> None:
    assert encode(Sample(lost=5), 0) == encode(Sample(), 0)


@pytest.mark.parametrize("fields", [{"kept": 8}, {"kept_list": [1]}, {"tagged_number": 1}])
def test_another_field_must_have_its_default_there(fields: dict[str, object]) -> None:
    with pytest.raises(CodecError, match=f"{next(iter(fields))} is not in this version"):
        encode(Sample(**fields), 0)  # type: ignore[arg-type]


def test_a_field_that_the_version_does_not_have_decodes_to_its_default() -> None:
    sample = decode(Sample, 0, encode(Sample(), 0))
    assert (sample.lost, sample.kept, sample.kept_list, sample.tagged_number) == (0, 7, [], -1)


@pytest.mark.parametrize("version", [-1, 5, 99])
def test_a_version_that_a_message_does_not_have_is_refused(version: int) -> None:
    with pytest.raises(CodecError, match="no version"):
        decode(Sample, version, b"")
    with pytest.raises(CodecError, match="no version"):
        encode(Sample(), version)


# Tagged fields


def test_tagged_fields_at_their_defaults_are_left_out() -> None:
    assert encode(Sample(tagged_number=-1, tagged_inner=Inner(number=-1)), 2) == encode(Sample(), 2)


def test_tagged_fields_are_written_by_their_tags() -> None:
    data = encode(Sample(tagged_number=1, tagged_inner=Inner(number=2)), 2)
    assert data.endswith(bytes.fromhex("02  00 05 00000002 00  01 08 0000000000000001"))


def test_a_missing_tagged_struct_is_none() -> None:
    assert decode(Sample, 2, encode(Sample(tagged_number=3), 2)).tagged_inner is None


def test_unknown_tagged_fields_are_skipped() -> None:
    known = encode(Sample(tagged_number=5), 2)
    assert known[-11:-9] == b"\1\1"
    unknown = (
        known[:-11] + bytes.fromhex("03  00 05 00000009 00") + known[-10:] + bytes.fromhex("ff7f 02 abcd")
    )
    sample, pos = decoder(Sample, 2)(unknown, 0, len(unknown))
    assert (sample.tagged_number, sample.tagged_inner, pos) == (5, Inner(number=9), len(unknown))


def test_tagged_fields_of_a_struct_without_any_are_skipped() -> None:
    data = encode(Text(value="a"), 1)
    assert decode(Text, 1, data[:-1] + bytes.fromhex("02 00 01 ff 81ff03 00")).value == "a"


def test_a_tagged_field_larger_than_the_message_is_refused() -> None:
    for section in ("01 00 02 ff", "01 00 ffffffff0f ff", "ffffffff07", "02 00 00"):
        with pytest.raises(CodecError):
            decode(Text, 1, b"\2a" + bytes.fromhex(section))


def test_an_unknown_tagged_field_beside_known_ones_is_held_to_the_end_too() -> None:
    with pytest.raises(CodecError, match="tagged field"):
        decode(Sample, 2, encode(Sample(), 2)[:-1] + bytes.fromhex("01 05 02 ff"))


# Bounds


def test_bytes_after_the_message_are_ignored() -> None:
    assert decode(Text, 0, b"\0\1abc").value == "a"


def test_a_message_may_stand_anywhere_in_the_data() -> None:
    body = encode(Sample(text="x", ids=[1, 2], inners=[Inner()]), 3)
    data = b"??" + body + b"??"
    sample, pos = decoder(Sample, 3)(memoryview(data), 2, 2 + len(body))
    assert (sample.text, sample.ids, pos) == ("x", [1, 2], 2 + len(body))


def test_nothing_is_read_past_the_end_though_bytes_are_there() -> None:
    for version in range(5):
        body = encode(Sample(text="abc", maybe_text="d", ids=[1, 2], inners=[Inner()]), version)
        for end in range(len(body)):
            with pytest.raises(CodecError):
                decoder(Sample, version)(body + b"???", 0, end)


def test_an_end_past_the_data_is_refused() -> None:
    with pytest.raises(CodecError, match="missing"):
        decoder(Text, 0)(b"\0\1a", 0, 4)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_bytearrays_and_memoryviews_are_decoded_alike(kind: type[bytes]) -> None:
    data = encode(Sample(text="abc", ids=[1], inners=[Inner(number=4)]), 2)
    assert decode(Sample, 2, kind(data)) == decode(Sample, 2, data)


@pytest.mark.parametrize("count", [4, 2**31 - 1])
def test_a_count_that_cannot_fit_is_refused(count: int) -> None:
    with pytest.raises(CodecError, match="so many elements"):
        decode(Ids, 0, packing.pack(">i", count) + bytes(15))


# Values


@pytest.mark.parametrize("fields", [{"tiny": 128}, {"small": -32769}, {"tiny": None}, {"small": "1"}])
def test_a_number_out_of_range_or_none_at_all_cannot_be_encoded(fields: dict[str, object]) -> None:
    with pytest.raises(CodecError, match="Numbers v0"):
        encode(Numbers(**fields), 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, 15, 17])
def test_a_uuid_of_another_size_cannot_be_encoded(size: int) -> None:
    with pytest.raises(CodecError, match="no uuid"):
        encode(Numbers(topic_id=bytes(size)), 0)


# Bytes and records


def test_records_are_views_into_the_frame() -> None:
    frame = bytearray(encode(Batches(value=b"batch"), 1))
    message = decode(Batches, 1, frame)
    assert isinstance(message.value, memoryview)
    message.value[0:1] = b"c"
    assert b"catch" in frame


def test_bytes_are_copies() -> None:
    frame = bytearray(encode(Blob(value=b"bytes"), 1))
    message = decode(Blob, 1, memoryview(frame))
    frame[:] = bytes(len(frame))
    assert message.value == b"bytes"
    assert type(message.value) is bytes


@pytest.mark.parametrize("version", [0, 1])
def test_records_in_pieces_are_written_as_one(version: int) -> None:
    pieces = [b"first", memoryview(b"second"), bytearray(b"")]
    assert encode(Batches(value=pieces), version) == encode(Batches(value=b"firstsecond"), version)
    assert decode(Batches, version, encode(Batches(value=[]), version)).value == b""


def test_records_are_appended_to_the_chunks_uncopied() -> None:
    batch = memoryview(bytes(1000))
    chunks: list[bytes | bytearray | memoryview] = []
    encoder(Batches, 1)(Batches(value=[batch, batch]), chunks)
    encoder(Batches, 1)(Batches(value=batch), chunks)
    assert sum(chunk is batch for chunk in chunks) == 3


@pytest.mark.parametrize("size", [125, 126, 127, 128, 16382, 16383, 16384])
def test_compact_lengths_grow_where_seven_bits_end(size: int) -> None:
    for cls, value in ((Blob, bytes(size)), (Text, "x" * size), (Batches, bytes(size)), (Ids, [7] * size)):
        data = encode(cls(value=value), 1)
        message, pos = decoder(cls, 1)(data, 0, len(data))
        assert (message.value, pos) == (value, len(data))  # type: ignore[attr-defined]


def test_a_codec_is_compiled_once() -> None:
    assert decoder(Sample, 1) is decoder(Sample, 1)
    assert encoder(Sample, 1) is encoder(Sample, 1)
    assert decoder(Sample, 1) is not decoder(Sample, 2)

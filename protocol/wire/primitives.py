"""Varints, tagged fields that nobody knows, and the text form of uuids.

Fixed-width values are `struct`'s business; strings, arrays and the rest of a message are the compiled codecs'.
Source: KIP-482; org.apache.kafka.common.utils.ByteUtils and org.apache.kafka.common.Uuid.
"""

from __future__ import annotations

import binascii
from typing import Final

from protocol.errors import CodecError

Bytes = bytes | bytearray | memoryview

MAX_STRING_BYTES: Final = 32767
"""Longer strings have no form on the wire, compact ones neither."""

SHORT_UNSIGNED_VARINTS: Final = tuple(bytes((value,)) for value in range(0x80))
"""Those of one byte, each at its index."""


def encode_unsigned_varint(value: int) -> bytes:
    """`value` (0 to 2^32 - 1) in 1 to 5 bytes, the least significant 7 bits first."""
    if 0 <= value < 0x80:
        return SHORT_UNSIGNED_VARINTS[value]
    if not 0 <= value <= 0xFFFFFFFF:
        raise CodecError(f"{value} has no place in an unsigned varint")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


MOST_TAGGED_FIELDS: Final = 10_000
"""Of one section, as in Kafka from 4.4 on, where a negative number of them is no number, either."""


def read_unsigned_varint(data: Bytes, pos: int, end: int | None = None) -> tuple[int, int]:
    """The value at `pos`, and the position behind it. CodecError where it's cut short or too long."""
    if end is None:
        end = len(data)
    if pos < end and data[pos] < 0x80:
        return data[pos], pos + 1
    value = shift = 0
    last = min(pos + 5, end)
    while pos < last:
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            # Java shifts in 32 bits: what the fifth byte holds beyond falls away.
            return value & 0xFFFFFFFF, pos
        shift += 7
    raise CodecError(f"an unsigned varint that does not end within {shift // 7} bytes")


def skip_tagged_fields(data: Bytes, pos: int, end: int) -> int:
    """The position behind a section of tagged fields (KIP-482), whatever is in it."""
    count, pos = read_unsigned_varint(data, pos, end)
    if count > MOST_TAGGED_FIELDS:
        raise CodecError(f"{count} tagged fields in one section")
    for _ in range(count):
        _, pos = read_unsigned_varint(data, pos, end)
        size, pos = read_unsigned_varint(data, pos, end)
        pos += size
        if pos > end:
            raise CodecError(f"a tagged field of {size} bytes has no room")
    return pos


def uuid_to_text(uuid: Bytes) -> str:
    """Kafka's text form of a uuid: url-safe base64 without padding, 22 characters."""
    if len(uuid) != 16:
        raise CodecError(f"a uuid has 16 bytes, not {len(uuid)}")
    text = binascii.b2a_base64(uuid, newline=False)[:22]
    return text.translate(_URL_SAFE).decode("ascii")


def uuid_from_text(text: str) -> bytes:
    """The 16 bytes of a uuid in Kafka's text form; padding is accepted. ValueError where it is none."""
    try:
        plain = text.encode("ascii").translate(_FROM_URL_SAFE)
        uuid = binascii.a2b_base64(plain.rstrip(b"=") + b"==", strict_mode=True)
    except ValueError as error:
        raise ValueError(f"{text!r} is no uuid") from error
    if len(uuid) != 16:
        raise ValueError(f"{text!r} is no uuid: {len(uuid)} bytes")
    return uuid


_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")


# ---- zigzag varints, as they stand inside records: 7 bits a byte, the least first; 0, −1, 1, −2 … are 0, 1, 2, 3 …
#
# Read with the limits and the overflow of Java's ints, since Kafka judges records by them: an int takes at most 5
# bytes, a long 10, longer ones fail; bits beyond the 32nd or 64th fall away; needless leading zeros are fine.

_UINT32 = 0xFFFFFFFF
_UINT64 = 0xFFFFFFFFFFFFFFFF


class VarintTooLongError(ValueError):
    """A varint that goes on past its last possible byte."""


def append_varint(out: bytearray, value: int) -> None:
    """Appends an int or a long: both look alike in the range of an int."""
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)


def _encoded(value: int) -> bytes:
    encoded = bytearray()
    append_varint(encoded, value)
    return bytes(encoded)


SHORT_VARINTS = tuple(map(_encoded, range(256)))
"""The first ones by value: the sizes of most keys and values of the internal topics. Who writes many looks here first,
and is spared a call."""


def encode_varint(value: int) -> bytes:
    """An int or a long as bytes."""
    return SHORT_VARINTS[value] if 0 <= value < 256 else _encoded(value)


def read_varint(data: bytes | memoryview, pos: int) -> tuple[int, int]:
    """An int and the position behind it. Raises `IndexError` at the end of the data, `VarintTooLongError`."""
    byte = data[pos]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos + 1
    raw = byte & 0x7F
    for shift in (7, 14, 21, 28):
        pos += 1
        byte = data[pos]
        if byte < 0x80:
            raw = (raw | byte << shift) & _UINT32
            return (raw >> 1) ^ -(raw & 1), pos + 1
        raw |= (byte & 0x7F) << shift
    raise VarintTooLongError(f"a varint of more than 5 bytes at position {pos - 4}")


def read_varlong(data: bytes | memoryview, pos: int) -> tuple[int, int]:
    """A long and the position behind it. Raises `IndexError` at the end of the data, `VarintTooLongError`."""
    byte = data[pos]
    raw = byte & 0x7F
    shift = 7
    while byte > 0x7F:
        if shift > 63:
            raise VarintTooLongError(f"a varlong of more than 10 bytes before position {pos + 1}")
        pos += 1
        byte = data[pos]
        raw |= (byte & 0x7F) << shift
        shift += 7
    raw &= _UINT64
    return (raw >> 1) ^ -(raw & 1), pos + 1


def to_int64(value: int) -> int:
    """What Java's long makes of it: modulo 2⁶⁴, signed."""
    return (value + (1 << 63) & _UINT64) - (1 << 63)

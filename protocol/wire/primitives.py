"""Varints, unknown tagged fields, and the text form of uuids.

`struct` handles values of fixed width. The compiled codecs handle strings, arrays and the rest of a message.
Source: KIP-482; org.apache.kafka.common.utils.ByteUtils and org.apache.kafka.common.Uuid.
"""

from __future__ import annotations

import binascii
from typing import Final

from protocol.errors import CodecError

Bytes = bytes | bytearray | memoryview

MAX_STRING_BYTES: Final = 32767
"""Longer strings can't be encoded, not even compact ones."""

SHORT_UNSIGNED_VARINTS: Final = tuple(bytes((value,)) for value in range(0x80))
"""The varints of one byte, each at its index."""


def encode_unsigned_varint(value: int) -> bytes:
    """Encode `value` (0 to 2^32 - 1) in 1 to 5 bytes, the least significant 7 bits first."""
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
"""The most tagged fields in one section, as in Kafka from 4.4 on, which refuses a negative number as well."""


def read_unsigned_varint(data: Bytes, pos: int, end: int | None = None) -> tuple[int, int]:
    """Return the value at `pos` and the position after it. Raises CodecError if it is cut short or too long."""
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
            # Java shifts in 32 bits: higher bits in the fifth byte are lost.
            return value & 0xFFFFFFFF, pos
        shift += 7
    raise CodecError(f"an unsigned varint that does not end within {shift // 7} bytes")


def skip_tagged_fields(data: Bytes, pos: int, end: int) -> int:
    """Return the position after a section of tagged fields (KIP-482), whatever is in it."""
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
    """Return Kafka's text form of a uuid: url-safe base64 without padding, 22 characters."""
    if len(uuid) != 16:
        raise CodecError(f"a uuid has 16 bytes, not {len(uuid)}")
    text = binascii.b2a_base64(uuid, newline=False)[:22]
    return text.translate(_URL_SAFE).decode("ascii")


def uuid_from_text(text: str) -> bytes:
    """Parse a uuid in Kafka's text form; padding is accepted. Raises ValueError if it isn't one."""
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


# ---- zigzag varints, as in records: 7 bits a byte, the least significant first; 0, −1, 1, −2 … are 0, 1, 2, 3 …
#
# They are read with the limits and the overflow of Java's integers, since Kafka judges records by them. An
# int takes at most 5 bytes, a long 10; longer ones fail. Bits beyond the 32nd or 64th are dropped. Needless
# leading zeros are fine.

_UINT32 = 0xFFFFFFFF
_UINT64 = 0xFFFFFFFFFFFFFFFF


class VarintTooLongError(ValueError):
    """A varint that continues after its last possible byte."""


def append_varint(out: bytearray, value: int) -> None:
    """Append an int or a long: in the range of an int both look the same."""
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
"""The first varints by value: the sizes of most keys and values of the internal topics. Writers of many
varints look here first, which saves a call."""


def encode_varint(value: int) -> bytes:
    """Encode an int or a long."""
    return SHORT_VARINTS[value] if 0 <= value < 256 else _encoded(value)


def read_varint(data: bytes | memoryview, pos: int) -> tuple[int, int]:
    """Return an int and the position after it. Raises `IndexError` at the end of the data, `VarintTooLongError`."""
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
    """Return a long and the position after it. Raises `IndexError` at the end of the data, `VarintTooLongError`."""
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
    """Convert to Java's long: modulo 2⁶⁴, signed."""
    return (value + (1 << 63) & _UINT64) - (1 << 63)

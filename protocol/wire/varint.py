"""Zigzag varints, as they stand inside records: 7 bits a byte, the least first; 0, −1, 1, −2 … are 0, 1, 2, 3 …

Read with the limits and the overflow of Java's ints, since Kafka judges records by them: an int takes at most
5 bytes, a long 10, longer ones fail; bits beyond the 32nd or 64th fall away; needless leading zeros are fine.
Source: org.apache.kafka.common.utils.ByteUtils.
"""

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

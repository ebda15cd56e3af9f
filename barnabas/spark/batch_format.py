"""The bytes of a record batch (magic 2, Kafka's DefaultRecordBatch): positions of its fields, and its records'
varints."""

from __future__ import annotations

import struct
from typing import NamedTuple

HEADER = struct.Struct(">qiibIhiqqqhii")
LENGTH_END = 12  # a batch's length field counts from here
MAGIC_AT = 16  # also in the formats before magic 2
CRC_AT = 17
ATTRIBUTES_AT = 21
PRODUCER_AT = 43
MAGIC = 2
TRANSACTIONAL, CONTROL = 0x10, 0x20  # bits of the attributes


class Header(NamedTuple):
    """The fields of a batch before its records, in their order (magic 2)."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


def read_header(data: bytes, at: int) -> Header:
    """Return the header of the batch at this position."""
    return Header._make(HEADER.unpack_from(data, at))


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the zigzag varint at this position, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7

"""Damage in a segment: why there is no valid batch, and where valid ones continue."""

from __future__ import annotations

from protocol.records.batch import (
    ATTRIBUTES_POS,
    BATCH_OVERHEAD,
    HEADER_SIZE_UP_TO_MAGIC,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POS,
    crc32c,
    crc_is_valid,
    read_header,
)
from storage.log.segment import Segment

_WINDOW_BYTES = 1 << 20
_FARTHEST = 2**31 - 1
"""In offsets, two batches of one segment are at most this far apart."""


def what_is_wrong(segment: Segment, position: int, due: int) -> str:
    """Return what is wrong with the bytes at the position, where offset `due` should be. Raises OSError."""
    left = segment.size - position
    head = segment.files.read(segment.log, BATCH_OVERHEAD, position)
    if len(head) < BATCH_OVERHEAD:
        return f"{left} bytes are too few for a batch"
    if not any(head):
        return "zeros"
    header = read_header(head)
    if header.magic != MAGIC:
        return f"the format's number, at byte {position + MAGIC_POS}, is {header.magic} instead of {MAGIC}"
    if header.size_bytes < BATCH_OVERHEAD or header.size_bytes > left:
        return f"a batch of {header.size_bytes:,} bytes, as its length says, where {left:,} are left"
    batch = segment.files.read(segment.log, header.size_bytes, position)
    crc = crc32c(batch[ATTRIBUTES_POS:])
    if crc != header.crc:
        return f"its checksum says {header.crc}, and its bytes have {crc}"
    if header.base_offset < due:
        return f"it begins with offset {header.base_offset} instead of {due}"
    return f"it says offsets {header.base_offset}–{header.last_offset}"


def next_whole_batch(segment: Segment, position: int, due: int) -> tuple[int, int] | None:
    """Return position and base offset of the first whole batch after this, or None. Raises OSError."""
    sign = bytes([MAGIC])
    at = position + 1
    while segment.size - at >= BATCH_OVERHEAD:
        window = segment.files.read(segment.log, _WINDOW_BYTES, at)
        if len(window) < BATCH_OVERHEAD:
            return None
        magic = window.find(sign, MAGIC_POS)
        while 0 <= magic <= len(window) - BATCH_OVERHEAD + MAGIC_POS:
            begin = magic - MAGIC_POS
            header = read_header(window, begin)
            if (
                due <= header.base_offset <= segment.base_offset + _FARTHEST
                and header.last_offset_delta >= 0
                and HEADER_SIZE_UP_TO_MAGIC < header.batch_length + LOG_OVERHEAD <= segment.size - at - begin
            ):
                batch = segment.files.read(segment.log, header.size_bytes, at + begin)
                if len(batch) == header.size_bytes >= BATCH_OVERHEAD and crc_is_valid(batch, 0, len(batch)):
                    return at + begin, header.base_offset
            magic = window.find(sign, magic + 1)
        at += max(len(window) - BATCH_OVERHEAD + 1, 1)
    return None

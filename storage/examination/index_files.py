"""A segment's indexes, entry by entry, held against the batches of the segment.

They have no checksum. What an entry says is true where a batch says the same; that entries are missing, nobody can
tell but from the last one of a time index, which says the segment's largest timestamp.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from storage.indexes.preallocated import used_bytes

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
TXN_ENTRY = Struct(">hqqqq")


class Walked(NamedTuple):
    """What a segment's batches say."""

    last_offsets: dict[int, int]
    """By position."""
    markers: dict[int, tuple[int, int]]
    """By its offset the producer of each transaction marker, and where that one's transaction has its first batch of
    those that are left; -1 where it has none."""
    aborted: int
    """How many transactions with batches are aborted in it. (A marker may end one that wrote nothing here.)"""
    gap: tuple[int, int, int] | None
    """The first batch that doesn't follow upon the one before: its position, the offset that was due, its own."""
    batches: int
    epochs: list[tuple[int, int]]
    """(leader epoch, the first batch's base offset), each time that it changes."""
    is_open: bool
    """It is the last segment, and the run ended without a stop: its indexes needn't be up to date, and may have the
    room that Kafka makes in advance."""
    max_timestamp_ms: int
    first_offset: int
    end_offset: int
    end: int


class IndexEntry(NamedTuple):
    """One entry, and what is wrong with it."""

    number: int
    position: int
    values: tuple[int, ...]
    wrong: str
    """"" where it is what the batches say."""

    @property
    def told(self) -> str:
        return f"entry {self.number}, at byte {self.position}: {self.wrong}"


def offset_entries(data: bytes, base: int, walked: Walked) -> Iterator[IndexEntry]:
    """Of an `.index`: (offset, position)."""
    previous = 0
    for number, (relative, position) in enumerate(OFFSET_ENTRY.iter_unpack(used(data, OFFSET_ENTRY))):
        offset = base + relative
        last_offset = walked.last_offsets.get(position)
        wrong = ""
        if last_offset is None:
            wrong = f"no batch begins at position {position}"
        elif last_offset != offset:
            wrong = f"the batch at position {position} ends at offset {last_offset}, and not at {offset}"
        elif number and position <= previous:
            wrong = f"position {position} comes behind {previous}"
        previous = position
        yield IndexEntry(number, number * OFFSET_ENTRY.size, (offset, position), wrong)


def time_entries(data: bytes, base: int, walked: Walked) -> Iterator[IndexEntry]:
    """Of a `.timeindex`: (timestamp in ms, offset)."""
    offsets = set(walked.last_offsets.values())
    previous = -1
    for number, (timestamp_ms, relative) in enumerate(TIME_ENTRY.iter_unpack(used(data, TIME_ENTRY))):
        wrong = ""
        if base + relative not in offsets:
            wrong = f"no batch ends at offset {base + relative}"
        elif timestamp_ms <= previous:
            wrong = f"timestamp {timestamp_ms} comes behind {previous}"
        elif timestamp_ms > walked.max_timestamp_ms:
            wrong = f"timestamp {timestamp_ms}, and the largest of all batches is {walked.max_timestamp_ms}"
        previous = timestamp_ms
        yield IndexEntry(number, number * TIME_ENTRY.size, (timestamp_ms, base + relative), wrong)


def txn_entries(data: bytes, base: int, walked: Walked) -> Iterator[IndexEntry]:
    """Of a `.txnindex`: (producer id, first offset, last offset, last stable offset)."""
    previous = base - 1
    whole = data[: len(data) // TXN_ENTRY.size * TXN_ENTRY.size]
    for number, (version, *values) in enumerate(TXN_ENTRY.iter_unpack(whole)):
        producer_id, first, last, stable = values
        wrong = ""
        of_marker, began = walked.markers.get(last, (None, -1))
        if version:
            wrong = f"version {version}"
        elif of_marker != producer_id:
            wrong = f"no marker of producer {producer_id} is at offset {last}"
        elif last <= previous:
            wrong = f"marker {last} comes behind {previous}"
        elif not 0 <= first < last:
            wrong = f"a transaction from offset {first} to {last}"
        elif 0 <= began < first:
            wrong = f"a transaction from offset {first} on, and its first batch is at {began}"
        elif stable > last + 1:
            wrong = f"the last stable offset {stable} behind the marker at {last}"
        previous = last
        yield IndexEntry(number, number * TXN_ENTRY.size, tuple(values), wrong)


def used(data: bytes, entry: Struct) -> bytes:
    """Without the zeros that Kafka leaves behind the entries where it was killed; whole entries."""
    entries = -(-used_bytes(data) // entry.size)
    return data[: min(entries, len(data) // entry.size) * entry.size]


def wrong_with_offset_index(data: bytes, base: int, walked: Walked) -> str:
    """The first thing, "" where there is none."""
    return _first(offset_entries(data, base, walked)) or _wrong_end(data, OFFSET_ENTRY, walked)


def wrong_with_time_index(data: bytes, base: int, walked: Walked) -> str:
    """The first thing, "" where there is none."""
    told = _first(time_entries(data, base, walked)) or _wrong_end(data, TIME_ENTRY, walked)
    if told or walked.is_open or walked.max_timestamp_ms < 0:
        return told
    whole = used(data, TIME_ENTRY)
    said = TIME_ENTRY.unpack_from(whole, len(whole) - TIME_ENTRY.size)[0] if whole else None
    if said == walked.max_timestamp_ms:
        return ""
    what = "it has no entry" if said is None else f"its last entry says timestamp {said}"
    return f"{what}, and the largest of all batches is {walked.max_timestamp_ms}"


def wrong_with_txn_index(data: bytes, base: int, walked: Walked) -> str:
    """The first thing, "" where there is none."""
    told = _first(txn_entries(data, base, walked))
    if told:
        return told
    if len(data) % TXN_ENTRY.size:
        return f"{len(data)} bytes are no whole entries of {TXN_ENTRY.size}"
    count = len(data) // TXN_ENTRY.size
    if count < walked.aborted:
        return f"{count} entries, and {walked.aborted} transactions are aborted in the segment"
    return ""


def _first(entries: Iterator[IndexEntry]) -> str:
    return next((entry.told for entry in entries if entry.wrong), "")


def _wrong_end(data: bytes, entry: Struct, walked: Walked) -> str:
    if len(data) % entry.size:
        return f"{len(data)} bytes are no whole entries of {entry.size}"
    zeros = len(data) - len(used(data, entry))
    if zeros and not walked.is_open:
        return f"{zeros} bytes of zeros from byte {len(data) - zeros} on are no entries"
    return ""

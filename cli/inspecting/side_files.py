"""Files beside a segment: indexes, compared with its batches, and the producers of a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct

from cli.inspecting.entry import Entry
from cli.inspecting.place import FILES, Place
from cli.inspecting.values import time_of
from storage import producer_snapshot
from storage.file_examination import (
    OFFSET_ENTRY,
    READ_FAILURES,
    TIME_ENTRY,
    TXN_ENTRY,
    IndexEntry,
    Walked,
    offset_entries,
    time_entries,
    told_of,
    txn_entries,
    used,
    walk_segment,
    wrong_with_offset_index,
    wrong_with_time_index,
    wrong_with_txn_index,
)
from storage.producer_snapshot import CorruptSnapshotError

_Entries = Callable[[bytes, int, Walked], Iterator[IndexEntry]]
_Check = Callable[[bytes, int, Walked], str]


def offset_index(place: Place) -> Iterator[Entry]:
    """Yield the lines of an `.index`."""
    return _index(place, OFFSET_ENTRY, offset_entries, wrong_with_offset_index, _of_offset)


def time_index(place: Place) -> Iterator[Entry]:
    """Yield the lines of a `.timeindex`."""
    return _index(place, TIME_ENTRY, time_entries, wrong_with_time_index, _of_time)


def txn_index(place: Place) -> Iterator[Entry]:
    """Yield the lines of a `.txnindex`."""
    return _index(place, TXN_ENTRY, txn_entries, wrong_with_txn_index, _of_txn)


def _index(
    place: Place,
    layout: Struct,
    read: _Entries,
    check: _Check,
    shown: Callable[[Place, tuple[int, ...]], tuple[dict[str, object], str, str]],
) -> Iterator[Entry]:
    try:
        data = FILES.read_whole(place.path)
    except OSError as failure:
        yield Entry("damage", {}, place.name, wrong=told_of(failure))
        return
    walked, why_not = _batches_beside(place)
    known = walked or Walked({}, {}, 0, None, 0, [], True, -1, place.base, place.base, 0)
    count = 0
    for entry in read(data, place.base, known):
        fields, text, why = shown(place, entry.values)
        count += 1
        yield Entry(
            "entry",
            {"entry": entry.number, "byte": entry.position, **fields},
            f"{entry.number}  at byte {entry.position}  {text}",
            why,
            entry.wrong if walked else "",
        )
    room = len(data) - count * layout.size
    wrong = check(data, place.base, known) if walked else ""
    if room % layout.size and not wrong:
        wrong = f"{len(data)} bytes aren't whole entries of {layout.size}"
    text = f"{count:,} entries, {len(data):,} bytes"
    if layout is not TXN_ENTRY and len(data) != len(used(data, layout)):
        text += f", {room:,} of them zeros: space that Kafka reserves in advance"
    fields = {"entries": count, "bytes": len(data), "batches_looked_at": walked is not None}
    yield Entry("end", fields, text, why_not or "each entry compared with the batches of its segment", wrong)


def _batches_beside(place: Place) -> tuple[Walked | None, str]:
    is_open = place.following is None and not place.looked_at.clean
    try:
        walked, _size = walk_segment(FILES, place.directory, place.base, {}, is_open=is_open)
    except READ_FAILURES as failure:
        return None, f"not compared with the batches: {place.base:020d}.log: {told_of(failure)}"
    return walked, ""


def _of_offset(place: Place, values: tuple[int, ...]) -> tuple[dict[str, object], str, str]:
    offset, position = values
    return {"offset": offset, "position": position}, f"offset {offset}  position {position}", ""


def _of_time(place: Place, values: tuple[int, ...]) -> tuple[dict[str, object], str, str]:
    timestamp, offset = values
    text = f"{time_of(timestamp)} ({timestamp})  offset {offset}"
    return {"timestamp": timestamp, "offset": offset}, text, ""


def _of_txn(place: Place, values: tuple[int, ...]) -> tuple[dict[str, object], str, str]:
    producer, first, last, stable = values
    fields: dict[str, object] = {
        "producer_id": producer,
        "first_offset": first,
        "last_offset": last,
        "last_stable_offset": stable,
    }
    text = f"producer {producer}  offsets {first}–{last}  last stable {stable}"
    return fields, text, f"aborted: {place.producer(producer)}, by the marker at {last}"


def snapshot(place: Place) -> Iterator[Entry]:
    """Yield the producers of a `.snapshot`."""
    try:
        producers = producer_snapshot.decode(FILES.read_whole(place.path))
    except (CorruptSnapshotError, OSError) as failure:
        todo = "a start ignores it, and reads the batches"
        yield Entry("damage", {}, place.name, wrong=f"{told_of(failure)}; {todo}")
        return
    for each in producers:
        last = each.batches[-1] if each.batches else None
        fields: dict[str, object] = {
            "producer_id": each.producer_id,
            "producer_epoch": each.epoch,
            "coordinator_epoch": each.coordinator_epoch,
            "last_timestamp": each.last_timestamp_ms,
            "last_sequence": each.last_sequence,
            "last_offset": each.last_data_offset,
            "offset_delta": last.last_offset - last.first_offset if last else 0,
            "current_txn_first_offset": each.txn_first_offset,
        }
        text = (
            f"producer {each.producer_id}/{each.epoch}  seq {each.last_sequence}  offset {each.last_data_offset}"
            f"  {time_of(each.last_timestamp_ms)}  coordinator epoch {each.coordinator_epoch}"
        )
        why = ""
        if each.txn_first_offset >= 0:
            text += f"  in a transaction since offset {each.txn_first_offset}"
            why = f"{place.producer(each.producer_id)} holds the last stable offset back, at {each.txn_first_offset}"
        beyond = each.last_data_offset >= place.base
        wrong = f"offset {each.last_data_offset} is greater than the file's name" if beyond else ""
        yield Entry("producer", fields, text, why, wrong)
    yield Entry(
        "end",
        {"producers": len(producers), "offset": place.base},
        f"{len(producers):,} producers in their state at offset {place.base}; its checksum is right",
    )

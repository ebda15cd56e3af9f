"""A segment, or a metadata snapshot: its batches and their records, read from the file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cli.formats import to_json
from cli.inspecting.decoding import UndecodedError, control, decoded, decoder_of
from cli.inspecting.entry import Entry
from cli.inspecting.place import FILES, Place, names_in, segment_at
from cli.inspecting.values import shown, shown_fields, time_of
from cli.inspecting.wrong_batches import next_whole_batch, what_is_wrong
from protocol.records.batch import (
    DELETE_HORIZON_BIT,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    Record,
    read_records,
)
from protocol.records.compression import CodecUnavailableError
from storage import producer_snapshot
from storage.file_examination import READ_FAILURES, UNREADABLE_RECORDS, told_of
from storage.files import SNAPSHOT_SUFFIX, file_path
from storage.log.segment import Segment
from storage.log.segment_recovery import valid_batches
from storage.producer_snapshot import CorruptSnapshotError

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Asked(NamedTuple):
    """The part of a file to show."""

    records: bool = False
    offset: int = 0
    """Batches that end before this offset are skipped."""


class _Open:
    """The open transactions while the batches pass: where each began, and its records so far."""

    def __init__(self, place: Place) -> None:
        self.began: dict[int, int] = {}
        self.counts: dict[int, int] = {}
        self.knows_before = place.base == 0
        name = f"{place.base:020d}{SNAPSHOT_SUFFIX}"
        if name in names_in(place.directory):
            try:
                path = file_path(place.directory, place.base, SNAPSHOT_SUFFIX)
                producers = producer_snapshot.decode(FILES.read_whole(path))
            except (CorruptSnapshotError, OSError):
                return
            self.knows_before = True
            self.began = {
                each.producer_id: each.txn_first_offset for each in producers if each.txn_first_offset >= 0
            }


def entries(place: Place, asked: Asked) -> Iterator[Entry]:
    """Yield a line for each batch, and for errors between batches. It holds only a window of the file."""
    try:
        segment = segment_at(place.directory, place.base, place.path)
    except OSError as failure:
        yield Entry("damage", {}, place.path, wrong=told_of(failure))
        return
    transactions = _Open(place)
    tally = [0, 0]
    position, due = 0, place.base
    try:
        while True:
            try:
                for at, header, batch in valid_batches(segment, position, due):
                    if header.last_offset >= asked.offset:
                        yield from _batch(place, transactions, at, header, batch, due, asked)
                    else:
                        _follow(transactions, header)
                    tally[0] += 1
                    tally[1] += max(header.records_count, 0)
                    due = header.last_offset + 1
                    position = at + header.size_bytes
            except READ_FAILURES:
                pass
            if position >= segment.size:
                break
            found = next_whole_batch(segment, position, due)
            yield _damage(place, segment, position, due, found)
            if found is None:
                break
            position, due = found
    except OSError as failure:
        yield Entry("damage", {"position": position}, f"position {position}", wrong=told_of(failure))
    finally:
        segment.close()
    yield _summary(place, transactions, tally, due, segment.size)


def _batch(
    place: Place,
    transactions: _Open,
    position: int,
    header: BatchHeader,
    batch: memoryview,
    due: int,
    asked: Asked,
) -> Iterator[Entry]:
    fields = _fields(position, header)
    wrong = unread = ""
    records: list[Record] = []
    if asked.records or header.is_control:
        try:
            records = read_records(batch)
        except CodecUnavailableError:
            fields["unread"] = unread = (
                f"its records, packed with {_codec(header)}, need cramjam: pip install 'barnabas[compression]'"
            )
        except UNREADABLE_RECORDS as failure:
            wrong = f"its checksum is right, but its records can't be read: {failure}"
    why = _why(place, transactions, header, records)
    if unread:
        why = f"{why}; {unread}" if why else unread
    if header.base_offset > due and due != place.base:
        fields["gap"] = [due, header.base_offset - 1]
        gap = f"offsets {due}–{header.base_offset - 1} aren't there: compacted, or lost"
        why = f"{why}; {gap}" if why else gap
    yield Entry("batch", fields, _words(position, header), why, wrong)
    if asked.records:
        for record in records:
            if record.offset >= asked.offset:
                yield _record(place, header, record)


def _codec(header: BatchHeader) -> str:
    return CODECS[header.compression] if header.compression < len(CODECS) else str(header.compression)


def _timestamp_type(header: BatchHeader) -> str:
    return "append" if header.attributes & TIMESTAMP_TYPE_BIT else "create"


def _fields(position: int, header: BatchHeader) -> dict[str, object]:
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.records_count,
        "position": position,
        "size": header.size_bytes,
        "partition_leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "codec": _codec(header),
        "timestamp_type": _timestamp_type(header),
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "crc": header.crc,
        "crc_ok": True,
        "magic": header.magic,
        "delete_horizon": header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None,
    }


def _words(position: int, header: BatchHeader) -> str:
    words = [
        f"{header.base_offset}–{header.last_offset}",
        f"at {position}",
        f"{header.size_bytes:,} bytes",
        f"{header.records_count:,} records" if header.records_count != 1 else "1 record",
        f"epoch {header.partition_leader_epoch}",
        f"{time_of(header.max_timestamp)} {_timestamp_type(header)}",
    ]
    if header.compression:
        words.append(_codec(header))
    if header.producer_id >= 0:
        sequences = f" seq {header.base_sequence}–{header.last_sequence}" if header.base_sequence >= 0 else ""
        words.append(f"producer {header.producer_id}/{header.producer_epoch}{sequences}")
    if header.is_transactional:
        words.append("transactional")
    if header.is_control:
        words.append("control")
    return "  ".join(words)


def _follow(transactions: _Open, header: BatchHeader) -> int | None:
    """Return where the batch's transaction began, or None if unknown. A marker ends it."""
    producer = header.producer_id
    if header.is_control:
        transactions.counts.pop(producer, None)
        return transactions.began.pop(producer, None)
    if header.is_transactional:
        transactions.began.setdefault(producer, header.base_offset)
        transactions.counts[producer] = transactions.counts.get(producer, 0) + header.records_count
    return transactions.began.get(producer)


def _why(place: Place, transactions: _Open, header: BatchHeader, records: list[Record]) -> str:
    """Return which transaction the batch belongs to, begins or ends."""
    count = transactions.counts.get(header.producer_id, 0)
    began = _follow(transactions, header)
    if not header.is_transactional:
        return _control_words(records) if header.is_control else ""
    who = place.producer(header.producer_id)
    if not header.is_control:
        if began == header.base_offset:
            return f"begins a transaction of {who}"
        return f"of the transaction of {who} that began at {began}"
    if not records:
        return f"a marker of {who} that compaction has emptied"
    ends = "commits" if _control_words(records).startswith("COMMIT") else "aborts"
    if began is not None:
        of_it = f", {count:,} records of this segment" if count else ""
        return f"{ends} the transaction of {who} that began at {began}{of_it}"
    if transactions.knows_before:
        return f"{ends} a transaction of {who} that wrote nothing here, or whose records compaction took"
    return f"{ends} a transaction of {who} that began before this segment"


def _control_words(records: list[Record]) -> str:
    words = []
    for record in records:
        try:
            words.append(control(record).type)
        except UndecodedError as error:
            words.append(str(error))
    return ", ".join(words)


def _record(place: Place, header: BatchHeader, record: Record) -> Entry:
    fields: dict[str, object] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "sequence": record.sequence,
        "key_size": -1 if record.key is None else len(record.key),
        "value_size": -1 if record.value is None else len(record.value),
        "headers": [[to_json(name), to_json(value)] for name, value in record.headers],
    }
    head = f"    {record.offset}  {time_of(record.timestamp)}"
    decoder = decoder_of(place.topic)
    if header.is_control or decoder is not None:
        try:
            said = control(record) if header.is_control or decoder is None else decoded(decoder, record)
        except UndecodedError as error:
            fields |= {"key": to_json(record.key), "value": to_json(record.value)}
            return Entry("record", fields, head, wrong=str(error))
        fields |= {"type": said.type, "says": said.value}
        return Entry("record", fields, f"{head}  {said.type} {shown_fields(said.value)}")
    fields |= {"key": to_json(record.key), "value": to_json(record.value)}
    text = f"{head}  {shown(record.key)} = {shown(record.value)}"
    if record.headers:
        text += "  " + ", ".join(f"{shown(name)}: {shown(value)}" for name, value in record.headers)
    return Entry("record", fields, text)


def _damage(place: Place, segment: Segment, position: int, due: int, found: tuple[int, int] | None) -> Entry:
    reason = what_is_wrong(segment, position, due)
    end = segment.size if found is None else found[0]
    fields: dict[str, object] = {
        "position": position,
        "offset": due,
        "bytes": end - position,
        "reason": reason,
        "next_position": None if found is None else found[0],
        "next_offset": None if found is None else found[1],
    }
    goes_on = (
        "no whole batch follows" if found is None else f"whole batches go on at {found[0]}, offset {found[1]}"
    )
    fields["start"] = start = _what_a_start_does(place, position, due)
    wrong = f"{reason}; {goes_on}; {start}"
    return Entry(
        "damage", fields, f"{due}  at {position}  {end - position:,} bytes are no whole batch", "", wrong
    )


def _what_a_start_does(place: Place, position: int, due: int) -> str:
    if place.name.endswith(".checkpoint"):
        return "a start takes the snapshot before, if there is one"
    if place.partition[0] == "__cluster_metadata":
        return (
            "a start is refused, unless it is the torn end of a run that was killed (Kafka cuts the log here)"
        )
    point = place.looked_at.recovery_points.get(place.partition, 0)
    if place.looked_at.clean:
        return "after a clean stop a start doesn't look here: whoever reads it is told CORRUPT_MESSAGE"
    if place.following is not None and place.following <= point:
        return (
            f"a start doesn't look here, below the recovery point {point}: readers are told CORRUPT_MESSAGE"
        )
    more = ", and drops the segments behind it" if place.following is not None else ""
    return f"a start cuts the segment at {position}{more}: offsets from {due} on are gone then"


def _summary(place: Place, transactions: _Open, tally: list[int], end_offset: int, size: int) -> Entry:
    open_ones = [
        {
            "producer_id": producer,
            "first_offset": began,
            "transactional_id": place.transactional_ids.get(producer),
        }
        for producer, began in sorted(transactions.began.items(), key=lambda each: each[1])
    ]
    fields: dict[str, object] = {
        "batches": tally[0],
        "records": tally[1],
        "bytes": size,
        "end_offset": end_offset,
        "open_transactions": open_ones,
    }
    text = f"{tally[0]:,} batches, {tally[1]:,} records, {size:,} bytes; the next offset is {end_offset}"
    why = "; ".join(
        f"open at its end: {place.producer(producer)} since offset {began}"
        for producer, began in sorted(transactions.began.items(), key=lambda each: each[1])
    )
    return Entry("end", fields, text, why)

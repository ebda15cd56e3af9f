"""A partition's records for the page, and the decoded records of internal topics."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from typing import Any, Final

from cli.client.offsets import Partition
from cli.console.pieces import ReadPiece, readable, walk
from cli.inspecting.decoding import UndecodedError, control, decoded, decoder_of
from protocol.records.batch import UNREADABLE, Record, parse_from, read_payload
from protocol.records.fates import COMMITTED, WalkedBatch

MOST_RECORDS: Final = 200
MOST_BATCHES: Final = 2_000
MOST_VALUE_BYTES: Final = 32 * 1024
"""The largest key or value in bytes. Longer ones are cut, and their size is given."""
MOST_HEADERS: Final = 100
MOST_HEADER_BYTES: Final = 1024
"""The most bytes of a header's name, and of its value."""
PAGE_BYTES: Final = 2 * 1024 * 1024
SEARCHED_BYTES: Final = 16 * 1024 * 1024
MAX_READ_S: Final = 1.0
"""The time limit for reading the records of walked batches. After it, the page says how far it came."""


def page_of_records(
    read: ReadPiece, partition: Partition, offset: int, most: int, *, key: str | None = None, committed: bool
) -> dict[str, Any]:
    """Return at most `most` records from the offset on. With `key`, return only records with this key. With
    `committed`, leave out records of open and aborted transactions. `next` is the offset to go on from."""
    most = max(1, min(most, MOST_RECORDS))
    if key:
        seen = walk(read, partition, offset, MOST_BATCHES, SEARCHED_BYTES)
    else:
        seen = walk(read, partition, offset, most, PAGE_BYTES, max_records=None if committed else most)
    found: list[dict[str, Any]] = []
    following = seen.next
    deadline_s = time.monotonic() + MAX_READ_S
    for batch in seen.batches:
        if time.monotonic() > deadline_s:
            following = batch.header.base_offset
            break
        if committed and (batch.header.is_control or batch.fate not in ("", COMMITTED)):
            continue
        for document in documents_of(partition[0], batch, offset, key):
            if len(found) == most:
                following = document["offset"]
                break
            found.append(document)
        else:
            continue
        break
    return {"start": seen.start, "stable": seen.stable, "end": seen.end, "next": following, "records": found}


def documents_of(
    topic: str, batch: WalkedBatch, offset: int = 0, key: str | None = None
) -> Iterator[dict[str, Any]]:
    """Yield a document for each record of a batch from the offset on, or one that says why they can't be read."""
    base = {
        "batch": batch.header.base_offset,
        "producer": batch.header.producer_id,
        "fate": batch.fate,
        "kind": batch.kind,
    }
    wanted = None if key is None else key.encode()
    following = max(offset, batch.header.base_offset)
    try:
        header, payload = read_payload(batch.data)
        if wanted is not None and wanted not in payload:
            return  # skips most batches of a long log, a hundred times as fast
        for record in parse_from(header, payload, offset):
            following = record.offset + 1
            if wanted is None or record.key == wanted:
                yield {**base, **document_of_record(topic, record, is_control=header.is_control)}
    except UNREADABLE as error:
        if wanted is None:
            yield {**base, "offset": following, "time": batch.header.max_timestamp, "unread": str(error)}


def document_of_record(topic: str, record: Record, *, is_control: bool) -> dict[str, Any]:
    """Return the record for the page. Bytes are in base64, and cut if they are long."""
    document: dict[str, Any] = {
        "offset": record.offset,
        "time": record.timestamp,
        "key": _bytes(record.key),
        "value": _bytes(record.value),
        "headers": [
            [name[:MOST_HEADER_BYTES].decode(errors="replace"), _bytes(value, MOST_HEADER_BYTES)]
            for name, value in record.headers[:MOST_HEADERS]
        ],
    }
    decoder = decoder_of(topic)
    if is_control or decoder is not None:
        try:
            said = control(record) if is_control or decoder is None else decoded(decoder, record)
            document |= {"type": said.type, "says": said.value}
        except UndecodedError as error:
            document["wrong"] = str(error)
    return document


def _bytes(data: bytes | None, most: int = MOST_VALUE_BYTES) -> dict[str, Any] | None:
    if data is None:
        return None
    shown = bytes(data[:most])
    return {"base64": base64.b64encode(shown).decode(), "size": len(data)}


def history_of_group(read: ReadPiece, partition: Partition, name: str, offset: int) -> list[dict[str, Any]]:
    """Return what the records of `__consumer_offsets` from the offset on say about a group, except its offsets:
    members, epochs and assignments, the newest last."""
    decoder = decoder_of(partition[0])
    assert decoder is not None
    found: list[dict[str, Any]] = []
    seen = walk(read, partition, offset, MOST_BATCHES, SEARCHED_BYTES)
    plain = (each for each in seen.batches if not each.header.is_control and not each.header.is_transactional)
    for _, records in readable(plain):
        for record in records:
            if name.encode() not in (record.key or b""):
                continue
            try:
                said = decoded(decoder, record)
            except UndecodedError:
                continue
            fields = said.value if isinstance(said.value, dict) else {}
            of_it = fields.get("group", fields.get("group_id"))
            if said.type != "OffsetCommit" and of_it == name:
                place = [partition[1], record.offset]
                found.append({"at": record.timestamp, "type": said.type, "says": said.value, "place": place})
    return found[-MOST_RECORDS:]

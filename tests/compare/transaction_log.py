"""`__transaction_state`: its records as a script finds them, and records that a script puts there."""

from __future__ import annotations

import struct
from typing import Any

from protocol.messages.transactions import TransactionLogKey, TransactionLogValue
from protocol.records.batch import read_records
from protocol.wire.codec import decode, encode

from .batches import batch, record
from .mask_actions import moment
from .plain import message_from, plain
from .play import Play
from .requests import UNKNOWN_ID, fetch, list_offsets, produce
from .scene import Topic
from .waiting import ScriptStuck

TOPIC = Topic("__transaction_state", UNKNOWN_ID)
PARTITIONS = 3
ADMIN_CLIENT_ID = "__admin_client"
"""The only client that may write to an internal topic."""

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)


def partition_of(transactional_id: str) -> int:
    """The absolute value of Java's String.hashCode, modulo the partitions."""
    units = transactional_id.encode("utf-16-be")
    hashed = 0
    for (unit,) in struct.iter_unpack(">H", units):
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    return abs(hashed - (hashed >> 31 << 32)) % PARTITIONS


def ends(play: Play) -> list[int]:
    """Return the end offsets of the log's partitions."""
    asked = list_offsets(*((TOPIC.name, index, -1) for index in range(PARTITIONS)))
    (topic,) = play.quietly("ListOffsets", 4, asked).topics
    return [each.offset for each in sorted(topic.partitions, key=lambda each: each.partition_index)]


def written_since(play: Play, starts: list[int], *, clear_times: bool = False) -> list[dict[str, Any]]:
    """Return the records of this script's transactional ids, sorted by id, with masks applied.

    With `clear_times`, time passes between any two records of an id, and a start time can be distinguished from others.
    """
    found: list[dict[str, Any]] = []
    for index, start in enumerate(starts):
        while True:
            answer = play.quietly("Fetch", 12, fetch((TOPIC, index, start)))
            (partition,) = answer.responses[0].partitions
            data = bytes(partition.records or b"")
            if not data:
                break
            pos = 0
            while pos < len(data):
                size = 12 + struct.unpack_from(">i", data, pos + 8)[0]
                found += _records(play, data[pos : pos + size])
                (last_offset_delta,) = struct.unpack_from(">i", data, pos + 23)
                start = struct.unpack_from(">q", data, pos)[0] + last_offset_delta + 1
                pos += size
    found.sort(key=lambda each: str(each["transactional_id"]))
    last_ms: dict[str, int] = {}
    for each in found:
        name = each["transactional_id"]
        start_ms, updated_ms = each.pop("times_ms")
        if clear_times:
            another = "the record's own time" if start_ms == updated_ms else "another"
            each["start"] = "as before" if start_ms == last_ms.get(name) else another
            last_ms[name] = start_ms
    return found


def _records(play: Play, data: bytes) -> list[dict[str, Any]]:
    attributes, last_delta, _, _, producer_id, epoch, sequence, _ = struct.unpack_from(">hiqqqhii", data, 21)
    out = []
    for each in read_records(data):
        key = decode(TransactionLogKey, 0, bytes(each.key or b""), 2)
        if not key.transactional_id.startswith(play.prefix):
            continue
        # How many tombstones share a batch depends on how many ids expired in the same tick.
        more = "tombstones" if each.value is None else last_delta
        out.append(
            {
                "transactional_id": key.transactional_id,
                "batch": [attributes, more, producer_id, epoch, sequence],
                "headers": len(each.headers),
                "timestamp": moment(each.timestamp, play.names),
                "value": _value(play, each.value),
                "times_ms": _times_ms(each.value),
            }
        )
    return out


def _times_ms(value: Any) -> tuple[int, int]:
    """Return (start, last update) of a transaction."""
    if value is None:
        return -1, -1
    (version,) = struct.unpack_from(">h", bytes(value))
    found = decode(TransactionLogValue, version, bytes(value), 2)
    return found.transaction_start_timestamp_ms, found.transaction_last_update_timestamp_ms


def _value(play: Play, value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    data = bytes(value)
    (version,) = struct.unpack_from(">h", data)
    message = decode(TransactionLogValue, version, data, 2)
    fields = plain(message, version)
    for name, content in fields.items():
        if name.endswith("producer_id"):
            fields[name] = content if content == -1 else play.names.name("producer id", content)
        elif name.endswith("timestamp_ms"):
            fields[name] = moment(content, play.names)
    if fields["transaction_partitions"] is not None:
        # Kafka's order is that of hash maps and sets.
        for topic in fields["transaction_partitions"]:
            topic["partition_ids"].sort()
        fields["transaction_partitions"].sort(key=lambda topic: topic["topic"])
    again = struct.pack(">h", version) + bytes(encode(message, version))
    return {"version": version, "bytes": len(data), "canonical": again == data} | fields


def put(play: Play, transactional_id: str, version: int = 1, **fields: Any) -> None:
    """Write a record as an earlier coordinator would have left it. The broker reads it at its next start."""
    value = {
        "producer_id": -1,
        "producer_epoch": 0,
        "transaction_timeout_ms": 60_000,
        "transaction_status": EMPTY,
        "transaction_partitions": None,
        "transaction_last_update_timestamp_ms": play.now_ms,
        "transaction_start_timestamp_ms": -1,
    } | fields
    key = struct.pack(">h", 0) + bytes(encode(TransactionLogKey(transactional_id=transactional_id), 0))
    message = message_from(TransactionLogValue, value, version)
    data = record(struct.pack(">h", version) + bytes(encode(message, version)), key=key)
    place = (TOPIC, partition_of(transactional_id), batch([data], base_timestamp=play.now_ms))
    answer = play.quietly("Produce", 9, produce(place), client_id=ADMIN_CLIENT_ID)
    produced = answer.responses[0].partition_responses[0]
    if produced.error_code != 0:
        raise ScriptStuck(f"a record of {transactional_id} can't be put: {produced.error_code}")

"""Helpers for scripts about compaction: they compact a partition, and show what is in it."""

from __future__ import annotations

import struct
from typing import Any

from protocol.records.batch import read_records, walk_batches

from .config_requests import SET, TOPIC, change, changed, until_set
from .play import Play
from .requests import fetch, list_offsets
from .scene import Topic
from .waiting import ScriptStuck

CHECKPOINT = "cleaner-offset-checkpoint"
DELETE_HORIZON = 0x40
CONTROL = 0x20
MINUTE_MS = 60_000

_TXN = struct.Struct(">hqqqq")


def compact(play: Play, topic: Topic) -> int:
    """Compact everything in partition 0 that may be compacted, in one pass, and nothing after it. Return the first
    uncleanable offset.

    The topic's ratio is 1, with which nothing is ever compacted by itself.
    """
    bound = _first_uncleanable_offset(play, topic)
    if bound in (0, _checkpointed(play, topic)):
        return bound
    _alter(play, topic, "min.cleanable.dirty.ratio", "0.0")
    play.until(f"{topic.name} is compacted up to {bound}", lambda: _checkpointed(play, topic) == bound)
    _until_in_force(play, topic, "min.cleanable.dirty.ratio", "1.0")
    # Kafka's cleaner learns of a setting a moment after clients do. The next alteration shows when that is over;
    # retention means nothing to a compacted topic.
    _until_in_force(play, topic, "retention.ms", str(bound))
    return bound


def _first_uncleanable_offset(play: Play, topic: Topic) -> int:
    answer = play.quietly("ListOffsets", 7, list_offsets((topic.name, 0, -1), isolation_level=1))
    last_stable_offset = answer.topics[0].partitions[0].offset
    return max(base for base in base_offsets(play, topic) if base <= last_stable_offset)


def base_offsets(play: Play, topic: Topic) -> list[int]:
    return sorted(int(path.stem) for path in (play.broker.data / f"{topic.name}-0").glob("*.log"))


def _checkpointed(play: Play, topic: Topic) -> int:
    path = play.broker.data / CHECKPOINT
    if path.exists():
        for line in path.read_text().splitlines()[2:]:
            name, index, offset = line.split(" ")
            if (name, index) == (topic.name, "0"):
                return int(offset)
    return 0


def _until_in_force(play: Play, topic: Topic, name: str, value: str) -> None:
    _alter(play, topic, name, value)
    until_set(play, TOPIC, topic.name, name, value)


def _alter(play: Play, topic: Topic, name: str, value: str) -> None:
    asked = changed(change(TOPIC, topic.name, (name, SET, value)))
    answer = play.quietly("IncrementalAlterConfigs", 1, asked)
    if answer.responses[0].error_code:
        raise ScriptStuck(f"{name} can't be altered: {answer.responses[0].error_message}")


def look(play: Play, when: str, topic: Topic) -> None:
    """Show everything that readers see of the partition, offset by offset, at both levels; its files; its producers."""
    for level in (0, 1):
        _look_at_records(play, f"{when}, at level {level}", topic, level)
    for what in (-1, -2):
        asked = list_offsets((topic.name, 0, what))
        play.ask(f"{when}: the offset at {what}", "ListOffsets", 7, asked)
    play.note(f"{when}: segments", base_offsets(play, topic))
    play.note(f"{when}: aborted transactions in the index", _txn_index(play, topic))
    asked = {"topics": [{"name": topic.name, "partition_indexes": [0]}]}
    play.ask(f"{when}: the producers", "DescribeProducers", 0, asked)


def _look_at_records(play: Play, when: str, topic: Topic, level: int) -> None:
    offset = 0
    while True:
        answer = play.quietly(
            "Fetch", 12, fetch((topic, 0, offset), isolation_level=level, partition_max_bytes=1 << 24)
        )
        (partition,) = answer.responses[0].partitions
        aborted = sorted(
            [each.first_offset, _producer(play, each.producer_id)]
            for each in partition.aborted_transactions or ()
        )
        play.note(
            f"{when} from {offset}: the answer", [partition.error_code, partition.last_stable_offset, aborted]
        )
        data = bytes(partition.records or b"")
        following = offset
        for position, header in walk_batches(data):
            whole = memoryview(data)[position : position + header.size_bytes]
            play.note(f"{when}: the batch at {header.base_offset}", _batch(play, header))
            for record in read_records(whole) if header.records_count else ():
                play.note(f"{when}: the record at {record.offset}", _record(play, record, header))
            following = header.last_offset + 1
        if following == offset:
            return
        offset = following


def _batch(play: Play, header: Any) -> dict[str, Any]:
    has_horizon = bool(header.attributes & DELETE_HORIZON)
    return {
        "last_offset": header.last_offset,
        "attributes": header.attributes,
        "leader_epoch": header.partition_leader_epoch,
        "base_timestamp": "its delete horizon" if has_horizon else _minutes(play, header.base_timestamp),
        "max_timestamp": _minutes(play, header.max_timestamp),
        "producer": _producer(play, header.producer_id),
        "epoch": header.producer_epoch,
        "sequence": header.base_sequence,
        "count": header.records_count,
    }


def _record(play: Play, record: Any, header: Any) -> list[Any]:
    text = [None if part is None else bytes(part).hex() for part in (record.key, record.value)]
    if header.attributes & CONTROL and text[1]:
        text[1] = text[1][:4]  # a marker's version; after it comes how often the broker was started
    return [_minutes(play, record.timestamp), *text, len(record.headers)]


def _minutes(play: Play, timestamp_ms: int) -> Any:
    """Return minutes from the script's start. Times that the broker set aren't whole minutes."""
    if timestamp_ms < 0:
        return timestamp_ms
    minutes, rest = divmod(timestamp_ms - play.now_ms, MINUTE_MS)
    return minutes if not rest else "the broker's"


def _producer(play: Play, producer_id: int) -> Any:
    return producer_id if producer_id < 0 else play.names.name("producer id", producer_id)


def _txn_index(play: Play, topic: Topic) -> list[Any]:
    """Return the entries of all segments together: barnabas keeps empty files where Kafka keeps none."""
    found = []
    for path in sorted((play.broker.data / f"{topic.name}-0").glob("*.txnindex")):
        for _version, producer_id, *offsets in _TXN.iter_unpack(path.read_bytes()):
            found.append([_producer(play, producer_id), *offsets])
    return found

"""Answers and requests that a fault alters: a former answer, fewer versions, records with a flipped byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from protocol.records.batch import BATCH_OVERHEAD, LOG_OVERHEAD
from protocol.wire.codec import encode
from storage.files import FileRange

MOST_REMEMBERED = 1_000
"""Answers that one fault remembers. After that a new request gets its present answer."""


def as_it_was(answered: dict[bytes, Any], version: int, asked: Any, answer: Any) -> Any:
    """The answer that the same request got the first time; `answered` keeps it. This answer if there was none."""
    key = version.to_bytes(2) + type(asked).__name__.encode() + bytes(encode(asked, version))
    if key not in answered and len(answered) < MOST_REMEMBERED:
        answered[key] = answer
    return answered.get(key, answer)


def with_fewer_versions(answer: Any, versions: Mapping[int, tuple[int, int]]) -> Any:
    """An ApiVersions response with only these versions, (lowest, highest), of these API keys."""
    for each in answer.api_keys:
        if each.api_key in versions:
            lowest, highest = versions[each.api_key]
            each.min_version = max(each.min_version, lowest)
            each.max_version = min(each.max_version, highest)
    answer.api_keys = [each for each in answer.api_keys if each.min_version <= each.max_version]
    return answer


def corrupted(message: Any) -> Any:
    """A Produce request, or a Fetch response, with a flipped byte in each partition's first batch, behind the batch's
    header, which has its checksum."""
    for partition in _with_records(message):
        records = partition.records
        if isinstance(records, memoryview):  # a request's records are in the buffer that received them
            if len(records) > BATCH_OVERHEAD:
                records[-1] ^= 0xFF
            continue
        data = bytearray().join(map(_read, records if isinstance(records, list) else [records or b""]))
        if len(data) > BATCH_OVERHEAD:
            size = int.from_bytes(data[8:LOG_OVERHEAD]) + LOG_OVERHEAD  # the first batch's
            data[min(size, len(data)) - 1] ^= 0xFF
            partition.records = bytes(data)
    return message


def _with_records(message: Any) -> Iterator[Any]:
    for topic in getattr(message, "topic_data", None) or getattr(message, "responses", None) or ():
        yield from getattr(topic, "partition_data", None) or getattr(topic, "partitions", None) or ()


def _read(chunk: Any) -> bytes:
    return chunk.read(0, len(chunk)) if isinstance(chunk, FileRange) else bytes(chunk)

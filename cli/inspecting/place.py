"""A file's place according to its path, and its surroundings."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from functools import cached_property

from cli.inspecting.decoding import METADATA, TRANSACTIONS, Decoded, UndecodedError, decoded, decoder_of
from protocol.topic_partition import TopicPartition
from storage.disk_files import DiskFiles
from storage.file_examination import READ_FAILURES, UNREADABLE_RECORDS, Finding, LookedAt, examine_directory
from storage.files import LOG_SUFFIX, offset_of
from storage.log.segment import Segment
from storage.log.segment_recovery import valid_batches

FILES = DiskFiles(only_reads=True)
logging.getLogger("storage").addHandler(logging.NullHandler())  # findings are shown as such, not as log lines
_DIGITS = 20


class Place:
    """One file in a partition's folder, which needn't be in a Kafka data folder."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self.directory = os.path.dirname(self.path)
        self.name = os.path.basename(self.path)
        self.data_directory = os.path.dirname(self.directory)

    @property
    def base(self) -> int:
        """The offset in its name; 0 for other names, including a metadata snapshot's."""
        digits = self.name[:_DIGITS]
        return int(digits) if digits.isdigit() and self.name[_DIGITS : _DIGITS + 1] == "." else 0

    @property
    def partition(self) -> TopicPartition:
        """The partition by the folder's name; ("", -1) if it isn't a partition's."""
        return partition_of(os.path.basename(self.directory))

    @property
    def topic(self) -> str:
        """The topic of its records."""
        return METADATA if self.name.endswith(".checkpoint") else self.partition[0]

    @cached_property
    def following(self) -> int | None:
        """The base offset of the next segment, or None."""
        bases = [offset_of(name) for name in names_in(self.directory) if name.endswith(LOG_SUFFIX)]
        return min((base for base in bases if base is not None and base > self.base), default=None)

    @cached_property
    def looked_at(self) -> LookedAt:
        """The contents of the data folder's own files."""
        found: list[Finding] = []
        return examine_directory(FILES, self.data_directory, found)

    @cached_property
    def transactional_ids(self) -> dict[int, str]:
        """Transactional ids by producer id, as far as `__transaction_state` is in the same data folder."""
        ids: dict[int, str] = {}
        for name in names_in(self.data_directory):
            if name.startswith(f"{TRANSACTIONS}-"):
                for each in _decoded_of(f"{self.data_directory}/{name}", TRANSACTIONS):
                    value = each.value
                    if isinstance(value, dict) and isinstance(value.get("producer_id"), int):
                        ids[value["producer_id"]] = str(value["transactional_id"])
        return ids

    def producer(self, producer_id: int) -> str:
        """Name a producer for people, with its transactional id if it is known."""
        name = self.transactional_ids.get(producer_id)
        return f"producer {producer_id}" + (f" ({name!r})" if name is not None else "")


def partition_of(folder: str) -> TopicPartition:
    """Return the partition in a folder's name; ("", -1) if it isn't a partition's."""
    stem = folder.removesuffix("-future").removesuffix("-delete").removesuffix("-stray")
    stem = stem.rpartition(".")[0] if stem != folder else stem
    topic, _dash, number = stem.rpartition("-")
    return (topic, int(number)) if topic and number.isascii() and number.isdigit() else ("", -1)


def names_in(directory: str) -> list[str]:
    """Return the names in a directory; none if there is no such directory."""
    try:
        return FILES.list_directory(directory)
    except OSError:
        return []


def segment_at(directory: str, base: int, path: str) -> Segment:
    """Return the segment whose `.log` file has this path. Raises OSError."""
    segment = Segment(FILES, directory, base, created_ms=0, jitter_ms=0, max_index_bytes=0)
    segment.log.path = path
    segment.size = FILES.size_of(segment.log)
    return segment


def _decoded_of(directory: str, topic: str) -> Iterator[Decoded]:
    from protocol.records.batch import read_records
    from protocol.records.compression import CodecUnavailableError

    decoder = decoder_of(topic)
    assert decoder is not None
    for name in names_in(directory):
        base = offset_of(name)
        if base is None or not name.endswith(LOG_SUFFIX):
            continue
        try:
            segment = segment_at(directory, base, f"{directory}/{name}")
        except OSError:
            continue
        try:
            for _position, header, batch in valid_batches(segment):
                try:
                    records = [] if header.is_control else read_records(batch)
                except (CodecUnavailableError, *UNREADABLE_RECORDS):
                    continue
                for record in records:
                    try:
                        yield decoded(decoder, record)
                    except UndecodedError:
                        continue
        except READ_FAILURES:
            continue
        finally:
            segment.close()

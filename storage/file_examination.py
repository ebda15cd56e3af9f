"""Examining a log directory and the folders of its partitions, without changing a byte.

It reads everything, which a start doesn't. So it finds what a disk has changed below the recovery point, and
errors in files that a start, like Kafka's, has to trust because nothing else has the same information (a
transaction index).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from enum import Enum
from itertools import pairwise, zip_longest
from struct import Struct
from typing import NamedTuple

from protocol.errors import CodecError, KafkaError
from protocol.records.batch import BatchHeader, CorruptRecordError, read_marker
from protocol.records.compression import CodecUnavailableError, DecompressionError
from protocol.topic_partition import TopicPartition
from protocol.wire.primitives import uuid_from_text
from storage import checkpoints, producer_snapshot
from storage.checkpoints import CheckpointError
from storage.files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    File,
    Files,
    file_path,
    offset_of,
)
from storage.indexes import used_bytes
from storage.log.segment import Segment
from storage.log.segment_recovery import UnsupportedFormatError, valid_batches
from storage.producer_snapshot import CorruptSnapshotError


class Severity(Enum):
    """The severity of a finding."""

    NOTE = "note"
    """Nothing is lost, and a start takes care of it."""
    WARNING = "warning"
    """A start goes on, and rebuilds or sets aside what is wrong."""
    ERROR = "error"
    """Something is lost or can't be read: a partition is offline, or the start is refused."""


class Finding(NamedTuple):
    """Something that isn't as it should be. Each text is one line."""

    severity: Severity
    path: str
    what: str
    what_to_do: str


REBUILT = "nothing: the next start rebuilds it"
FROM_A_COPY = "restore it from a copy, if there is one; otherwise a start goes on with the rest"
NO_FILE_OF_KAFKAS = "it isn't a file of Kafka's"
LEFT_ALONE = "nothing: a start leaves it alone. Delete it if you don't need it"


# ---- one log directory, without its logs


START_CHECKS = "nothing: a start checks it"
CHECKPOINTS = (
    checkpoints.RECOVERY_POINT_FILE,
    checkpoints.LOG_START_FILE,
    checkpoints.HIGH_WATERMARK_FILE,
    checkpoints.CLEANER_OFFSET_FILE,
)
_OTHERS = {
    checkpoints.META_PROPERTIES_FILE,
    checkpoints.CLEAN_SHUTDOWN_FILE,
    "bootstrap.checkpoint",
    ".lock",
}
_WRITTEN_ANEW = "nothing: it will be written again"
_CHECKPOINT_TODO = "remove it while no broker runs: it will be written again, and recovery reads more"


class LookedAt(NamedTuple):
    """The content of a directory's own files, as far as they can be read."""

    meta_properties: dict[str, str] | None
    clean: bool
    offsets: dict[str, dict[TopicPartition, int]]
    """By the name of the file."""

    @property
    def node_id(self) -> int:
        """-1 if unknown."""
        said = (self.meta_properties or {}).get("node.id", "")
        return int(said) if said.isascii() and said.isdigit() else -1

    @property
    def directory_id(self) -> bytes | None:
        """None if unknown or malformed."""
        try:
            return uuid_from_text((self.meta_properties or {})["directory.id"])
        except (KeyError, ValueError):
            return None

    @property
    def recovery_points(self) -> dict[TopicPartition, int]:
        """The offset up to which each log was synced."""
        return self.offsets[checkpoints.RECOVERY_POINT_FILE]

    @property
    def log_starts(self) -> dict[TopicPartition, int]:
        """The log starts that differ from the base of the first segment."""
        return self.offsets[checkpoints.LOG_START_FILE]


def examine_directory(files: Files, path: str, found: list[Finding]) -> LookedAt:
    """Examine the directory's own files. Findings are added to `found`."""
    properties: dict[str, str] | None = None
    where = f"{path}/{checkpoints.META_PROPERTIES_FILE}"
    try:
        properties = checkpoints.read_meta_properties(files, where)
        found += _properties(where, properties)
        if properties is not None and files.read_whole(where)[-1:] not in (b"", b"\n"):
            what = "it ends in the middle of a line: the last value may be cut short"
            found.append(Finding(Severity.NOTE, where, what, "nothing, if the value is whole"))
    except OSError as failure:
        found.append(Finding(Severity.ERROR, where, _told(failure), "restore it from a copy"))
    clean = False
    mark = f"{path}/{checkpoints.CLEAN_SHUTDOWN_FILE}"
    try:
        clean = checkpoints.read_clean_shutdown(files, mark) is not None
        if clean and not checkpoints.says_clean_shutdown(files.read_whole(mark)):
            what = "it doesn't say which run stopped cleanly"
            found.append(Finding(Severity.WARNING, mark, what, "nothing: only its existence counts"))
    except OSError as failure:
        found.append(
            Finding(Severity.ERROR, mark, _told(failure), "remove it: a start then checks everything")
        )
    if not clean:
        found.append(
            Finding(Severity.NOTE, mark, "it is missing: the last run didn't stop cleanly", START_CHECKS)
        )
    offsets = {name: _offsets(files, f"{path}/{name}", found) for name in CHECKPOINTS}
    found += _unknown_in_directory(files, path, clean)
    return LookedAt(properties, clean, offsets)


def _properties(path: str, properties: dict[str, str] | None) -> Iterator[Finding]:
    if properties is None:
        what = "it is missing: a start takes the folder for a new one"
        yield Finding(Severity.ERROR, path, what, "restore it from a copy")
        return
    missing = [name for name in checkpoints.META_PROPERTIES if not properties.get(name)]
    if missing:
        what = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        yield Finding(Severity.ERROR, path, what, checkpoints.META_PROPERTIES_TODO)
    for name in properties.keys() - {*checkpoints.META_PROPERTIES, "broker.id"}:
        what = f"{name[:40]!r} isn't a known name"
        yield Finding(Severity.NOTE, path, what, "nothing: it is ignored")
    directory_id = properties.get("directory.id")
    try:
        uuid_from_text(directory_id or "A" * 22)
    except ValueError:
        what = f"directory.id {directory_id} isn't a valid id"
        yield Finding(Severity.ERROR, path, what, checkpoints.META_PROPERTIES_TODO)


def _unknown_in_directory(files: Files, path: str, clean: bool) -> Iterator[Finding]:
    """Files that a start ignores, and those that a clean stop would have left. Folders are examined elsewhere."""
    try:
        folders = set(files.list_subdirectories(path))
        names = [name for name in files.list_directory(path) if name not in folders]
    except OSError as failure:
        yield Finding(Severity.ERROR, path, _told(failure), "check the disk")
        return
    for name in names:
        if name not in _OTHERS and name not in CHECKPOINTS:
            yield Finding(Severity.NOTE, f"{path}/{name}", NO_FILE_OF_KAFKAS, LEFT_ALONE)
    if not clean or len(folders) < 2:  # Kafka creates them empty, and barnabas later
        return
    for name in CHECKPOINTS:
        if name == checkpoints.CLEANER_OFFSET_FILE or name in folders:
            continue
        if name not in names:
            yield Finding(Severity.NOTE, f"{path}/{name}", "it is missing", _WRITTEN_ANEW)
        elif not files.size_of(File(f"{path}/{name}")):
            yield Finding(Severity.NOTE, f"{path}/{name}", "it is empty", _WRITTEN_ANEW)


def _offsets(files: Files, path: str, found: list[Finding]) -> dict[TopicPartition, int]:
    try:
        return checkpoints.read_offsets(files, path)
    except CheckpointError as failure:
        found.append(Finding(Severity.WARNING, path, str(failure), "nothing: it is read as empty"))
    except OSError as failure:
        found.append(Finding(Severity.ERROR, path, _told(failure), _CHECKPOINT_TODO))
    return {}


def _told(failure: OSError) -> str:
    return failure.strerror or str(failure)


# ---- one partition's folder: segments with their checksums, and side files


_END_OF_OFFSET = 20
_TORN_TODO = "nothing, if the machine went down during a write: a start cuts them off"


class LogExpectation(NamedTuple):
    """What other files say about a partition."""

    topic_id: str | None
    """In text form; None if unknown."""
    recovery_point: int
    log_start_offset: int
    clean: bool
    """True if the last run stopped cleanly."""
    compacted: bool | None
    """True if gaps between its offsets are normal; None if it is unknown whether the topic is compacted."""


class SeenLog(NamedTuple):
    """The content of a partition, as far as its batches are valid."""

    start_offset: int
    end_offset: int
    segments: dict[int, Walked]
    """The readable segments, by base offset."""
    open_transactions: dict[int, int]
    """The first batch of each open transaction, by producer id."""

    @property
    def size_bytes(self) -> int:
        """The bytes of its valid batches."""
        return sum(walked.end for walked in self.segments.values())

    @property
    def latest_epoch(self) -> int:
        """-1 if no batch has one."""
        return max((epoch for each in self.segments.values() for epoch, _ in each.epochs), default=-1)


def examine_log(files: Files, directory: str, expected: LogExpectation) -> Generator[Finding, None, SeenLog]:
    """Find everything that is wrong with a partition's folder, which may be the metadata log's. Failures of
    the disk are findings."""
    try:
        names = files.list_directory(directory)
    except OSError as failure:
        yield Finding(Severity.ERROR, directory, told_of(failure), FROM_A_COPY)
        return SeenLog(0, 0, {}, {})
    yield from _partition_metadata(files, directory, names, expected)
    yield from _unfinished(directory, names)
    yield from _unknown(directory, names)
    bases = sorted(
        base for name in names if name.endswith(LOG_SUFFIX) and (base := offset_of(name)) is not None
    )
    yield from _orphans(directory, names, bases)
    end_offset = expected.log_start_offset
    epochs: list[tuple[int, int]] = []
    begun: dict[int, int] = {}
    segments: dict[int, Walked] = {}
    for index, base in enumerate(bases):
        following = bases[index + 1] if index + 1 < len(bases) else None
        walked: list[Walked] = []
        yield from _segment(files, directory, base, following, expected, begun, walked)
        if walked:
            end_offset = walked[0].end_offset
            yield from _indexes(files, directory, base, set(names), walked[0])
            segments[base] = walked[0]._replace(
                last_offsets={}, markers={}
            )  # its large parts are only for its indexes
            epochs += walked[0].epochs
    yield from _end(directory, bases, end_offset, expected)
    snapshots = sorted(
        base for name in names if name.endswith(SNAPSHOT_SUFFIX) and (base := offset_of(name)) is not None
    )
    for offset in snapshots:
        yield from _snapshot(files, directory, offset)
    if expected.clean and bases and end_offset > bases[0] and end_offset not in snapshots:
        path = file_path(directory, end_offset, SNAPSHOT_SUFFIX)
        what = "it is missing: a clean stop saves the log's producers in it"
        yield Finding(Severity.NOTE, path, what, "nothing: a start reads them from the batches")
    yield from _epochs(files, directory, names, epochs, expected.log_start_offset)
    start_offset = max(expected.log_start_offset, bases[0] if bases else 0)
    return SeenLog(start_offset, end_offset, segments, begun)


def _epochs(
    files: Files,
    directory: str,
    names: list[str],
    walked: list[tuple[int, int]],
    log_start_offset: int,
) -> Iterator[Finding]:
    path = f"{directory}/{checkpoints.LEADER_EPOCH_FILE}"
    if checkpoints.LEADER_EPOCH_FILE not in names:
        if walked:
            yield Finding(Severity.WARNING, path, "it is missing", REBUILT)
        return
    try:
        entries = checkpoints.read_leader_epochs(files, path)
        if not files.read_whole(path):
            yield Finding(Severity.NOTE, path, "it is empty", REBUILT)
    except (CheckpointError, OSError) as failure:
        yield Finding(Severity.WARNING, path, told_of(failure), REBUILT)
        return
    for (epoch, start), (next_epoch, next_start) in pairwise(entries):
        if next_epoch <= epoch or next_start <= start:
            what = f"epoch {next_epoch} from offset {next_start} on comes after epoch {epoch} from {start} on"
            yield Finding(Severity.WARNING, path, what, REBUILT)
            return
    ends = [offset for _, offset in walked[1:]]
    for (epoch, begin), end in zip_longest(walked, ends):
        offset = max(begin, log_start_offset)
        if end is not None and offset >= end:
            continue  # entries below the log start are dropped
        said = max((known for known, start in entries if start <= offset), default=-1)
        if said != epoch >= 0:
            what = f"offset {offset} has epoch {epoch} in its batch, and {said} in the file"
            yield Finding(Severity.WARNING, path, what, REBUILT)
            return


def _partition_metadata(
    files: Files, directory: str, names: list[str], expected: LogExpectation
) -> Iterator[Finding]:
    path = f"{directory}/{checkpoints.PARTITION_METADATA_FILE}"
    if not names:
        what = "it is empty"
        yield Finding(Severity.NOTE, directory, what, "nothing: a start begins a new log")
        return
    if checkpoints.PARTITION_METADATA_FILE not in names:
        yield Finding(Severity.NOTE, path, "it is missing", REBUILT)
        return
    try:
        found = checkpoints.read_partition_metadata(files, path)
    except (CheckpointError, OSError) as failure:
        todo = checkpoints.partition_metadata_todo(expected.topic_id or "ITS TOPIC'S ID")
        yield Finding(Severity.ERROR, path, told_of(failure), todo)
        return
    if found is None:
        yield Finding(Severity.NOTE, path, "it says nothing", REBUILT)
    elif expected.topic_id is not None and found != expected.topic_id:
        what = f"its topic id is {found}, and the metadata has {expected.topic_id}"
        yield Finding(Severity.ERROR, path, what, "nothing is lost: a start sets the folder aside")


def _unfinished(directory: str, names: list[str]) -> Iterator[Finding]:
    for name in names:
        if name.endswith((CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX)):
            todo = "nothing, if a run was killed: a start finishes its work. Otherwise rename it back"
            yield Finding(Severity.WARNING, f"{directory}/{name}", "it was being added or removed", todo)


def _unknown(directory: str, names: list[str]) -> Iterator[Finding]:
    """Files in a partition's folder that a start ignores."""
    known = (
        *SEGMENT_SUFFIXES,
        SNAPSHOT_SUFFIX,
        CLEANED_SUFFIX,
        DELETED_SUFFIX,
        SWAP_SUFFIX,
        ".checkpoint",
        ".checkpoint.part",
    )
    of_it = {
        checkpoints.PARTITION_METADATA_FILE,
        checkpoints.LEADER_EPOCH_FILE,
        "quorum-state",
    }
    for name in names:
        if name not in of_it and not name.endswith(known):
            yield Finding(Severity.NOTE, f"{directory}/{name}", NO_FILE_OF_KAFKAS, LEFT_ALONE)


def _orphans(directory: str, names: list[str], bases: list[int]) -> Iterator[Finding]:
    known = set(bases)
    for name in names:
        base = offset_of(name)
        if base is not None and base not in known and name[_END_OF_OFFSET:] in INDEX_SUFFIXES:
            path = file_path(directory, base, LOG_SUFFIX)
            yield Finding(Severity.ERROR, path, f"it is missing beside {name}", FROM_A_COPY)


def _segment(
    files: Files,
    directory: str,
    base: int,
    following: int | None,
    expected: LogExpectation,
    begun: dict[int, int],
    found: list[Walked],
) -> Iterator[Finding]:
    path = file_path(directory, base, LOG_SUFFIX)
    is_last = following is None
    try:
        walked, size = walk_segment(files, directory, base, begun, is_open=is_last and not expected.clean)
    except READ_FAILURES as failure:
        yield Finding(Severity.ERROR, path, told_of(failure), FROM_A_COPY)
        return
    found.append(walked)
    if walked.end < size:
        is_torn = is_last and not expected.clean
        what = (
            f"{size - walked.end} bytes from position {walked.end} on, offset {walked.end_offset}, "
            "aren't whole batches"
        )
        yield Finding(
            Severity.WARNING if is_torn else Severity.ERROR,
            path,
            what,
            _TORN_TODO if is_torn else FROM_A_COPY,
        )
    if walked.gap is not None and not expected.compacted:
        position, due, offset = walked.gap
        what = f"the batch at position {position} begins with offset {offset} instead of {due}"
        yield _gap(path, what, expected)
    if following is None:
        return
    if walked.first_offset >= following:
        what = f"it begins with offset {walked.first_offset}, and the next segment with {following}"
        yield Finding(Severity.ERROR, path, what, "rename it to its first offset, or restore the right file")
    elif walked.end_offset < following and not expected.compacted:
        what = f"it ends at offset {walked.end_offset}, and the next segment begins at {following}"
        yield _gap(path, what, expected)


def _gap(path: str, what: str, expected: LogExpectation) -> Finding:
    if expected.compacted is None:
        todo = (
            "nothing, if the broker's log.cleanup.policy has compact (--config server.properties says so); "
            f"otherwise {FROM_A_COPY}"
        )
        return Finding(Severity.WARNING, path, what, todo)
    return Finding(Severity.ERROR, path, what, FROM_A_COPY)


def _indexes(files: Files, directory: str, base: int, names: set[str], walked: Walked) -> Iterator[Finding]:
    for suffix, check in (
        (INDEX_SUFFIX, wrong_with_offset_index),
        (TIME_INDEX_SUFFIX, wrong_with_time_index),
        (TXN_INDEX_SUFFIX, wrong_with_txn_index),
    ):
        path = file_path(directory, base, suffix)
        if f"{base:020d}{suffix}" not in names:
            if suffix != TXN_INDEX_SUFFIX or walked.aborted:
                # Kafka creates those of a new segment at the first use
                severity = Severity.WARNING if walked.batches else Severity.NOTE
                yield Finding(severity, path, "it is missing", REBUILT)
            continue
        try:
            wrong = check(files.read_whole(path), base, walked)
        except OSError as failure:
            yield Finding(Severity.ERROR, path, told_of(failure), "remove it: a start rebuilds it")
            continue
        if wrong:
            what = f"it contradicts the batches of its segment: {wrong}"
            yield Finding(Severity.WARNING, path, what, "remove it while no broker runs: a start rebuilds it")


def _end(directory: str, bases: list[int], end_offset: int, expected: LogExpectation) -> Iterator[Finding]:
    if end_offset < expected.recovery_point:
        what = f"it ends at offset {end_offset}, and was synced up to {expected.recovery_point}"
        yield Finding(Severity.ERROR, directory, what, FROM_A_COPY)
    if bases and end_offset < expected.log_start_offset:
        what = f"it ends at offset {end_offset}, and its log start is {expected.log_start_offset}"
        todo = f"correct {checkpoints.LOG_START_FILE}; after a kill a start begins a new log there"
        yield Finding(Severity.ERROR, directory, what, todo)


def _snapshot(files: Files, directory: str, offset: int) -> Iterator[Finding]:
    path = file_path(directory, offset, SNAPSHOT_SUFFIX)
    try:
        producers = producer_snapshot.decode(files.read_whole(path))
    except (CorruptSnapshotError, OSError) as failure:
        yield Finding(Severity.WARNING, path, told_of(failure), REBUILT)
        return
    for producer in producers:
        if producer.last_data_offset >= offset:
            last = producer.last_data_offset
            what = f"producer {producer.producer_id} is at offset {last}, beyond the one in its name"
            yield Finding(
                Severity.WARNING, path, what, "remove it while no broker runs: a start reads the batches"
            )
            return


# ---- one segment, walked from its first byte to the last valid batch


READ_FAILURES = (
    OSError,
    KafkaError,
    CorruptRecordError,
    CodecError,
    DecompressionError,
    UnsupportedFormatError,
)
"""The exceptions for failures of the disk."""
UNREADABLE_RECORDS = (CodecError, CorruptRecordError, DecompressionError, ValueError, IndexError)
"""The exceptions for a batch with a right checksum and invalid records. (A missing codec is no finding.)"""


def walk_segment(
    files: Files, directory: str, base: int, begun: dict[int, int], *, is_open: bool
) -> tuple[Walked, int]:
    """Return the content of the segment's batches, and the size of the file. Raises `READ_FAILURES`.

    `begun` is the first batch of each open transaction, by producer id. It is updated from the start of the
    segment to its end.
    """
    segment = Segment(files, directory, base, created_ms=0, jitter_ms=0, max_index_bytes=0)
    walk = _Walk(base, begun)
    try:
        segment.size = files.size_of(segment.log)
        for position, header, batch in valid_batches(segment):
            walk.take(position, header, batch)
    finally:
        segment.close()
    return walk.walked(is_open), segment.size


class _Walk:
    def __init__(self, base: int, begun: dict[int, int]) -> None:
        self.last_offsets: dict[int, int] = {}
        self.markers: dict[int, tuple[int, int]] = {}
        self.begun = begun
        self.aborted = 0
        self.gap: tuple[int, int, int] | None = None
        self.epochs: list[tuple[int, int]] = []
        self.max_timestamp_ms = -1
        self.first_offset = self.end_offset = base
        self.end = 0

    def take(self, position: int, header: BatchHeader, batch: memoryview) -> None:
        offset = header.base_offset
        if not position:
            self.first_offset = offset
        if offset != self.end_offset and self.gap is None:
            self.gap = (position, self.end_offset, offset)
        self.last_offsets[position] = header.last_offset
        self.max_timestamp_ms = max(self.max_timestamp_ms, header.max_timestamp)
        if not self.epochs or self.epochs[-1][0] != header.partition_leader_epoch:
            self.epochs.append((header.partition_leader_epoch, offset))
        if header.is_control:
            self._mark(header, batch)
        elif header.is_transactional:
            self.begun.setdefault(header.producer_id, offset)
        self.end_offset, self.end = header.last_offset + 1, position + len(batch)

    def _mark(self, header: BatchHeader, batch: memoryview) -> None:
        began = self.begun.pop(header.producer_id, -1)
        self.markers[header.last_offset] = (header.producer_id, began)
        try:
            marker = read_marker(batch)
        except CodecUnavailableError:
            return
        if marker is not None and not marker.commit:
            self.aborted += began >= 0

    def walked(self, is_open: bool) -> Walked:
        return Walked(
            self.last_offsets,
            self.markers,
            self.aborted,
            self.gap,
            len(self.last_offsets),
            self.epochs,
            is_open,
            self.max_timestamp_ms,
            self.first_offset,
            self.end_offset,
            self.end,
        )


def told_of(failure: Exception) -> str:
    """Describe a failure in one line."""
    if isinstance(failure, OSError):
        return failure.strerror or str(failure)
    return str(failure) or type(failure).__name__


# ---- checking a segment's indexes, entry by entry, against its batches
#
# They have no checksum. An entry is right if a batch agrees. Missing entries can't be noticed, except the
# last one of a time index, which has the segment's largest timestamp.

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
TXN_ENTRY = Struct(">hqqqq")


class Walked(NamedTuple):
    """The content of a segment's batches."""

    last_offsets: dict[int, int]
    """By position."""
    markers: dict[int, tuple[int, int]]
    """The offset of each transaction marker → its producer, and the first remaining batch of its transaction;
    -1 if there is none."""
    aborted: int
    """The number of transactions with batches that are aborted in it. (A marker may end one without batches here.)
    """
    gap: tuple[int, int, int] | None
    """The first batch that doesn't follow the one before it: its position, the expected offset, its own offset."""
    batches: int
    epochs: list[tuple[int, int]]
    """(leader epoch, the first batch's base offset), for each change of the epoch."""
    is_open: bool
    """It is the last segment, and the run ended without a clean stop. Then its indexes may lag behind, and
    may have the space that Kafka preallocates."""
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
    """"" if it agrees with the batches."""

    @property
    def told(self) -> str:
        return f"entry {self.number}, at byte {self.position}: {self.wrong}"


def offset_entries(data: bytes, base: int, walked: Walked) -> Iterator[IndexEntry]:
    """The entries of an `.index`: (offset, position)."""
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
            wrong = f"position {position} comes after {previous}"
        previous = position
        yield IndexEntry(number, number * OFFSET_ENTRY.size, (offset, position), wrong)


def time_entries(data: bytes, base: int, walked: Walked) -> Iterator[IndexEntry]:
    """The entries of a `.timeindex`: (timestamp in ms, offset)."""
    offsets = set(walked.last_offsets.values())
    previous = -1
    for number, (timestamp_ms, relative) in enumerate(TIME_ENTRY.iter_unpack(used(data, TIME_ENTRY))):
        wrong = ""
        if base + relative not in offsets:
            wrong = f"no batch ends at offset {base + relative}"
        elif timestamp_ms <= previous:
            wrong = f"timestamp {timestamp_ms} comes after {previous}"
        elif timestamp_ms > walked.max_timestamp_ms:
            wrong = f"timestamp {timestamp_ms}, and the largest of all batches is {walked.max_timestamp_ms}"
        previous = timestamp_ms
        yield IndexEntry(number, number * TIME_ENTRY.size, (timestamp_ms, base + relative), wrong)


def txn_entries(data: bytes, base: int, walked: Walked) -> Iterator[IndexEntry]:
    """The entries of a `.txnindex`: (producer id, first offset, last offset, last stable offset)."""
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
            wrong = f"marker {last} comes after {previous}"
        elif not 0 <= first < last:
            wrong = f"a transaction from offset {first} to {last}"
        elif 0 <= began < first:
            wrong = f"a transaction from offset {first} on, and its first batch is at {began}"
        elif stable > last + 1:
            wrong = f"the last stable offset {stable} lies after the marker at {last}"
        previous = last
        yield IndexEntry(number, number * TXN_ENTRY.size, tuple(values), wrong)


def used(data: bytes, entry: Struct) -> bytes:
    """The used part, in whole entries, without the zeros that a killed Kafka leaves after the entries."""
    entries = -(-used_bytes(data) // entry.size)
    return data[: min(entries, len(data) // entry.size) * entry.size]


def wrong_with_offset_index(data: bytes, base: int, walked: Walked) -> str:
    """The first mistake, or ""."""
    return _first(offset_entries(data, base, walked)) or _wrong_end(data, OFFSET_ENTRY, walked)


def wrong_with_time_index(data: bytes, base: int, walked: Walked) -> str:
    """The first mistake, or ""."""
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
    """The first mistake, or ""."""
    told = _first(txn_entries(data, base, walked))
    if told:
        return told
    if len(data) % TXN_ENTRY.size:
        return f"{len(data)} bytes aren't whole entries of {TXN_ENTRY.size}"
    count = len(data) // TXN_ENTRY.size
    if count < walked.aborted:
        return f"{count} entries for {walked.aborted} aborted transactions in the segment"
    return ""


def _first(entries: Iterator[IndexEntry]) -> str:
    return next((entry.told for entry in entries if entry.wrong), "")


def _wrong_end(data: bytes, entry: Struct, walked: Walked) -> str:
    if len(data) % entry.size:
        return f"{len(data)} bytes aren't whole entries of {entry.size}"
    zeros = len(data) - len(used(data, entry))
    if zeros and not walked.is_open:
        return f"{zeros} bytes of zeros from byte {len(data) - zeros} on aren't entries"
    return ""

"""One partition's folder, looked at without changing a byte: segments with their checksums, what stands beside them.

It reads all of it, which a start doesn't: what a disk has changed before the recovery point is found here, and what a
start, as Kafka's, takes for true because nothing else says the same (a transaction index).
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from protocol.errors import CodecError, KafkaError
from protocol.records.batch import CorruptRecordError
from storage import checkpoints
from storage.checkpoints import CheckpointError
from storage.examination.findings import FROM_A_COPY, REBUILT, Finding, Severity
from storage.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_path,
    offset_of,
)
from storage.files import Files
from storage.log.segment import Segment
from storage.log.segment_recovery import UnsupportedFormatError, valid_batches
from storage.producers import producer_snapshot
from storage.producers.producer_snapshot import CorruptSnapshotError
from storage.producers.txn_markers import read_marker

_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_TXN_ENTRY = Struct(">hqqqq")
_END_OF_OFFSET = 20


class LogExpectation(NamedTuple):
    """What is said of a partition elsewhere."""

    topic_id: str | None
    """Its text form; None where nobody says."""
    recovery_point: int
    log_start_offset: int
    clean: bool
    """Whether the last run stopped cleanly."""
    compacted: bool
    """Whether gaps between its offsets mean nothing."""


class _Walked(NamedTuple):
    """What a segment's batches say: by position its last offset, by its last offset the producer of each marker."""

    last_offsets: dict[int, int]
    markers: dict[int, int]
    has_aborts: bool
    may_lag: bool
    """Whether it was appended to when the run ended without a stop: its time index needn't have an entry."""
    max_timestamp_ms: int
    first_offset: int
    end_offset: int
    end: int


def examine_log(files: Files, directory: str, expected: LogExpectation) -> Iterator[Finding]:
    """All that is wrong with a partition's folder, the metadata log's among them. Raises nothing that a disk says."""
    try:
        names = files.list_directory(directory)
    except OSError as failure:
        yield Finding(Severity.ERROR, directory, _told(failure), FROM_A_COPY)
        return
    yield from _partition_metadata(files, directory, names, expected)
    yield from _unfinished(directory, names)
    bases = sorted(
        base for name in names if name.endswith(LOG_SUFFIX) and (base := offset_of(name)) is not None
    )
    yield from _orphans(directory, names, bases)
    end_offset = expected.log_start_offset
    for index, base in enumerate(bases):
        following = bases[index + 1] if index + 1 < len(bases) else None
        walked: list[_Walked] = []
        yield from _segment(files, directory, base, following, expected, walked)
        if walked:
            end_offset = walked[0].end_offset
            yield from _indexes(files, directory, base, set(names), walked[0])
    yield from _end(directory, bases, end_offset, expected)
    for name in names:
        if name.endswith(SNAPSHOT_SUFFIX) and offset_of(name) is not None:
            yield from _snapshot(files, f"{directory}/{name}")
    if checkpoints.LEADER_EPOCH_FILE in names:
        path = f"{directory}/{checkpoints.LEADER_EPOCH_FILE}"
        try:
            checkpoints.read_leader_epochs(files, path)
        except (CheckpointError, OSError) as failure:
            yield Finding(Severity.WARNING, path, _told(failure), REBUILT)


def _partition_metadata(
    files: Files, directory: str, names: list[str], expected: LogExpectation
) -> Iterator[Finding]:
    path = f"{directory}/{checkpoints.PARTITION_METADATA_FILE}"
    if checkpoints.PARTITION_METADATA_FILE not in names:
        if names:
            yield Finding(Severity.NOTE, path, "it is missing", REBUILT)
        return
    try:
        found = checkpoints.read_partition_metadata(files, path)
    except (CheckpointError, OSError) as failure:
        todo = checkpoints.partition_metadata_todo(expected.topic_id or "ITS TOPIC'S ID")
        yield Finding(Severity.ERROR, path, _told(failure), todo)
        return
    if found is not None and expected.topic_id is not None and found != expected.topic_id:
        what = f"it is of topic id {found}, and the metadata says {expected.topic_id}"
        yield Finding(Severity.ERROR, path, what, "nothing is lost: a start sets the folder aside")


def _unfinished(directory: str, names: list[str]) -> Iterator[Finding]:
    for name in names:
        if name.endswith((CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX)):
            todo = "nothing, where a run was killed: a start ends what it had begun. Else rename it back"
            yield Finding(Severity.WARNING, f"{directory}/{name}", "it was on its way in or out", todo)


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
    walked: list[_Walked],
) -> Iterator[Finding]:
    segment = Segment(files, directory, base, created_ms=0, jitter_ms=0, max_index_bytes=0)
    path = segment.log.path
    last_offsets: dict[int, int] = {}
    markers: dict[int, int] = {}
    has_aborts, may_lag = False, following is None and not expected.clean
    max_timestamp_ms, end_offset, end, first_offset = -1, base, 0, base
    try:
        segment.size = files.size_of(segment.log)
        for position, header, batch in valid_batches(segment):
            if not position:
                first_offset = header.base_offset
            last_offsets[position] = header.last_offset
            max_timestamp_ms = max(max_timestamp_ms, header.max_timestamp)
            if header.is_control:
                markers[header.last_offset] = header.producer_id
                marker = read_marker(batch)
                has_aborts |= marker is not None and not marker.commit
            end_offset, end = header.last_offset + 1, position + len(batch)
    except (OSError, KafkaError, CorruptRecordError, CodecError, UnsupportedFormatError) as failure:
        yield Finding(Severity.ERROR, path, _told(failure), FROM_A_COPY)
        return
    finally:
        segment.close()
    walked.append(
        _Walked(last_offsets, markers, has_aborts, may_lag, max_timestamp_ms, first_offset, end_offset, end)
    )
    if end < segment.size:
        is_torn = following is None and not expected.clean
        what = f"{segment.size - end} bytes from position {end} on, offset {end_offset}, are no whole batches"
        todo = (
            "nothing, if the machine went down during a write: a start cuts them off"
            if is_torn
            else FROM_A_COPY
        )
        yield Finding(Severity.WARNING if is_torn else Severity.ERROR, path, what, todo)
    if following is None:
        return
    if first_offset >= following:
        what = f"it begins with offset {first_offset}, and the next segment with {following}"
        yield Finding(
            Severity.ERROR, path, what, "give it the name of its first offset, or put the right file back"
        )
    elif end_offset < following and not expected.compacted:
        what = f"it ends at offset {end_offset}, and the next segment begins at {following}"
        yield Finding(Severity.ERROR, path, what, FROM_A_COPY)


def _indexes(files: Files, directory: str, base: int, names: set[str], walked: _Walked) -> Iterator[Finding]:
    for suffix, check in (
        (INDEX_SUFFIX, _offset_index_is_true),
        (TIME_INDEX_SUFFIX, _time_index_is_true),
        (TXN_INDEX_SUFFIX, _txn_index_is_true),
    ):
        path = file_path(directory, base, suffix)
        if f"{base:020d}{suffix}" not in names:
            if suffix != TXN_INDEX_SUFFIX or walked.has_aborts:
                yield Finding(Severity.WARNING, path, "it is missing", REBUILT)
            continue
        try:
            is_true = check(files.read_whole(path), base, walked)
        except OSError as failure:
            yield Finding(Severity.ERROR, path, _told(failure), "remove it: a start makes it anew")
            continue
        if not is_true:
            what = "it isn't what the batches of its segment say"
            yield Finding(Severity.WARNING, path, what, "remove it while nothing runs: a start makes it anew")


def _offset_index_is_true(data: bytes, base: int, walked: _Walked) -> bool:
    """Kafka leaves zeros behind the entries where it was killed."""
    used = data.rstrip(b"\0")
    data = data[: -(-len(used) // _OFFSET_ENTRY.size) * _OFFSET_ENTRY.size]
    return not len(data) % _OFFSET_ENTRY.size and all(
        walked.last_offsets.get(position) == base + relative
        for relative, position in _OFFSET_ENTRY.iter_unpack(data)
    )


def _time_index_is_true(data: bytes, base: int, walked: _Walked) -> bool:
    used = data.rstrip(b"\0")
    data = data[: -(-len(used) // _TIME_ENTRY.size) * _TIME_ENTRY.size]
    if len(data) % _TIME_ENTRY.size:
        return False
    offsets = set(walked.last_offsets.values())
    previous = -1
    for timestamp_ms, relative in _TIME_ENTRY.iter_unpack(data):
        if base + relative not in offsets or not previous < timestamp_ms <= walked.max_timestamp_ms:
            return False
        previous = timestamp_ms
    return bool(data) or walked.may_lag or walked.max_timestamp_ms < 0


def _txn_index_is_true(data: bytes, base: int, walked: _Walked) -> bool:
    if len(data) % _TXN_ENTRY.size:
        return False
    previous = base - 1
    for version, producer_id, first, last, stable in _TXN_ENTRY.iter_unpack(data):
        is_there = walked.markers.get(last) == producer_id
        if version or last <= previous or not is_there or not 0 <= first < last or stable > last + 1:
            return False
        previous = last
    return True


def _end(directory: str, bases: list[int], end_offset: int, expected: LogExpectation) -> Iterator[Finding]:
    if end_offset < expected.recovery_point:
        what = f"it ends at offset {end_offset}, and was synced up to {expected.recovery_point}"
        yield Finding(Severity.ERROR, directory, what, FROM_A_COPY)
    if bases and end_offset < expected.log_start_offset:
        what = f"it ends at offset {end_offset}, and is said to begin at {expected.log_start_offset}"
        todo = f"correct {checkpoints.LOG_START_FILE}; after a kill a start begins the log anew there"
        yield Finding(Severity.ERROR, directory, what, todo)


def _snapshot(files: Files, path: str) -> Iterator[Finding]:
    try:
        producer_snapshot.decode(files.read_whole(path))
    except (CorruptSnapshotError, OSError) as failure:
        yield Finding(Severity.WARNING, path, _told(failure), REBUILT)


def _told(failure: Exception) -> str:
    if isinstance(failure, OSError):
        return failure.strerror or str(failure)
    return str(failure) or type(failure).__name__

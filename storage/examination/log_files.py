"""One partition's folder, looked at without changing a byte: segments with their checksums, what stands beside them.

It reads all of it, which a start doesn't: what a disk has changed before the recovery point is found here, and what a
start, as Kafka's, takes for true because nothing else says the same (a transaction index).
"""

from collections.abc import Generator, Iterator
from itertools import pairwise, zip_longest
from typing import NamedTuple

from storage import checkpoints
from storage.checkpoints import CheckpointError
from storage.examination.findings import (
    FROM_A_COPY,
    LEFT_ALONE,
    NO_FILE_OF_KAFKAS,
    REBUILT,
    Finding,
    Severity,
)
from storage.examination.index_files import (
    Walked,
    wrong_with_offset_index,
    wrong_with_time_index,
    wrong_with_txn_index,
)
from storage.examination.segment_walk import READ_FAILURES, told_of, walk_segment
from storage.file_names import (
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
    file_path,
    offset_of,
)
from storage.files import Files
from storage.producers import producer_snapshot
from storage.producers.producer_snapshot import CorruptSnapshotError

_END_OF_OFFSET = 20
_TORN_TODO = "nothing, if the machine went down during a write: a start cuts them off"


class LogExpectation(NamedTuple):
    """What is said of a partition elsewhere."""

    topic_id: str | None
    """Its text form; None where nobody says."""
    recovery_point: int
    log_start_offset: int
    clean: bool
    """Whether the last run stopped cleanly."""
    compacted: bool | None
    """Whether gaps between its offsets mean nothing; None where nobody says whether it is compacted."""


class SeenLog(NamedTuple):
    """What there is of a partition, as far as its batches hold."""

    start_offset: int
    end_offset: int
    segments: dict[int, Walked]
    """By base offset, those that can be read."""
    open_transactions: dict[int, int]
    """Where each has its first batch, by producer id."""

    @property
    def size_bytes(self) -> int:
        """Of what holds."""
        return sum(walked.end for walked in self.segments.values())

    @property
    def latest_epoch(self) -> int:
        """-1 where no batch says one."""
        return max((epoch for each in self.segments.values() for epoch, _ in each.epochs), default=-1)


def examine_log(files: Files, directory: str, expected: LogExpectation) -> Generator[Finding, None, SeenLog]:
    """All that is wrong with a partition's folder, the metadata log's among them. Raises nothing that a disk says."""
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
            )  # what is large is for its indexes
            epochs += walked[0].epochs
    yield from _end(directory, bases, end_offset, expected)
    snapshots = sorted(
        base for name in names if name.endswith(SNAPSHOT_SUFFIX) and (base := offset_of(name)) is not None
    )
    for offset in snapshots:
        yield from _snapshot(files, directory, offset)
    if expected.clean and bases and end_offset > bases[0] and end_offset not in snapshots:
        path = file_path(directory, end_offset, SNAPSHOT_SUFFIX)
        what = "it is missing: the producers at the end of the log, as a clean stop leaves them"
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
            what = (
                f"epoch {next_epoch} from offset {next_start} on comes behind epoch {epoch} from {start} on"
            )
            yield Finding(Severity.WARNING, path, what, REBUILT)
            return
    ends = [offset for _, offset in walked[1:]]
    for (epoch, begin), end in zip_longest(walked, ends):
        offset = max(begin, log_start_offset)
        if end is not None and offset >= end:
            continue  # entries below the begin of the log are dropped
        said = max((known for known, start in entries if start <= offset), default=-1)
        if said != epoch >= 0:
            what = f"offset {offset} is of epoch {epoch} by its batch, and the file says {said}"
            yield Finding(Severity.WARNING, path, what, REBUILT)
            return


def _partition_metadata(
    files: Files, directory: str, names: list[str], expected: LogExpectation
) -> Iterator[Finding]:
    path = f"{directory}/{checkpoints.PARTITION_METADATA_FILE}"
    if not names:
        what = "there is nothing in it"
        yield Finding(Severity.NOTE, directory, what, "nothing: a start begins the log anew")
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
        what = f"it is of topic id {found}, and the metadata says {expected.topic_id}"
        yield Finding(Severity.ERROR, path, what, "nothing is lost: a start sets the folder aside")


def _unfinished(directory: str, names: list[str]) -> Iterator[Finding]:
    for name in names:
        if name.endswith((CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX)):
            todo = "nothing, where a run was killed: a start ends what it had begun. Else rename it back"
            yield Finding(Severity.WARNING, f"{directory}/{name}", "it was on its way in or out", todo)


def _unknown(directory: str, names: list[str]) -> Iterator[Finding]:
    """What a start passes over in a partition's folder."""
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
            "are no whole batches"
        )
        yield Finding(
            Severity.WARNING if is_torn else Severity.ERROR,
            path,
            what,
            _TORN_TODO if is_torn else FROM_A_COPY,
        )
    if walked.gap is not None and not expected.compacted:
        position, due, offset = walked.gap
        what = f"the batch at position {position} begins with offset {offset}, and {due} is the next one"
        yield _gap(path, what, expected)
    if following is None:
        return
    if walked.first_offset >= following:
        what = f"it begins with offset {walked.first_offset}, and the next segment with {following}"
        yield Finding(
            Severity.ERROR, path, what, "give it the name of its first offset, or put the right file back"
        )
    elif walked.end_offset < following and not expected.compacted:
        what = f"it ends at offset {walked.end_offset}, and the next segment begins at {following}"
        yield _gap(path, what, expected)


def _gap(path: str, what: str, expected: LogExpectation) -> Finding:
    if expected.compacted is None:
        todo = (
            "nothing, if the broker's log.cleanup.policy has compact (--config server.properties says so); "
            f"else {FROM_A_COPY}"
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
                # Kafka makes those of a new segment at the first use
                severity = Severity.WARNING if walked.batches else Severity.NOTE
                yield Finding(severity, path, "it is missing", REBUILT)
            continue
        try:
            wrong = check(files.read_whole(path), base, walked)
        except OSError as failure:
            yield Finding(Severity.ERROR, path, told_of(failure), "remove it: a start makes it anew")
            continue
        if wrong:
            what = f"it isn't what the batches of its segment say: {wrong}"
            yield Finding(Severity.WARNING, path, what, "remove it while nothing runs: a start makes it anew")


def _end(directory: str, bases: list[int], end_offset: int, expected: LogExpectation) -> Iterator[Finding]:
    if end_offset < expected.recovery_point:
        what = f"it ends at offset {end_offset}, and was synced up to {expected.recovery_point}"
        yield Finding(Severity.ERROR, directory, what, FROM_A_COPY)
    if bases and end_offset < expected.log_start_offset:
        what = f"it ends at offset {end_offset}, and is said to begin at {expected.log_start_offset}"
        todo = f"correct {checkpoints.LOG_START_FILE}; after a kill a start begins the log anew there"
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
            what = (
                f"producer {producer.producer_id} is at offset {producer.last_data_offset}, beyond its name"
            )
            yield Finding(
                Severity.WARNING, path, what, "remove it while nothing runs: a start reads the batches"
            )
            return

"""The metadata log of a node's folders, looked at without changing a byte, and the cluster that it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from broker.controller.image import ClusterImage, MetadataContradictionError
from broker.controller.log_damage import find_damage
from broker.controller.metadata_log import METADATA_TOPIC_ID
from broker.controller.quorum_state import FILE as QUORUM_STATE
from broker.controller.replaying import apply_batch, replay_snapshot
from broker.controller.snapshot_file import BOOTSTRAP_FILE, SUFFIX, SnapshotError, parse_name, read_snapshot
from protocol.errors import CodecError, KafkaError
from protocol.records.batch import CorruptRecordError
from protocol.records.compression import CodecUnavailableError, DecompressionError
from protocol.wire.primitives import uuid_to_text
from storage.file_examination import Finding, LogExpectation, SeenLog, Severity, examine_log
from storage.files import LOG_SUFFIX, offset_of
from storage.log.segment import Segment
from storage.log.segment_recovery import valid_batches

if TYPE_CHECKING:
    from collections.abc import Generator

    from storage.files import Files

_READ_ERRORS = (
    OSError,
    KafkaError,
    CodecError,
    CorruptRecordError,
    CodecUnavailableError,
    DecompressionError,
    MetadataContradictionError,
    SnapshotError,
)
_PUT_BACK = "put it back from a copy, or remove it"
METADATA_TODO = "put the folder of the metadata log back from a copy"


class SeenMetadata(NamedTuple):
    """What the metadata log says, None where it can't be read, and what there is of it."""

    image: ClusterImage | None
    log: SeenLog | None


def drained(findings: Generator[Finding, None, SeenLog], found: list[Finding]) -> SeenLog:
    """All of them to `found`; what was seen by the way."""
    while True:
        try:
            found.append(next(findings))
        except StopIteration as ended:
            seen: SeenLog = ended.value
            return seen


def examine_metadata(
    files: Files, path: str, node_id: int, clean: bool, found: list[Finding]
) -> SeenMetadata:
    """What is wrong goes to `found`."""
    image = ClusterImage()
    try:
        if not files.exists(path):
            return SeenMetadata(image, None)
        damage = find_damage(files, path, clean=clean).damage
        names = files.list_directory(path)
    except OSError as failure:
        where = failure.filename or path
        found.append(Finding(Severity.ERROR, where, failure.strerror or str(failure), METADATA_TODO))
        return SeenMetadata(None, None)
    if damage is not None:
        found.append(Finding(Severity.ERROR, damage.path, str(damage), METADATA_TODO))
    topic_id = uuid_to_text(METADATA_TOPIC_ID)
    log = drained(examine_log(files, path, LogExpectation(topic_id, 0, 0, clean, compacted=False)), found)
    found += _small_files(files, path, log, node_id)
    try:
        applied = _apply_snapshot(files, path, names, image, found)
        bases = [offset_of(name) for name in names if name.endswith(LOG_SUFFIX)]
        _apply_logs(files, path, sorted(base for base in bases if base is not None), applied, image)
    except _READ_ERRORS as failure:
        found.append(Finding(Severity.ERROR, path, str(failure), METADATA_TODO))
        return SeenMetadata(None, log)
    return SeenMetadata(None if damage is not None else image, log)


def _small_files(files: Files, path: str, log: SeenLog, node_id: int) -> Iterator[Finding]:
    """A broker that another node controls needs neither."""
    bootstrap = f"{path.rpartition('/')[0]}/{BOOTSTRAP_FILE}"
    state = f"{path}/{QUORUM_STATE}"
    missing = "nothing: a start goes on without it"
    try:
        if files.exists(bootstrap):
            read_snapshot(files, bootstrap)
        elif files.exists(state) and _leader(files.read_whole(state)) == node_id:
            yield Finding(Severity.NOTE, bootstrap, "it is missing", missing)
    except _READ_ERRORS as failure:
        yield Finding(Severity.ERROR, bootstrap, str(failure), _PUT_BACK)
    try:
        if files.exists(state):
            yield from _quorum_state(state, files.read_whole(state), log)
        elif files.exists(bootstrap):
            yield Finding(Severity.NOTE, state, "it is missing", missing)
    except _READ_ERRORS as failure:
        yield Finding(Severity.ERROR, state, str(failure), _PUT_BACK)


def _leader(data: bytes) -> object:
    try:
        said = json.loads(data)
    except ValueError:
        return None
    return said.get("leaderId") if isinstance(said, dict) else None


def _quorum_state(path: str, data: bytes, log: SeenLog) -> Iterator[Finding]:
    try:
        said = json.loads(data)
        epoch = int(said["leaderEpoch"])
        wrong = wrong_with_quorum_state(said)
    except (ValueError, KeyError, TypeError) as failure:
        wrong, epoch = str(failure) or type(failure).__name__, 0
    if wrong:
        what = f"it makes no sense: {' '.join(wrong.split())}"
        yield Finding(
            Severity.ERROR,
            path,
            what,
            "remove it: a start goes on without it, and Kafka's is refused with it",
        )
    elif epoch < log.latest_epoch:
        what = f"it says leader epoch {epoch}, and the log has batches of {log.latest_epoch}"
        yield Finding(Severity.WARNING, path, what, "nothing: a start takes the log's")


def wrong_with_quorum_state(said: dict[str, object]) -> str:
    """ "" where it is as Kafka's `QuorumStateData` has it."""
    version = said.get("data_version")
    if version not in (0, 1):
        return f"data_version {version}"
    of_version = {
        0: {"clusterId", "leaderId", "leaderEpoch", "votedId", "appliedOffset", "currentVoters"},
        1: {"leaderId", "leaderEpoch", "votedId", "votedDirectoryId"},
    }[1 if version else 0]
    missing = sorted(of_version - said.keys())
    if missing:
        return f"{', '.join(missing)} missing"
    for name in ("leaderId", "leaderEpoch", "votedId"):
        number = said.get(name, -1)
        if not isinstance(number, int) or number < -1:
            return f"{name} {number}"
    return ""


def _apply_snapshot(
    files: Files, path: str, names: list[str], image: ClusterImage, found: list[Finding]
) -> int:
    """Where the log goes on behind it."""
    applied = -1
    parsed = [(name, each) for name in names if (each := parse_name(name)) is not None and each[1] == SUFFIX]
    for name, (snapshot_id, _suffix) in sorted(parsed, key=lambda each: each[1][0], reverse=True):
        where = f"{path}/{name}"
        try:
            snapshot = read_snapshot(files, where)
        except (SnapshotError, CodecError, CodecUnavailableError, DecompressionError, OSError) as error:
            what = f"it isn't whole: {error}"
            todo = "nothing: the one before is taken" if applied < 0 else "nothing: a later one is there"
            found.append(Finding(Severity.WARNING, where, what, todo))
            continue
        if applied < 0:
            replay_snapshot(image, snapshot.records, where)
            applied = snapshot_id.offset
    return max(applied, 0)


def _apply_logs(files: Files, path: str, bases: list[int], applied: int, image: ClusterImage) -> None:
    transaction = None
    for base in bases:
        segment = Segment(files, path, base, created_ms=0, jitter_ms=0, max_index_bytes=0)
        try:
            segment.size = files.size_of(segment.log)
            for _position, header, batch in valid_batches(segment):
                if header.base_offset >= applied and not header.is_control:
                    transaction = apply_batch(image, transaction, batch)
        finally:
            segment.close()

"""`examine` finds everything that is wrong with a node's data folders, as values, without changing a byte.

It finds what a start would report, refuse or recreate, and also what a start accepts but readers would
stumble over. From the metadata log it also reads the cluster. It takes and checks no locks: it is for folders
that nobody uses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from broker.controller.image import (
    BROKER_RESOURCE,
    MIGRATING,
    TOPIC_RESOURCE,
    UNASSIGNED,
    ClusterImage,
    MetadataContradictionError,
)
from broker.controller.log_damage import find_damage
from broker.controller.metadata_log import METADATA_TOPIC_ID, apply_batch, replay_snapshot
from broker.controller.quorum_state import FILE as QUORUM_STATE
from broker.controller.snapshots import (
    BOOTSTRAP_FILE,
    BOOTSTRAP_ID,
    SUFFIX,
    SnapshotError,
    parse_name,
    read_snapshot,
)
from protocol.errors import CodecError, KafkaError
from protocol.records.batch import CorruptRecordError
from protocol.records.compression import CodecUnavailableError, DecompressionError
from protocol.topic_partition import TopicPartition
from protocol.wire.primitives import uuid_to_text
from storage import checkpoints
from storage.directory.log_directory import METADATA_TOPIC, find
from storage.file_examination import (
    Finding,
    LogExpectation,
    LookedAt,
    SeenLog,
    Severity,
    examine_directory,
    examine_log,
)
from storage.files import LOG_SUFFIX, offset_of
from storage.log import removal
from storage.log.segment import Segment
from storage.log.segment_recovery import valid_batches

if TYPE_CHECKING:
    from collections.abc import Generator

    from storage.directory.log_directory import FoundFolders, PartitionFolder
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
_PUT_BACK = "restore it from a copy, or remove it"
METADATA_TODO = "put the folder of the metadata log back from a copy"


class SeenMetadata(NamedTuple):
    """What the metadata log says, or None if it can't be read, and what was found of the log itself."""

    image: ClusterImage | None
    log: SeenLog | None


def drained(findings: Generator[Finding, None, SeenLog], found: list[Finding]) -> SeenLog:
    """Append all findings to `found`, and return what was seen along the way."""
    while True:
        try:
            found.append(next(findings))
        except StopIteration as ended:
            seen: SeenLog = ended.value
            return seen


def examine_metadata(files: Files, path: str, clean: bool, found: list[Finding]) -> SeenMetadata:
    """Examine the metadata log. Problems are appended to `found`."""
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
    found += _small_files(files, path, log)
    try:
        applied = _apply_snapshot(files, path, names, image, found)
        bases = [offset_of(name) for name in names if name.endswith(LOG_SUFFIX)]
        _apply_logs(files, path, sorted(base for base in bases if base is not None), applied, image)
    except _READ_ERRORS as failure:
        found.append(Finding(Severity.ERROR, path, str(failure), METADATA_TODO))
        return SeenMetadata(None, log)
    return SeenMetadata(None if damage is not None else image, log)


def _small_files(files: Files, path: str, log: SeenLog) -> Iterator[Finding]:
    """Examine the small files. A broker with a controller on another node needs neither of them."""
    bootstrap = f"{path.rpartition('/')[0]}/{BOOTSTRAP_FILE}"
    state = f"{path}/{QUORUM_STATE}"
    leads = files.exists(bootstrap) or files.exists(f"{path}/{BOOTSTRAP_ID.name}{SUFFIX}")
    try:
        if files.exists(bootstrap):
            read_snapshot(files, bootstrap)
    except _READ_ERRORS as failure:
        yield Finding(Severity.ERROR, bootstrap, str(failure), _PUT_BACK)
    try:
        if files.exists(state):
            yield from _quorum_state(state, files.read_whole(state), log)
        elif leads:
            yield Finding(Severity.NOTE, state, "it is missing", "nothing: a start goes on without it")
    except _READ_ERRORS as failure:
        yield Finding(Severity.ERROR, state, str(failure), _PUT_BACK)


def _quorum_state(path: str, data: bytes, log: SeenLog) -> Iterator[Finding]:
    try:
        said = json.loads(data)
        epoch = int(said["leaderEpoch"])
        wrong = wrong_with_quorum_state(said)
    except (ValueError, KeyError, TypeError) as failure:
        wrong, epoch = str(failure) or type(failure).__name__, 0
    if wrong:
        what = f"it is invalid: {' '.join(wrong.split())}"
        yield Finding(
            Severity.ERROR,
            path,
            what,
            "remove it: a start works without it, and Kafka refuses to start with it",
        )
    elif epoch < log.latest_epoch:
        what = f"it has leader epoch {epoch}, but the log has batches of epoch {log.latest_epoch}"
        yield Finding(Severity.WARNING, path, what, "nothing: a start uses the log's")


def wrong_with_quorum_state(said: dict[str, object]) -> str:
    """Return what is wrong with `quorum-state`, compared with Kafka's `QuorumStateData`. Empty if nothing
    is."""
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
    """Apply the newest whole snapshot. Returns the offset from which the log continues."""
    applied = -1
    parsed = [(name, each) for name in names if (each := parse_name(name)) is not None and each[1] == SUFFIX]
    for name, (snapshot_id, _suffix) in sorted(parsed, key=lambda each: each[1][0], reverse=True):
        where = f"{path}/{name}"
        try:
            snapshot = read_snapshot(files, where)
        except (SnapshotError, CodecError, CodecUnavailableError, DecompressionError, OSError) as error:
            what = f"it isn't whole: {error}"
            todo = (
                "nothing: a start uses the previous one" if applied < 0 else "nothing: there is a later one"
            )
            found.append(Finding(Severity.WARNING, where, what, todo))
            continue
        if applied < 0:
            if snapshot_id != BOOTSTRAP_ID:
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


# --- All folders --------------------------------------------------------------------------------------------

CLEANUP_POLICY = "log.cleanup.policy"
_FROM_A_COPY = "restore it from a copy"


class Examination(NamedTuple):
    """What is in a node's folders, and what is wrong with it."""

    findings: list[Finding]
    directories: dict[str, LookedAt]
    partitions: dict[str, dict[TopicPartition, SeenLog]]
    """By directory, without the metadata log."""
    without_folder: list[TopicPartition]
    """Partitions that the cluster has here without a folder: an empty one needs none (Kafka creates it
    nevertheless)."""
    metadata: ClusterImage | None
    """None if it isn't known."""
    metadata_log: SeenLog | None


def examine(files: Files, log_dirs: Sequence[str], metadata_dir: str) -> list[Finding]:
    """Return everything that is wrong. `files` may be read-only. `metadata_dir` has the metadata log, whether
    it is one of the directories or not."""
    return look(files, log_dirs, metadata_dir).findings


def look(
    files: Files, log_dirs: Sequence[str], metadata_dir: str, cleanup_policy: str | None = None
) -> Examination:
    """Do the same as `examine`, and return what there is. `cleanup_policy` is the broker's own
    `log.cleanup.policy`, or None if it isn't known."""
    found: list[Finding] = []
    looked = {
        path: examine_directory(files, path, found) for path in dict.fromkeys([*log_dirs, metadata_dir])
    }
    path = f"{metadata_dir}/{METADATA_TOPIC}-0"
    image, metadata_log = examine_metadata(files, path, looked[metadata_dir].clean, found)
    folders = {directory: _folders(files, directory, found) for directory in looked}
    count = sum(folder.topic != METADATA_TOPIC for each in folders.values() for folder in each)
    if count and image is not None and not image.features:
        what = f"it is missing or empty, but there are {count} partitions"
        found.append(Finding(Severity.ERROR, path, what, METADATA_TODO))
        image = None
    without_folder: list[TopicPartition] = []
    partitions = {
        directory: {
            (folder.topic, folder.partition): drained(
                _partition(files, folder, image, looked[directory], cleanup_policy), found
            )
            for folder in folders[directory]
            if folder.topic != METADATA_TOPIC
        }
        for directory in looked
    }
    if image is not None:
        found += _identity(image, looked)
        present = {key for each in partitions.values() for key in each}
        found += _missing(image, looked, present)
        without_folder = _without_folder(image, looked, present)
    for directory, of_it in looked.items():
        found += _checkpoints(directory, of_it, partitions[directory])
    return Examination(found, looked, partitions, without_folder, image, metadata_log)


def _folders(files: Files, directory: str, found: list[Finding]) -> list[PartitionFolder]:
    try:
        folders = find(files, directory)
        names = files.list_subdirectories(directory)
    except OSError as failure:
        found.append(Finding(Severity.ERROR, directory, failure.strerror or str(failure), "check the disk"))
        return []
    found += _foreign(directory, names, folders)
    return [*folders.partitions.values()]


def _foreign(directory: str, names: list[str], folders: FoundFolders) -> Iterator[Finding]:
    known = {folder.path for kind in (folders.partitions, folders.futures) for folder in kind.values()}
    for name in names:
        path = f"{directory}/{name}"
        if name.endswith(removal.STRAY_DIRECTORY_SUFFIX):
            yield Finding(
                Severity.NOTE,
                path,
                "a start has set it aside: it belonged to no topic",
                "delete it if it isn't wanted",
            )
        elif path not in known and path not in folders.deleted:
            yield Finding(
                Severity.WARNING,
                path,
                "it isn't a partition's folder",
                "move it away: Kafka refuses to start on it",
            )


def _partition(
    files: Files,
    folder: PartitionFolder,
    image: ClusterImage | None,
    of_it: LookedAt,
    cleanup_policy: str | None,
) -> Generator[Finding, None, SeenLog]:
    topic = None if image is None else image.topics.get(folder.topic)
    if image is not None and (topic is None or folder.partition not in topic.partitions):
        what = "it belongs to no topic that the metadata knows"
        yield Finding(Severity.WARNING, folder.path, what, "nothing: a start sets it aside with its contents")
    key = (folder.topic, folder.partition)
    return (
        yield from examine_log(
            files,
            folder.path,
            LogExpectation(
                topic_id=None if topic is None else uuid_to_text(topic.topic_id),
                recovery_point=of_it.recovery_points.get(key, 0),
                log_start_offset=of_it.log_starts.get(key, 0),
                clean=of_it.clean,
                compacted=_is_compacted(image, of_it, key, cleanup_policy),
            ),
        )
    )


def _is_compacted(
    image: ClusterImage | None, of_it: LookedAt, key: TopicPartition, of_file: str | None
) -> bool | None:
    """Return whether a log may have gaps: by the settings of its topic, the broker, the cluster or the
    broker's file, or because the cleaner has been at it. None if it isn't known: the broker's file isn't in
    its folders."""
    if image is None or key in of_it.offsets[checkpoints.CLEANER_OFFSET_FILE]:
        return True
    of_topic = image.configs.get((TOPIC_RESOURCE, key[0]), {}).get("cleanup.policy")
    of_broker = image.configs.get((BROKER_RESOURCE, str(of_it.node_id)), {}).get(CLEANUP_POLICY)
    of_all = image.configs.get((BROKER_RESOURCE, ""), {}).get(CLEANUP_POLICY)
    policy = of_topic or of_broker or of_all or of_file
    return None if policy is None else "compact" in policy


# --- comparing several files --------------------------------------------------------------------------------


def _identity(image: ClusterImage, looked: dict[str, LookedAt]) -> Iterator[Finding]:
    """Compare the identities in the folders with the cluster's metadata."""
    clusters = {(of_it.meta_properties or {}).get("cluster.id"): path for path, of_it in looked.items()}
    if len(clusters) > 1:
        told = ", ".join(f"{path} of {cluster}" for cluster, path in clusters.items())
        what = f"the folders belong to several clusters: {told}"
        yield Finding(Severity.ERROR, next(iter(looked)), what, checkpoints.META_PROPERTIES_TODO)
    for path, of_it in looked.items():
        where = f"{path}/{checkpoints.META_PROPERTIES_FILE}"
        node_id = of_it.node_id
        broker = image.brokers.get(node_id)
        if broker is None:
            if image.brokers and node_id >= 0 and node_id not in image.controllers:
                known = ", ".join(map(str, sorted(image.brokers)))
                what = f"node.id {node_id} isn't registered: the cluster knows {known}"
                yield Finding(Severity.WARNING, where, what, "correct it, if the node isn't new")
        elif of_it.directory_id and broker.log_dirs and of_it.directory_id not in broker.log_dirs:
            known = ", ".join(map(uuid_to_text, broker.log_dirs))
            said = uuid_to_text(of_it.directory_id)
            what = f"directory.id {said} isn't one of node {node_id}'s: the cluster knows {known}"
            yield Finding(Severity.WARNING, where, what, checkpoints.META_PROPERTIES_TODO)


def _missing(
    image: ClusterImage, looked: dict[str, LookedAt], present: set[TopicPartition]
) -> Iterator[Finding]:
    """Find partitions of the cluster that a checkpoint names but that have no folder."""
    told: set[TopicPartition] = set()
    for path, of_it in looked.items():
        for name, offsets in of_it.offsets.items():
            for key, offset in offsets.items():
                topic = image.topics.get(key[0])
                if key in told:
                    continue
                if offset and key not in present and topic is not None and key[1] in topic.partitions:
                    said = {
                        checkpoints.RECOVERY_POINT_FILE: f"was synced up to offset {offset}",
                        checkpoints.HIGH_WATERMARK_FILE: f"had the high watermark {offset}",
                    }.get(name, f"is at offset {offset} by {name}")
                    what = f"{key[0]}-{key[1]} has no folder, and {said}"
                    yield Finding(Severity.ERROR, f"{path}/{key[0]}-{key[1]}", what, _FROM_A_COPY)
                    told.add(key)


def _without_folder(
    image: ClusterImage, looked: dict[str, LookedAt], present: set[TopicPartition]
) -> list[TopicPartition]:
    """Return the partitions that the cluster has in these directories and that have no folder."""
    homes = {of_it.directory_id for of_it in looked.values()}
    if len(looked) == 1:
        homes |= {MIGRATING, UNASSIGNED}
    node_ids = {of_it.node_id for of_it in looked.values()}
    found = []
    for topic in image.topics.values():
        for number, partition in topic.partitions.items():
            directories = partition.directories or [MIGRATING] * len(partition.replicas)
            for replica, home in zip(partition.replicas, directories, strict=False):
                if replica in node_ids and home in homes and (topic.name, number) not in present:
                    found.append((topic.name, number))
    return found


def _checkpoints(
    directory: str, of_it: LookedAt, partitions: dict[TopicPartition, SeenLog]
) -> Iterator[Finding]:
    """Compare the checkpoints with the logs. (Recovery points are checked with each log.)"""
    for name, offsets in of_it.offsets.items():
        path = f"{directory}/{name}"
        for key, offset in offsets.items():
            seen = partitions.get(key)
            if seen is None and offset:
                what = f"it has offset {offset} for {key[0]}-{key[1]}, which has no folder here"
                yield Finding(Severity.NOTE, path, what, "nothing: it is ignored")
            elif seen is not None and not 0 <= offset <= max(seen.end_offset, 0):
                what = f"it has offset {offset} for {key[0]}-{key[1]}, which ends at {seen.end_offset}"
                yield Finding(Severity.WARNING, path, what, "nothing: the log counts")
        if not of_it.clean or name not in checkpoints.OF_EVERY_LOG:
            continue
        unsaid = [key for key, seen in partitions.items() if seen.end_offset and key not in offsets]
        if unsaid:
            first = f"{unsaid[0][0]}-{unsaid[0][1]}"
            more = f" and {len(unsaid) - 1} more" if len(unsaid) > 1 else ""
            what = f"it lacks {first}{more}, which a clean stop would have written"
            yield Finding(
                Severity.WARNING, path, what, "nothing: a start checks these logs from their beginning"
            )
        if name == checkpoints.RECOVERY_POINT_FILE:
            for key, offset in offsets.items():
                if key in partitions and offset < partitions[key].end_offset:
                    what = (
                        f"it has offset {offset} for {key[0]}-{key[1]}, which ends at "
                        f"{partitions[key].end_offset}; a clean stop would have written that"
                    )
                    yield Finding(Severity.NOTE, path, what, "nothing: a start syncs more than necessary")

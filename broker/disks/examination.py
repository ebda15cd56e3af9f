"""`examine`: all that is wrong with a node's data folders, each thing as a value, without changing a byte.

What a start would tell, refuse or make anew is found here, and what a start takes for true and a reader would stumble
over. No lock is taken and none is asked for: it is for folders that nobody uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from broker.controller.image import TOPIC_RESOURCE, ClusterImage, MetadataContradictionError
from broker.controller.log_damage import find_damage
from broker.controller.metadata_log import METADATA_TOPIC_ID
from broker.controller.quorum_state import FILE as QUORUM_STATE
from broker.controller.replaying import apply_batch, replay_snapshot
from broker.controller.snapshot_file import BOOTSTRAP_FILE, SUFFIX, SnapshotError, parse_name, read_snapshot
from protocol.errors import CodecError, KafkaError
from protocol.records.batch import CorruptRecordError
from protocol.wire.primitives import uuid_to_text
from storage.directory.log_directory import METADATA_TOPIC
from storage.directory.partition_folders import find
from storage.examination.directory_files import LookedAt, examine_directory
from storage.examination.findings import Finding, Severity
from storage.examination.log_files import LogExpectation, examine_log
from storage.file_names import LOG_SUFFIX, offset_of
from storage.log import removal
from storage.log.segment import Segment
from storage.log.segment_recovery import valid_batches

if TYPE_CHECKING:
    from storage.directory.partition_folders import FoundFolders, PartitionFolder
    from storage.files import Files

_READ_ERRORS = (
    OSError,
    KafkaError,
    CodecError,
    CorruptRecordError,
    MetadataContradictionError,
    SnapshotError,
)
_METADATA_TODO = "put the folder of the metadata log back from a copy"


def examine(files: Files, log_dirs: Sequence[str], metadata_dir: str) -> list[Finding]:
    """`files` may be ones that only read. `metadata_dir` is the one of the directories that has the metadata log, or
    another one."""
    found: list[Finding] = []
    looked = {
        path: examine_directory(files, path, found) for path in dict.fromkeys([*log_dirs, metadata_dir])
    }
    path = f"{metadata_dir}/{METADATA_TOPIC}-0"
    image = _metadata(files, path, looked[metadata_dir].clean, found)
    present: set[tuple[str, int]] = set()
    for directory, of_it in looked.items():
        try:
            folders = find(files, directory)
            names = files.list_subdirectories(directory)
        except OSError as failure:
            found.append(
                Finding(Severity.ERROR, directory, failure.strerror or str(failure), "look at the disk")
            )
            continue
        found += _foreign(directory, names, folders)
        for folder in folders.partitions.values():
            if folder.topic != METADATA_TOPIC:
                present.add((folder.topic, folder.partition))
                found += _partition(files, folder, image, of_it)
    for of_it in looked.values():
        for (topic, partition), offset in of_it.recovery_points.items():
            if offset and (topic, partition) not in present and _is_wanted(image, topic, partition):
                what = f"{topic}-{partition} has no folder, and was synced up to offset {offset}"
                found.append(Finding(Severity.ERROR, metadata_dir, what, "put it back from a copy"))
    if present and image is not None and not image.features:
        what = f"it is missing or empty, and there are {len(present)} partitions"
        found.append(Finding(Severity.ERROR, path, what, _METADATA_TODO))
    return found


def _foreign(directory: str, names: list[str], folders: FoundFolders) -> Iterator[Finding]:
    known = {folder.path for kind in (folders.partitions, folders.futures) for folder in kind.values()}
    for name in names:
        path = f"{directory}/{name}"
        if name.endswith(removal.STRAY_DIRECTORY_SUFFIX):
            yield Finding(
                Severity.NOTE,
                path,
                "a start has set it aside: it was no topic's",
                "delete it if it isn't wanted",
            )
        elif path not in known and path not in folders.deleted:
            yield Finding(
                Severity.WARNING,
                path,
                "it is no partition's folder",
                "move it away: Kafka refuses to start on it",
            )


def _is_wanted(image: ClusterImage | None, topic: str, partition: int) -> bool:
    known = None if image is None else image.topics.get(topic)
    return known is not None and partition in known.partitions


def _partition(
    files: Files, folder: PartitionFolder, image: ClusterImage | None, of_it: LookedAt
) -> Iterator[Finding]:
    topic = None if image is None else image.topics.get(folder.topic)
    if image is not None and (topic is None or folder.partition not in topic.partitions):
        what = "it belongs to no topic that the metadata knows"
        yield Finding(
            Severity.WARNING, folder.path, what, "nothing: a start sets it aside, with what is in it"
        )
    policy = (
        "" if image is None else image.configs.get((TOPIC_RESOURCE, folder.topic), {}).get("cleanup.policy")
    )
    key = (folder.topic, folder.partition)
    yield from examine_log(
        files,
        folder.path,
        LogExpectation(
            topic_id=None if topic is None else uuid_to_text(topic.topic_id),
            recovery_point=of_it.recovery_points.get(key, 0),
            log_start_offset=of_it.log_starts.get(key, 0),
            clean=of_it.clean,
            compacted=image is None or "compact" in (policy or ""),
        ),
    )


# --- the metadata ---------------------------------------------------------------------------------------------------


def _metadata(files: Files, path: str, clean: bool, found: list[Finding]) -> ClusterImage | None:
    """The cluster as the metadata log says it; None where it can't be read."""
    image = ClusterImage()
    try:
        if not files.exists(path):
            return image
        damage = find_damage(files, path, clean=clean).damage
        names = files.list_directory(path)
    except OSError as failure:
        found.append(Finding(Severity.ERROR, path, failure.strerror or str(failure), _METADATA_TODO))
        return None
    if damage is not None:
        found.append(Finding(Severity.ERROR, damage.path, str(damage), _METADATA_TODO))
    topic_id = uuid_to_text(METADATA_TOPIC_ID)
    found += examine_log(files, path, LogExpectation(topic_id, 0, 0, clean, compacted=False))
    found += _small_files(files, path)
    try:
        applied = _apply_snapshot(files, path, names, image, found)
        bases = [offset_of(name) for name in names if name.endswith(LOG_SUFFIX)]
        _apply_logs(files, path, sorted(base for base in bases if base is not None), applied, image)
    except _READ_ERRORS as failure:
        found.append(Finding(Severity.ERROR, path, str(failure), _METADATA_TODO))
        return None
    return None if damage is not None else image


def _small_files(files: Files, path: str) -> Iterator[Finding]:
    for name in (QUORUM_STATE, BOOTSTRAP_FILE):
        where = f"{path.rpartition('/')[0] if name == BOOTSTRAP_FILE else path}/{name}"
        try:
            if not files.exists(where):
                yield Finding(Severity.NOTE, where, "it is missing", "nothing: a start goes on without it")
            elif name == BOOTSTRAP_FILE:
                read_snapshot(files, where)
            else:
                files.read_whole(where)
        except _READ_ERRORS as failure:
            yield Finding(Severity.ERROR, where, str(failure), "put it back from a copy, or remove it")


def _apply_snapshot(
    files: Files, path: str, names: list[str], image: ClusterImage, found: list[Finding]
) -> int:
    """Where the log goes on behind it."""
    parsed = [(name, each) for name in names if (each := parse_name(name)) is not None and each[1] == SUFFIX]
    for name, (snapshot_id, _suffix) in sorted(parsed, key=lambda each: each[1][0], reverse=True):
        try:
            snapshot = read_snapshot(files, f"{path}/{name}")
        except SnapshotError as error:
            what = f"it isn't whole: {error}"
            found.append(
                Finding(Severity.WARNING, f"{path}/{name}", what, "nothing: the one before is taken")
            )
            continue
        replay_snapshot(image, snapshot.records, f"{path}/{name}")
        return snapshot_id.offset
    return 0


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

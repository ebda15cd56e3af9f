"""One log directory, looked at without changing a byte, but for the logs in it."""

from collections.abc import Iterator
from typing import NamedTuple

from protocol.topic_partition import TopicPartition
from protocol.wire.primitives import uuid_from_text
from storage import checkpoints
from storage.checkpoints import CheckpointError
from storage.examination.findings import Finding, Severity
from storage.files import Files

_CHECKPOINT_TODO = "remove it while nothing runs: it is written anew, and recovery reads more"


class LookedAt(NamedTuple):
    """What a directory's own files say, as far as they can be read."""

    meta_properties: dict[str, str] | None
    clean: bool
    recovery_points: dict[TopicPartition, int]
    log_starts: dict[TopicPartition, int]


def examine_directory(files: Files, path: str, found: list[Finding]) -> LookedAt:
    """What is wrong goes to `found`."""
    properties: dict[str, str] | None = None
    where = f"{path}/{checkpoints.META_PROPERTIES_FILE}"
    try:
        properties = checkpoints.read_meta_properties(files, where)
        found += _properties(where, properties)
    except OSError as failure:
        found.append(Finding(Severity.ERROR, where, _told(failure), "put it back from a copy"))
    clean = False
    mark = f"{path}/{checkpoints.CLEAN_SHUTDOWN_FILE}"
    try:
        clean = checkpoints.read_clean_shutdown(files, mark) is not None
    except OSError as failure:
        found.append(
            Finding(Severity.ERROR, mark, _told(failure), "remove it: a start checks everything then")
        )
    if not clean:
        found.append(
            Finding(Severity.NOTE, path, "the last run didn't stop cleanly", "nothing: a start checks it")
        )
    offsets = {
        name: _offsets(files, f"{path}/{name}", found)
        for name in (
            checkpoints.RECOVERY_POINT_FILE,
            checkpoints.LOG_START_FILE,
            checkpoints.HIGH_WATERMARK_FILE,
            checkpoints.CLEANER_OFFSET_FILE,
        )
    }
    return LookedAt(
        properties, clean, offsets[checkpoints.RECOVERY_POINT_FILE], offsets[checkpoints.LOG_START_FILE]
    )


def _properties(path: str, properties: dict[str, str] | None) -> Iterator[Finding]:
    if properties is None:
        what = "it is missing: a start takes the folder for a new one"
        yield Finding(Severity.ERROR, path, what, "put it back from a copy")
        return
    missing = [name for name in checkpoints.META_PROPERTIES if not properties.get(name)]
    if missing:
        what = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        yield Finding(Severity.ERROR, path, what, checkpoints.META_PROPERTIES_TODO)
    directory_id = properties.get("directory.id")
    try:
        uuid_from_text(directory_id or "A" * 22)
    except ValueError:
        what = f"directory.id {directory_id} is no id"
        yield Finding(Severity.ERROR, path, what, checkpoints.META_PROPERTIES_TODO)


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

"""One log directory, looked at without changing a byte, but for the logs in it."""

from collections.abc import Iterator
from typing import NamedTuple

from protocol.topic_partition import TopicPartition
from protocol.wire.primitives import uuid_from_text
from storage import checkpoints
from storage.checkpoints import CheckpointError
from storage.examination.findings import LEFT_ALONE, NO_FILE_OF_KAFKAS, Finding, Severity
from storage.files import File, Files

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
_WRITTEN_ANEW = "nothing: it is written anew"
_CHECKPOINT_TODO = "remove it while nothing runs: it is written anew, and recovery reads more"


class LookedAt(NamedTuple):
    """What a directory's own files say, as far as they can be read."""

    meta_properties: dict[str, str] | None
    clean: bool
    offsets: dict[str, dict[TopicPartition, int]]
    """By the name of the file."""

    @property
    def node_id(self) -> int:
        """-1 where it isn't said."""
        said = (self.meta_properties or {}).get("node.id", "")
        return int(said) if said.isascii() and said.isdigit() else -1

    @property
    def directory_id(self) -> bytes | None:
        """None where it isn't said, or makes no sense."""
        try:
            return uuid_from_text((self.meta_properties or {})["directory.id"])
        except (KeyError, ValueError):
            return None

    @property
    def recovery_points(self) -> dict[TopicPartition, int]:
        """Up to where each log was synced."""
        return self.offsets[checkpoints.RECOVERY_POINT_FILE]

    @property
    def log_starts(self) -> dict[TopicPartition, int]:
        """Where each log begins, of those that don't where their first segment does."""
        return self.offsets[checkpoints.LOG_START_FILE]


def examine_directory(files: Files, path: str, found: list[Finding]) -> LookedAt:
    """What is wrong goes to `found`."""
    properties: dict[str, str] | None = None
    where = f"{path}/{checkpoints.META_PROPERTIES_FILE}"
    try:
        properties = checkpoints.read_meta_properties(files, where)
        found += _properties(where, properties)
        if properties is not None and files.read_whole(where)[-1:] not in (b"", b"\n"):
            what = "it ends within a line: the last value may lack some of it"
            found.append(Finding(Severity.NOTE, where, what, "nothing, if the value is whole"))
    except OSError as failure:
        found.append(Finding(Severity.ERROR, where, _told(failure), "put it back from a copy"))
    clean = False
    mark = f"{path}/{checkpoints.CLEAN_SHUTDOWN_FILE}"
    try:
        clean = checkpoints.read_clean_shutdown(files, mark) is not None
        if clean and not checkpoints.says_clean_shutdown(files.read_whole(mark)):
            what = "it doesn't say which run stopped cleanly"
            found.append(Finding(Severity.WARNING, mark, what, "nothing: that it is there is what counts"))
    except OSError as failure:
        found.append(
            Finding(Severity.ERROR, mark, _told(failure), "remove it: a start checks everything then")
        )
    if not clean:
        found.append(
            Finding(Severity.NOTE, mark, "it isn't there: the last run didn't stop cleanly", START_CHECKS)
        )
    offsets = {name: _offsets(files, f"{path}/{name}", found) for name in CHECKPOINTS}
    found += _unknown(files, path, clean)
    return LookedAt(properties, clean, offsets)


def _properties(path: str, properties: dict[str, str] | None) -> Iterator[Finding]:
    if properties is None:
        what = "it is missing: a start takes the folder for a new one"
        yield Finding(Severity.ERROR, path, what, "put it back from a copy")
        return
    missing = [name for name in checkpoints.META_PROPERTIES if not properties.get(name)]
    if missing:
        what = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        yield Finding(Severity.ERROR, path, what, checkpoints.META_PROPERTIES_TODO)
    for name in properties.keys() - {*checkpoints.META_PROPERTIES, "broker.id"}:
        what = f"{name[:40]!r} is no name in it"
        yield Finding(Severity.NOTE, path, what, "nothing: it is passed over")
    directory_id = properties.get("directory.id")
    try:
        uuid_from_text(directory_id or "A" * 22)
    except ValueError:
        what = f"directory.id {directory_id} is no id"
        yield Finding(Severity.ERROR, path, what, checkpoints.META_PROPERTIES_TODO)


def _unknown(files: Files, path: str, clean: bool) -> Iterator[Finding]:
    """Files that a start passes over, and those that a clean stop would have left. Folders are looked at elsewhere."""
    try:
        folders = set(files.list_subdirectories(path))
        names = [name for name in files.list_directory(path) if name not in folders]
    except OSError as failure:
        yield Finding(Severity.ERROR, path, _told(failure), "look at the disk")
        return
    for name in names:
        if name not in _OTHERS and name not in CHECKPOINTS:
            yield Finding(Severity.NOTE, f"{path}/{name}", NO_FILE_OF_KAFKAS, LEFT_ALONE)
    if not clean or len(folders) < 2:  # Kafka makes them empty, and barnabas later
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

"""Opening a node's log directories: lock and read each one (`open_log_dirs`), find the partitions' folders,
and once everything is in order, begin this run with them (`begin_run`).

`meta.properties` in a folder says who it belongs to (node id, cluster id, directory id; KIP-631, KIP-858). A
folder without it becomes this node's. A folder of another node, cluster or version isn't touched. As in
Kafka, an unusable folder of `log.dirs` is logged and left out, and its partitions have no leader here.
Nothing starts without the metadata's folder, or without any. Source: LogManager, KafkaRaftServer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from broker.config.definitions import StartError
from broker.controller.image import LOST, MIGRATING, UNASSIGNED
from broker.controller.replica_directories import directory_of
from broker.disks.log_dirs import LogDirs
from protocol.errors import KafkaError
from protocol.wire.primitives import uuid_from_text, uuid_to_text
from storage.checkpoints import META_PROPERTIES, META_PROPERTIES_FILE, META_PROPERTIES_TODO
from storage.directory.log_directory import METADATA_TOPIC, LogDirectory
from storage.files import LOG_SUFFIX, LockedError

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.controller.image import ClusterImage, PartitionImage
    from storage.background import Background
    from storage.directory.log_directory import PartitionFolder
    from storage.files import Files

folders_log = logging.getLogger("barnabas.folders")
log = logging.getLogger("barnabas.directories")


VERSION = "1"


def identify(
    directories: Iterable[LogDirectory],
    *,
    node_id: int,
    cluster_id: str | None,
    joins: bool,
    new_id: Callable[[], bytes],
) -> tuple[str, dict[bytes, LogDirectory]]:
    """Return the cluster id, and the directories by directory id. New folders get what they lack.

    `cluster_id` is the user's choice, or None. To join a cluster, it has to be known. Raises StartError if a
    folder belongs to someone else.
    """
    directories = [*directories]
    for directory in directories:
        found = directory.meta_properties
        if found is None:
            continue
        where = f"{directory.path}/{META_PROPERTIES_FILE}"
        if found.get("version", VERSION) != VERSION:
            raise StartError(f"{where}: version {found['version']}, but this broker knows version {VERSION}")
        missing = [name for name in META_PROPERTIES if not found.get(name)]
        if missing:
            are = "is" if len(missing) == 1 else "are"
            raise StartError(f"{where}: {', '.join(missing)} {are} missing; {META_PROPERTIES_TODO}")
        if found["node.id"] != str(node_id):
            raise StartError(
                f"{where}: the folder belongs to node {found['node.id']}, but node.id is {node_id}"
            )
        theirs = found["cluster.id"]
        if cluster_id is not None and theirs != cluster_id:
            raise StartError(f"{where}: the folder belongs to cluster {theirs}, not to {cluster_id}")
        cluster_id = theirs
    if cluster_id is None and joins:
        raise StartError(
            f"{directories[0].path} isn't formatted, and a broker joins a cluster by its id: format the folder by "
            "kafka-storage format -t ID, or start with --cluster-id ID"
        )
    cluster_id = cluster_id or uuid_to_text(new_id())
    by_id: dict[bytes, LogDirectory] = {}
    for directory in directories:
        if directory.meta_properties is None:
            directory.write_meta_properties(
                cluster_id=cluster_id, node_id=node_id, directory_id=uuid_to_text(new_id())
            )
        assert directory.meta_properties is not None
        directory_id = directory.meta_properties["directory.id"]
        try:
            key = uuid_from_text(directory_id)
        except ValueError:
            where = f"{directory.path}/{META_PROPERTIES_FILE}"
            raise StartError(
                f"{where}: directory.id {directory_id} isn't a valid id; {META_PROPERTIES_TODO}"
            ) from None
        if key in by_id:
            raise StartError(
                f"{by_id[key].path} and {directory.path} have the same directory.id {directory_id}"
            )
        by_id[key] = directory
    return cluster_id, by_id


# --- The partitions' folders, which a start finds before it opens any log -----------------------------------


def settle_moves(
    image: ClusterImage,
    directories: Mapping[bytes, LogDirectory],
    found: dict[tuple[str, int], bytes],
    any_failed: bool,
    new_folder_name: Callable[[], str],
) -> list[tuple[str, int, bytes]]:
    """Decide about the `-future` folders. Returns the moves to continue, by topic, partition and directory
    id.

    If the partition has no other folder, the future one takes its place: the move was interrupted between its
    two renames. It is added to `found`. If a log directory has failed, the other folder may be in there. Then
    the future folder only takes its place if the record names its directory.
    """
    ids = {topic.name: uuid_to_text(topic.topic_id) for topic in image.topics.values()}
    moves: dict[tuple[str, int], bytes] = {}
    for directory_id, directory in directories.items():
        for folder in directory.future_folders():
            key = (folder.topic, folder.partition)
            topic = image.topics.get(folder.topic)
            partition = None if topic is None else topic.partitions.get(folder.partition)
            if partition is None or folder.topic_id not in (None, ids[folder.topic]):
                stray = directory.set_aside(folder, new_folder_name())
                folders_log.warning("%s belongs to no topic: renamed to %s", folder.path, stray)
            elif key not in found and (not any_failed or directory_id in partition.directories):
                folders_log.warning("%s takes the place of the folder that it should replace", folder.path)
                directory.promote_folder(folder)
                found[key] = directory_id
            elif key in moves or found.get(key) == directory_id:
                folders_log.warning("deleting %s: a later move replaced its move", folder.path)
                directory.discard_future(folder, new_folder_name())
            elif key in found:
                moves[key] = directory_id
    return [(*key, directory_id) for key, directory_id in moves.items()]


def find_folders(
    image: ClusterImage,
    node_id: int,
    directories: Mapping[bytes, LogDirectory],
    new_folder_name: Callable[[], str],
) -> dict[tuple[str, int], bytes]:
    """Return the directory id of each partition with a folder. `directories` are by directory id.

    Folders of no current topic, or of an earlier topic with the same name, are renamed, never deleted (Kafka:
    `LogManager.isStrayReplica`). `new_folder_name()` returns 32 hex digits for their names. If a partition
    has several folders, all but one are renamed, too: after a directory failed, the partition may have gone
    to other brokers and come back to another directory. Raises StartError if nobody knows which one counts
    (Kafka: always).
    """
    found: dict[tuple[str, int], dict[bytes, PartitionFolder]] = {}
    ids = {topic.name: uuid_to_text(topic.topic_id) for topic in image.topics.values()}
    for directory_id, directory in directories.items():
        for folder in directory.folders():
            if folder.topic == METADATA_TOPIC:
                continue
            key = (folder.topic, folder.partition)
            topic = image.topics.get(folder.topic)
            if (
                topic is None
                or folder.partition not in topic.partitions
                or folder.topic_id not in (None, ids[folder.topic])
            ):
                stray = directory.set_aside(folder, new_folder_name())
                folders_log.warning("%s belongs to no topic: renamed to %s", folder.path, stray)
            else:
                found.setdefault(key, {})[directory_id] = folder
    return {
        key: next(iter(folders))
        if len(folders) == 1
        else _one_of(folders, image.topics[key[0]].partitions[key[1]], node_id, directories, new_folder_name)
        for key, folders in found.items()
    }


def say_missing(
    image: ClusterImage, node_id: int, online: Collection[bytes], found: Container[tuple[str, int]]
) -> None:
    """Log the partitions whose directory on this node isn't there, for example because its disk isn't
    mounted. They are about to begin anew elsewhere. (Kafka refuses a directory that nobody has formatted.)"""
    accounted_for = {UNASSIGNED, MIGRATING, LOST, *online}
    missing = [
        (topic.name, index)
        for topic in image.topics.values()
        for index, partition in topic.partitions.items()
        if node_id in partition.replicas
        and (topic.name, index) not in found
        and directory_of(partition, node_id) not in accounted_for
    ]
    if missing:
        folders_log.error(
            "%d partitions were in a log directory that isn't there any more, the first is %s-%d. They begin anew,"
            " without what they had here. If you still have that directory, stop and put it back",
            len(missing),
            *missing[0],
        )


def _one_of(
    folders: Mapping[bytes, PartitionFolder],
    partition: PartitionImage,
    node_id: int,
    directories: Mapping[bytes, LogDirectory],
    new_folder_name: Callable[[], str],
) -> bytes:
    """Return the directory id of the folder that counts: the one in the record.

    If the record names none of them, and this replica isn't expected to be complete, any folder will do: the
    leader knows what it lacks or has too much. Raises StartError if the wrong choice could lose records that
    nobody else has, or would miss.
    """
    named = directory_of(partition, node_id) if node_id in partition.replicas else None
    whole = {*partition.isr, *partition.elr, *partition.last_known_elr}
    counts, other, *_ = folders
    if node_id in whole and (named not in folders or len(whole) == 1):
        folder = folders[counts]
        raise StartError(
            f"{folder.topic}-{folder.partition} is both in {directories[counts].path} and in "
            f"{directories[other].path}: move the one away that is out of date"
        )
    if named is not None and named in folders:
        counts = named
    for directory_id, folder in folders.items():
        if directory_id != counts:
            stray = directories[directory_id].set_aside(folder, new_folder_name())
            folders_log.warning(
                "%s is out of date, as its partition is in %s: renamed to %s",
                folder.path,
                directories[counts].path,
                stray,
            )
    return counts


# --- All directories ----------------------------------------------------------------------------------------


_METADATA_FOLDER = f"{METADATA_TOPIC}-0"


def open_log_dirs(
    config: BrokerConfig, files: Files, background: Background, new_id: Callable[[], bytes]
) -> LogDirs:
    """Lock and read all folders. Only new folders are changed.

    Raises StartError; then nothing is locked.
    """
    opened: dict[str, LogDirectory] = {}
    try:
        _open_all(opened, config, files, background)
        metadata = opened[_metadata_path(config)]
        others = [directory for directory in opened.values() if directory is not metadata]
        cluster_id, by_id = identify(
            [*others, metadata],
            node_id=config.node_id,
            cluster_id=config.cluster_id,
            joins=config.joins,
            new_id=new_id,
        )
        paths = config.log_dirs
        id_of = {directory.path: directory_id for directory_id, directory in by_id.items()}
        online = {id_of[path]: opened[path] for path in paths if path in opened}
        for directory in online.values():
            if directory is not metadata:
                _check_has_no_metadata(directory, metadata)
    except BaseException:
        for directory in opened.values():
            directory.close(clean=False)
        raise
    found = LogDirs(paths, online, metadata, cluster_id)
    found.cordon(config.get_list("cordoned.log.dirs"))
    for directory in found.all():
        if not directory.clean and _has_logs(files, directory):
            log.warning("%s was not shut down cleanly: checking its logs", directory.path)
    return found


def _has_logs(files: Files, directory: LogDirectory) -> bool:
    """True if there are logs to check. A freshly formatted folder has a snapshot of the metadata, but no
    log."""
    folders = [*directory.folders(), *directory.future_folders()]
    with suppress(OSError):  # opening it will report the error
        return any(
            name.endswith(LOG_SUFFIX) for folder in folders for name in files.list_directory(folder.path)
        )
    return True


def _metadata_path(config: BrokerConfig) -> str:
    return config.get_string("metadata.log.dir") or config.log_dirs[0]


def _open_all(
    opened: dict[str, LogDirectory], config: BrokerConfig, files: Files, background: Background
) -> None:
    """Open the directories by path, in the order of `log.dirs`, the metadata's own one last."""
    paths = config.log_dirs
    metadata_path = _metadata_path(config)
    failed: list[str] = []
    seen: set[str] = set()
    for path in paths:
        try:
            real_path = files.real_path(path)
            if real_path in seen:
                raise StartError(f"log.dirs has {path} twice", exit_status=2)
            seen.add(real_path)
            opened[path] = _open(path, files, background)
        except OSError as error:
            if len(paths) == 1 or path == metadata_path:
                raise StartError(f"{path} can't be used: {_told(error, path)}{_hint(config)}") from error
            log.error("%s can't be used, and its partitions are offline: %s", path, error)
            failed.append(path)
    if metadata_path not in opened:
        try:
            opened[metadata_path] = _open(metadata_path, files, background)
        except OSError as error:
            raise StartError(f"{metadata_path} can't be used: {error.strerror or error}") from error
    if len(failed) == len(paths):
        raise StartError(f"none of the log.dirs can be used: {', '.join(failed)}")


def _open(path: str, files: Files, background: Background) -> LogDirectory:
    try:
        return LogDirectory.read(path, files=files, background=background)
    except LockedError as error:
        raise StartError(
            f"{path} is in use by another broker{_named(error)}; --data takes another folder"
        ) from error


def _named(error: LockedError) -> str:
    """Who holds the lock, so that the user can end that process."""
    if error.holder is None:
        return ""
    return f", process {error.holder}" + (f" ({error.command})" if error.command else "")


def _hint(config: BrokerConfig) -> str:
    return "; --data takes another folder" if config.origin("log.dirs") == "the default" else ""


def begin_run(log_dirs: LogDirs) -> None:
    """Begin this run: remove the marks of a clean shutdown, the metadata's first.

    Raises StartError. If a disk refuses, other marks may already be gone, and the next start recovers those
    directories.
    """
    online, metadata = log_dirs.online, log_dirs.metadata
    try:
        metadata.begin()
    except OSError as error:
        raise StartError(f"{metadata.path} can't be used: {error.strerror or error}") from error
    for directory_id, directory in reversed([*online.items()]):
        if directory is metadata:
            continue
        try:
            directory.begin()
        except OSError as error:
            if len(online) == 1:
                raise StartError(f"{directory.path} can't be used: {error.strerror or error}") from error
            log.error("%s can't be used, and its partitions are offline: %s", directory.path, error)
            del online[directory_id]
            _let_go(directory)


def _told(error: OSError, path: str) -> str:
    """The error's text, with the file that it is about, unless that is the folder itself."""
    where = f" ({error.filename})" if error.filename not in (None, path) else ""
    return f"{error.strerror or error}{where}"


def _let_go(directory: LogDirectory) -> None:
    try:
        directory.close(clean=False)
    except (OSError, KafkaError) as error:
        log.error("can't close %s: %s", directory.path, error)


def _check_has_no_metadata(directory: LogDirectory, metadata: LogDirectory) -> None:
    if directory.files.exists(f"{directory.path}/{_METADATA_FOLDER}"):
        raise StartError(f"{directory.path} has a metadata log, but it is expected in {metadata.path}")

"""Opening the log directories of a node: each is locked and read (`open_log_dirs`), and once what is in them is found
in order this run goes on with them (`begin_run`).

As in Kafka a folder of `log.dirs` that can't be used is left out with a line in the log, and its partitions have no
leader; without the metadata's folder, or without any, nothing starts. Source: LogManager, KafkaRaftServer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.disks.log_dirs import LogDirs
from broker.disks.node_identity import identify
from broker.process.start_error import StartError
from protocol.errors import KafkaError
from storage.directory.log_directory import METADATA_TOPIC, LogDirectory
from storage.files import LockedError

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from storage.background import Background
    from storage.files import Files

log = logging.getLogger("barnabas.directories")

_METADATA_FOLDER = f"{METADATA_TOPIC}-0"


def open_log_dirs(
    config: BrokerConfig, files: Files, background: Background, new_id: Callable[[], bytes]
) -> LogDirs:
    """Lock and read all folders. Nothing is changed but in folders that are new.

    Raises StartError, nothing being locked then."""
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
        if not directory.clean and directory.has_unopened:
            log.warning("%s was not shut down cleanly: its logs are checked", directory.path)
    return found


def _metadata_path(config: BrokerConfig) -> str:
    return config.get_string("metadata.log.dir") or config.log_dirs[0]


def _open_all(
    opened: dict[str, LogDirectory], config: BrokerConfig, files: Files, background: Background
) -> None:
    """By path, in the order of `log.dirs`, the metadata's own one last."""
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
    """Who holds the lock, for whoever wants to end it."""
    if error.holder is None:
        return ""
    return f", process {error.holder}" + (f" ({error.command})" if error.command else "")


def _hint(config: BrokerConfig) -> str:
    return "; --data takes another folder" if config.origin("log.dirs") == "the default" else ""


def begin_run(log_dirs: LogDirs) -> None:
    """This run goes on with what was opened: the marks of a clean stop go, the metadata's first.

    Raises StartError. Where a disk refuses, others' marks may be gone already, and the next start recovers those.
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
    """With the file that the error is of, where it is none of the folder itself."""
    where = f" ({error.filename})" if error.filename not in (None, path) else ""
    return f"{error.strerror or error}{where}"


def _let_go(directory: LogDirectory) -> None:
    try:
        directory.close(clean=False)
    except (OSError, KafkaError) as error:
        log.error("%s can't be let go of: %s", directory.path, error)


def _check_has_no_metadata(directory: LogDirectory, metadata: LogDirectory) -> None:
    if directory.files.exists(f"{directory.path}/{_METADATA_FOLDER}"):
        raise StartError(f"{directory.path} has a metadata log, and it is looked for in {metadata.path}")

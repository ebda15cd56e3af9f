"""The folders of this node: `log.dirs`, and `metadata.log.dir` where that is another one.

As in Kafka a folder of `log.dirs` that can't be used is left out with a line in the log, and its partitions have no
leader; without the metadata's folder, or without any, nothing starts. Source: LogManager, KafkaRaftServer.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.disks.node_identity import identify
from broker.process.start_error import StartError
from protocol.errors import KafkaError
from storage import files
from storage.directory.log_directory import METADATA_TOPIC, LogDirectory

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from storage.background import Background

log = logging.getLogger("barnabas.directories")

_METADATA_FOLDER = f"{METADATA_TOPIC}-0"


@dataclass(slots=True)
class Directories:
    """The folders that could be opened; this node has them locked until `close`."""

    logs: list[LogDirectory] = field(default_factory=list)
    """Those of `log.dirs`, in its order."""
    metadata: LogDirectory | None = None
    """The one with the metadata log: one of `logs`, or one of its own."""
    by_id: dict[bytes, LogDirectory] = field(default_factory=dict)
    """`logs` by directory id."""
    failed: list[str] = field(default_factory=list)
    """The paths in `log.dirs` that can't be used."""
    cluster_id: str = ""

    def all(self) -> list[LogDirectory]:
        """Each of them once, the metadata's last."""
        others = [directory for directory in self.logs if directory is not self.metadata]
        return others if self.metadata is None else [*others, self.metadata]

    def can_lose(self, directory: LogDirectory) -> bool:
        """Whether the node goes on without it: it isn't the metadata's, nor the last one."""
        return directory is not self.metadata and directory in self.logs and len(self.logs) > 1

    def lose(self, directory: LogDirectory) -> bytes:
        """It has failed: let go of all that is in it. Returns its id."""
        directory_id = next(key for key, known in self.by_id.items() if known is directory)
        del self.by_id[directory_id]
        self.logs.remove(directory)
        self.failed.append(directory.path)
        try:
            directory.close(clean=False)
        except (OSError, KafkaError) as error:
            log.error("%s can't be let go of: %s", directory.path, error)
        return directory_id

    def close(self, *, clean: bool, broker_epoch: int = -1) -> None:
        for directory in self.all():
            directory.close(clean=clean, broker_epoch=broker_epoch)


def open_directories(
    config: BrokerConfig, background: Background, new_id: Callable[[], bytes]
) -> Directories:
    """Lock and read all folders; where none speaks against it, this run goes on with them.

    Raises StartError, nothing being locked then. Until all are found in order nothing is changed but in folders that
    are new; where a disk refuses to go on after that, others' marks of a clean stop may be gone already, and the next
    start recovers those."""
    found = Directories()
    try:
        _open(found, config, background)
        found.cluster_id, ids = identify(
            found.all(), node_id=config.node_id, cluster_id=config.cluster_id, new_id=new_id
        )
        id_of = {id(directory): key for key, directory in ids.items()}
        found.by_id = {id_of[id(directory)]: directory for directory in found.logs}
        _check_metadata_is_in_one_place(found)
        _begin(found)
    except BaseException:
        found.close(clean=False)
        raise
    return found


def _open(found: Directories, config: BrokerConfig, background: Background) -> None:
    paths = [*config.log_dirs]
    metadata_path = config.get_string("metadata.log.dir") or paths[0]
    seen: set[str] = set()
    for path in paths:
        real_path = os.path.realpath(path)
        if real_path in seen:
            raise StartError(f"log.dirs has {path} twice")
        seen.add(real_path)
        try:
            directory = _open_one(path, background)
        except OSError as error:
            if len(paths) == 1 or path == metadata_path:
                raise StartError(f"{path} can't be used: {error.strerror or error}") from error
            log.error("%s can't be used, and its partitions are offline: %s", path, error)
            found.failed.append(path)
            continue
        found.logs.append(directory)
        if path == metadata_path:
            found.metadata = directory
    if found.metadata is None:
        try:
            found.metadata = _open_one(metadata_path, background)
        except OSError as error:
            raise StartError(f"{metadata_path} can't be used: {error.strerror or error}") from error
    if not found.logs:
        raise StartError(f"none of the log.dirs can be used: {', '.join(found.failed)}")


def _open_one(path: str, background: Background) -> LogDirectory:
    try:
        return LogDirectory.read(path, background=background)
    except files.LockedError as error:
        raise StartError(f"{path} is in use by another broker") from error


def _begin(found: Directories) -> None:
    for directory in reversed(found.all()):  # the metadata's first: without it the others keep their mark
        try:
            directory.begin()
        except OSError as error:
            if not found.can_lose(directory):
                raise StartError(f"{directory.path} can't be used: {error.strerror or error}") from error
            log.error("%s can't be used, and its partitions are offline: %s", directory.path, error)
            found.lose(directory)


def _check_metadata_is_in_one_place(found: Directories) -> None:
    for directory in found.logs:
        if directory is not found.metadata and files.exists(f"{directory.path}/{_METADATA_FOLDER}"):
            assert found.metadata is not None
            raise StartError(
                f"{directory.path} has a metadata log, and it is looked for in {found.metadata.path}"
            )

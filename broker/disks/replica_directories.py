"""Which of this node's directories each of its replicas is in, or goes to; the controller is told where it differs.

Source: `Partition.createLogInAssignedDirectoryId`, `LogManager.getOrCreateLog`,
`ReplicaManager.maybeUpdateTopicAssignment`; KIP-858.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.controller.assigned_directories import actual_directory, directory_of
from broker.controller.record_versions import DIRECTORIES_SINCE, METADATA_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.controller.image import ClusterImage, PartitionImage
    from broker.controller.own_assignments import AssignDirectory
    from broker.controller.placement import Placement
    from broker.disks.log_dirs import LogDirs
    from storage.directory.log_directory import LogDirectory


class ReplicaDirectories:
    """The folder that a start finds counts before what the record says, and that before a choice."""

    def __init__(
        self,
        image: ClusterImage,
        log_dirs: LogDirs,
        placement: Placement,
        assign: AssignDirectory,
        found: Mapping[tuple[bytes, int], bytes],
    ) -> None:
        """`found`: the directory id of each replica that has a folder, by topic id and number."""
        self._image = image
        self._log_dirs = log_dirs
        self._placement = placement
        self._assign = assign
        self._found = found

    def directory_of(
        self, topic: str, topic_id: bytes, index: int, wanted: PartitionImage
    ) -> LogDirectory | None:
        """None where it may be in one that is offline. Raises what `AssignDirectory` raises."""
        online = self._log_dirs.online
        named = directory_of(wanted, self._placement.node_id)
        actual = actual_directory(
            named,
            self._found_in(topic, topic_id, index),
            online,
            bool(self._log_dirs.offline_paths),
            partial(self._choose, topic, index),
        )
        if actual is None:
            return None
        if actual != named and self._image.features.get(METADATA_VERSION, 0) >= DIRECTORIES_SINCE:
            self._assign((topic_id, index), actual, lambda error: None)
        return online[actual]

    def _choose(self, topic: str, index: int) -> bytes:
        """For a replica that comes here: where AlterReplicaLogDirs has sent it, or whichever is next."""
        chosen = self._placement.directory_of(topic, index)
        self._placement.forget_preferred(topic, (index,))
        return chosen

    def _found_in(self, topic: str, topic_id: bytes, index: int) -> bytes | None:
        """Not once its log was opened: a replica that has left since, and comes again, is a new one."""
        found = self._found.get((topic_id, index))
        directory = None if found is None else self._log_dirs.online.get(found)
        return found if directory is not None and directory.has_unopened_folder(topic, index) else None

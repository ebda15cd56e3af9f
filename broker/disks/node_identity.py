"""Who a folder belongs to: `meta.properties` with node id, cluster id and directory id (KIP-631, KIP-858).

A folder without one becomes this node's; one of another node, cluster or version is not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.process.start_error import StartError
from protocol.wire.primitives import uuid_from_text, uuid_to_text
from storage.checkpoints import META_PROPERTIES, META_PROPERTIES_FILE, META_PROPERTIES_TODO
from storage.directory.log_directory import LogDirectory

VERSION = "1"


def identify(
    directories: Iterable[LogDirectory],
    *,
    node_id: int,
    cluster_id: str | None,
    joins: bool,
    new_id: Callable[[], bytes],
) -> tuple[str, dict[bytes, LogDirectory]]:
    """The cluster id, and the directories by directory id. New folders are given what they lack.

    `cluster_id` is what the user asks for, or None; who joins a cluster has to know which. Raises StartError for a
    folder that is somebody else's.
    """
    directories = [*directories]
    for directory in directories:
        found = directory.meta_properties
        if found is None:
            continue
        where = f"{directory.path}/{META_PROPERTIES_FILE}"
        if found.get("version", VERSION) != VERSION:
            raise StartError(f"{where}: version {found['version']}, and this broker knows version {VERSION}")
        missing = [name for name in META_PROPERTIES if not found.get(name)]
        if missing:
            are = "is" if len(missing) == 1 else "are"
            raise StartError(f"{where}: {', '.join(missing)} {are} missing; {META_PROPERTIES_TODO}")
        if found["node.id"] != str(node_id):
            raise StartError(f"{where}: the folder is node {found['node.id']}'s, and node.id is {node_id}")
        theirs = found["cluster.id"]
        if cluster_id is not None and theirs != cluster_id:
            raise StartError(f"{where}: the folder is of cluster {theirs}, not of {cluster_id}")
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
                f"{where}: directory.id {directory_id} is no id; {META_PROPERTIES_TODO}"
            ) from None
        if key in by_id:
            raise StartError(
                f"{by_id[key].path} and {directory.path} have the same directory.id {directory_id}"
            )
        by_id[key] = directory
    return cluster_id, by_id

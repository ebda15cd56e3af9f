"""The records that the replicas of a script's topics have on disk."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from .batches import describe
from .cluster import Cluster

PATIENCE_S = 15.0
"""A leader's records above its high watermark are still on their way to the followers."""


def replica_records(cluster: Cluster, prefix: str) -> dict[str, Any]:
    """Return the records by topic and partition. If replicas differ, return all of them with their sizes."""
    topics: dict[str, list[Any]] = {}
    (seen, *_) = cluster.state.seen()
    for (topic, index), partition in sorted(seen.partitions.items()):
        if topic.startswith(prefix):
            told = {"partition": index, **_on_all(cluster, f"{topic}-{index}", partition.replica_nodes)}
            topics.setdefault(topic, []).append(told)
    return {"topics": [{"name": name, "partitions": told} for name, told in topics.items()]}


def _on_all(cluster: Cluster, folder: str, replicas: list[int]) -> dict[str, Any]:
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        found = {node_id: log_bytes(cluster.nodes[node_id].data / folder) for node_id in sorted(replicas)}
        if len(set(found.values())) == 1:
            (data,) = set(found.values())
            return {"replicas": len(found), "records": describe(data)}
        if time.monotonic() > deadline_s:
            return {
                "differ": [
                    {"broker": node_id, "bytes": len(data), "records": describe(data)}
                    for node_id, data in found.items()
                ]
            }
        time.sleep(0.005)


def log_bytes(folder: Path) -> bytes:
    """Return all batches of a replica. Brokers may begin their segments at different offsets."""
    return b"".join(_batches_of(path.read_bytes()) for path in sorted(folder.glob("*.log")))


def _batches_of(segment: bytes) -> bytes:
    """Leave out the zeros at the end of a file that was created in its full size."""
    end = 0
    while end + 12 <= len(segment) and (size := int.from_bytes(segment[end + 8 : end + 12], "big")):
        end += 12 + size
    return segment[:end]

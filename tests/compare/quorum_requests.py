"""Requests about the metadata log, as dicts."""

from __future__ import annotations

from typing import Any

from .scene import Topic

METADATA_ID = bytes(15) + b"\x01"
METADATA = Topic("__cluster_metadata", METADATA_ID)


def snapshot(
    *,
    name: str = METADATA.name,
    partition: int = 0,
    end_offset: int = 10**9,
    epoch: int = 1,
    current_leader_epoch: int = -1,
    position: int = 0,
    **fields: Any,
) -> dict[str, Any]:
    """FetchSnapshot."""
    asked = {
        "partition": partition,
        "current_leader_epoch": current_leader_epoch,
        "snapshot_id": {"end_offset": end_offset, "epoch": epoch},
        "position": position,
    }
    topic = {"name": name, "partitions": [asked]}
    return {"replica_id": -1, "max_bytes": 1 << 20, "topics": [topic]} | fields

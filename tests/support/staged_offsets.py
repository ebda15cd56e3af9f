"""A commit's offsets, ready to be written."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.group.offsets.commit import NewOffset, StagedOffsets
from coordinator.group.shard import GroupShard

MAX_METADATA = 4096


def staged(
    shard: GroupShard,
    group_id: str,
    offsets: Iterable[NewOffset],
    *,
    retention_ms: int = -1,
) -> StagedOffsets:
    """Stage offsets as the handlers do, at the shard's time."""
    made = StagedOffsets(
        group_id,
        shard._runtime.now_ms(),
        max_metadata=MAX_METADATA,
        retention_ms=retention_ms,
    )
    for offset in offsets:
        made.add(offset)
    return made

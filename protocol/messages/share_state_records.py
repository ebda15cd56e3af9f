"""The records of `__share_group_state` (KIP-932): snapshots of share partitions, and updates since the last one.

Keys begin with their type (int16), which is `API_KEY`; values with their version (int16). A snapshot's key with no
value deletes the share partition, its updates included.
"""

from protocol.messages.share_state import StateBatch
from protocol.wire.schema import Message, array, int32, int64, string, uuid


class ShareSnapshotKey(Message, api_key=0, versions="0"):
    group_id: str = string("0")
    topic_id: bytes = uuid("0")
    partition: int = int32("0")


class ShareSnapshotValue(Message, api_key=0, versions="0", flexible="0+"):
    """Timestamps in ms since the epoch."""

    snapshot_epoch: int = int32("0+")
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("0+", default=-1, tag=0)
    create_timestamp: int = int64("0+")
    write_timestamp: int = int64("0+")
    state_batches: list[StateBatch] = array(StateBatch, "0+")


class ShareUpdateKey(Message, api_key=1, versions="0"):
    group_id: str = string("0")
    topic_id: bytes = uuid("0")
    partition: int = int32("0")


class ShareUpdateValue(Message, api_key=1, versions="0", flexible="0+"):
    """A start offset of -1: that of the snapshot still holds."""

    snapshot_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("0+", default=-1, tag=0)
    state_batches: list[StateBatch] = array(StateBatch, "0+")

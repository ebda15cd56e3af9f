"""Commits of offsets, and staging them as one batch.

Thousands of offsets, or tombstones, are staged over several turns of the loop. They are written and applied
at once (`committing.py`). So no crash leaves half of a request, and nobody sees half.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coordinator.group.records import (
    AnyRecord,
    CommittedOffset,
    OffsetKey,
    OffsetRecord,
    encode_offset_key,
    encode_record,
)
from protocol.errors import Error
from protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, RecordsOfOneTime
from protocol.wire.schema import ZERO_UUID

GROUP_ID_NOT_FOUND_VERSION = 9  # of OffsetCommit
TXN_TOPIC_ID_VERSION = 6  # of TxnOffsetCommit: topic ids, GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH


class Committer(NamedTuple):
    """The sender of a commit. Without member id and instance id, and with generation −1, it is no member of a
    group."""

    group_id: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1

    @property
    def is_anonymous(self) -> bool:
        return self.generation < 0 and not self.member_id and self.instance_id is None


class CommitRequest(NamedTuple):
    """An OffsetCommit, or with `in_transaction` a TxnOffsetCommit. `version` is the version of that API."""

    version: int
    in_transaction: bool = False

    @property
    def tells_stale_epochs(self) -> bool:
        """True if the client knows STALE_MEMBER_EPOCH. Others get ILLEGAL_GENERATION (KIP-1319)."""
        return not self.in_transaction or self.version >= TXN_TOPIC_ID_VERSION

    @property
    def unknown_group_error(self) -> Error:
        """The error for a member of a group that doesn't exist."""
        since = TXN_TOPIC_ID_VERSION if self.in_transaction else GROUP_ID_NOT_FOUND_VERSION
        return Error.GROUP_ID_NOT_FOUND if self.version >= since else Error.ILLEGAL_GENERATION


class NewOffset(NamedTuple):
    """The offset to commit for one partition."""

    topic: str
    topic_id: bytes
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


class OffsetProducer(NamedTuple):
    """The producer whose transaction the offsets are part of. `guard`: see `coordinator.ports.Runtime.append`."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    guard: object | None = None


NO_PRODUCER = OffsetProducer()


# --- staging one batch ----------------------------------------------------------------------------------------

Place = tuple[str, int]
"""Topic and partition."""

STAGED_PER_TURN = 200
"""The offsets to stage in one turn of the loop, at some 15 µs each."""


class StagedOffsets:
    """Staged offsets of one group. Nothing is in force yet, and staging doesn't look at the group."""

    __slots__ = (
        *("_expire_ms", "_max_metadata", "_now_ms"),
        *("accepted", "committed", "encoded", "errors", "group_id"),
    )

    def __init__(self, group_id: str, now_ms: int, *, max_metadata: int, retention_ms: int = -1) -> None:
        """`max_metadata` is the limit for an offset's metadata, in Java's characters. With a retention the
        records have the older format: only that one has an expiry, and it has no topic ids."""
        self.group_id = group_id
        self.errors: list[Error] = []
        """Each offset's error, in order."""
        self.accepted: list[NewOffset] = []
        """The offsets without an error. `committed` is as long."""
        self.committed: list[tuple[OffsetKey, CommittedOffset]] = []
        self.encoded = RecordsOfOneTime()
        self._now_ms = now_ms
        self._max_metadata = max_metadata
        self._expire_ms = -1 if retention_ms == -1 else now_ms + retention_ms

    def add(self, offset: NewOffset) -> None:
        """Stage one more offset, or add the error to `errors`."""
        metadata = offset.metadata or ""
        if metadata and self._is_too_long(metadata):
            self.errors.append(Error.OFFSET_METADATA_TOO_LARGE)
            return
        self.errors.append(Error.NONE)
        key = OffsetKey(self.group_id, offset.topic, offset.partition)
        committed = CommittedOffset(
            offset.offset,
            offset.leader_epoch,
            metadata,
            self._now_ms,
            self._expire_ms,
            offset.topic_id if self._expire_ms == -1 else ZERO_UUID,
        )
        self.accepted.append(offset)
        self.committed.append((key, committed))
        self.encoded.add(*encode_record(OffsetRecord(key, committed)))

    def _is_too_long(self, metadata: str) -> bool:
        """Compare its length as Java counts it: a character has one or two UTF-16 units."""
        limit = self._max_metadata
        if 2 * len(metadata) <= limit:
            return False
        return len(metadata) > limit or len(metadata.encode("utf-16-le", "surrogatepass")) // 2 > limit


class Tombstones:
    """Staged tombstones of offsets, and of groups that are deleted with their offsets. Nothing is in force yet."""

    __slots__ = ("encoded", "others", "places")

    def __init__(self) -> None:
        self.encoded = RecordsOfOneTime()
        self.places: dict[str, list[Place]] = {}
        """The offsets to delete, by group, in the order of the records."""
        self.others: list[AnyRecord] = []

    def add_offsets(self, group_id: str, places: Sequence[Place]) -> None:
        add = self.encoded.add
        for topic, partition in places:
            add(encode_offset_key(group_id, topic, partition), None)
        self.places.setdefault(group_id, []).extend(places)

    def add_others(self, records: Sequence[AnyRecord]) -> None:
        for record in records:
            self.encoded.add(*encode_record(record))
        self.others += records

"""What is committed, by whom, and how it comes to be one batch.

Thousands of offsets, or of tombstones, are made ready in some turns of the loop. They are written and applied at once
(`committing.py`), so that no crash leaves half of a request, and nobody sees half.
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
    """Who commits. Without member id and instance id, and with generation −1, it isn't a member of a group."""

    group_id: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1

    @property
    def is_anonymous(self) -> bool:
        return self.generation < 0 and not self.member_id and self.instance_id is None


class CommitRequest(NamedTuple):
    """Of OffsetCommit, or of TxnOffsetCommit `in_transaction`; `version` is that API's."""

    version: int
    in_transaction: bool = False

    @property
    def tells_stale_epochs(self) -> bool:
        """Whether STALE_MEMBER_EPOCH is known, where ILLEGAL_GENERATION stands for it otherwise (KIP-1319)."""
        return not self.in_transaction or self.version >= TXN_TOPIC_ID_VERSION

    @property
    def unknown_group_error(self) -> Error:
        """To a member of a group that isn't there."""
        since = TXN_TOPIC_ID_VERSION if self.in_transaction else GROUP_ID_NOT_FOUND_VERSION
        return Error.GROUP_ID_NOT_FOUND if self.version >= since else Error.ILLEGAL_GENERATION


class NewOffset(NamedTuple):
    """One partition of a commit."""

    topic: str
    topic_id: bytes
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


class OffsetProducer(NamedTuple):
    """In whose transaction offsets are committed. `guard`: see `coordinator.ports.Runtime.append`."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    guard: object | None = None


NO_PRODUCER = OffsetProducer()


# --- on its way to be one batch -------------------------------------------------------------------------------

Place = tuple[str, int]
"""Topic and partition."""

STAGED_PER_TURN = 200
"""Offsets that are made ready in one turn of the loop, at some 15 µs each."""


class StagedOffsets:
    """Of one group. Nothing of it is in force yet, and nothing of the group is looked at."""

    __slots__ = (
        *("_expire_ms", "_max_metadata", "_now_ms"),
        *("accepted", "committed", "encoded", "errors", "group_id"),
    )

    def __init__(self, group_id: str, now_ms: int, *, max_metadata: int, retention_ms: int = -1) -> None:
        """`max_metadata`: of an offset, in characters of Java. With a retention the records are of the older format,
        which alone has an expiry and has no topic ids."""
        self.group_id = group_id
        self.errors: list[Error] = []
        """Each offset's, in their order."""
        self.accepted: list[NewOffset] = []
        """Those that have none; what they become is as long."""
        self.committed: list[tuple[OffsetKey, CommittedOffset]] = []
        self.encoded = RecordsOfOneTime()
        self._now_ms = now_ms
        self._max_metadata = max_metadata
        self._expire_ms = -1 if retention_ms == -1 else now_ms + retention_ms

    def add(self, offset: NewOffset) -> None:
        """Make one more ready, or say in `errors` why it can't be committed."""
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
        """Its length is that of Java: a character has one UTF-16 unit or two."""
        limit = self._max_metadata
        if 2 * len(metadata) <= limit:
            return False
        return len(metadata) > limit or len(metadata.encode("utf-16-le", "surrogatepass")) // 2 > limit


class Tombstones:
    """Of offsets, and of groups that go with theirs. Nothing of it is in force yet."""

    __slots__ = ("encoded", "others", "places")

    def __init__(self) -> None:
        self.encoded = RecordsOfOneTime()
        self.places: dict[str, list[Place]] = {}
        """Whose offsets go, by group, in the order of the records."""
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

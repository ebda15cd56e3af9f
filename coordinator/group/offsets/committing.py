"""OffsetCommit, TxnOffsetCommit and OffsetDelete: the group's side of them.

Which topics and partitions exist is the caller's to check, before. Source: `OffsetMetadataManager`.

A conscious difference: a commit to a group that isn't there, all of whose metadata is too long, records nothing and
so makes no group. In Kafka one appears in memory that DescribeGroups doesn't see, DeleteGroups does, and no restart
finds.
"""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.group.classic.group import ClassicGroup
from coordinator.group.classic.sessions import ClassicSessions
from coordinator.group.classic.states import PREPARING, STABLE
from coordinator.group.offsets.commit import Committer, NewOffset, OffsetProducer
from coordinator.group.parts import ShardParts
from coordinator.group.records import CommittedOffset, OffsetKey, OffsetRecord
from protocol.errors import Error, KafkaError
from protocol.wire.schema import ZERO_UUID

GROUP_ID_NOT_FOUND_VERSION = 9  # of OffsetCommit


class Committing:
    """Offsets are committed, and deleted, by request."""

    def __init__(self, parts: ShardParts, sessions: ClassicSessions) -> None:
        self._store = parts.store
        self._runtime = parts.runtime
        self._journal = parts.journal
        self._max_metadata = parts.settings.offset_metadata_max_length
        self._sessions = sessions

    def commit(
        self,
        committer: Committer,
        offsets: Sequence[NewOffset],
        *,
        api_version: int,
        retention_ms: int = -1,
    ) -> list[Error]:
        """Each offset's error, in their order. Raises KafkaError with what holds for all of them."""
        errors, accepted = self._accepted(offsets)
        group = self._store.find(committer.group_id)
        if group is not None:
            group.check_commit(committer, accepted, api_version)
            if isinstance(group, ClassicGroup) and group.state in (STABLE, PREPARING):
                self._sessions.restart(group.group_id, group.members[committer.member_id])
        elif committer.generation >= 0:
            unknown = api_version >= GROUP_ID_NOT_FOUND_VERSION
            raise KafkaError(Error.GROUP_ID_NOT_FOUND if unknown else Error.ILLEGAL_GENERATION)
        now_ms = self._runtime.now_ms()
        expire_ms = -1 if retention_ms == -1 else now_ms + retention_ms
        self._journal.write(_records(committer.group_id, accepted, now_ms, expire_ms))
        return errors

    def commit_in_transaction(
        self, committer: Committer, offsets: Sequence[NewOffset], producer: OffsetProducer
    ) -> list[Error]:
        """As `commit`, for an open transaction: the offsets count once its marker comes (KIP-98, KIP-447).

        Kafka 4.3 records no topic id here.
        """
        errors, accepted = self._accepted(offsets)
        group = self._store.find(committer.group_id)
        if group is not None:
            group.check_commit(committer, accepted, None)
        elif committer.generation >= 0:
            raise KafkaError(Error.ILLEGAL_GENERATION)
        nameless = [offset._replace(topic_id=ZERO_UUID) for offset in accepted]
        self._journal.write(_records(committer.group_id, nameless, self._runtime.now_ms(), -1), producer)
        return errors

    def _accepted(self, offsets: Sequence[NewOffset]) -> tuple[list[Error], list[NewOffset]]:
        """Each offset's error, and the offsets that have none."""
        errors = []
        accepted = []
        for offset in offsets:
            if offset.metadata and self._is_too_long(offset.metadata):
                errors.append(Error.OFFSET_METADATA_TOO_LARGE)
            else:
                errors.append(Error.NONE)
                accepted.append(offset)
        return errors, accepted

    def _is_too_long(self, metadata: str) -> bool:
        """Its length is that of Java: a character has one UTF-16 unit or two."""
        limit = self._max_metadata
        if 2 * len(metadata) <= limit:
            return False
        return len(metadata) > limit or len(metadata.encode("utf-16-le", "surrogatepass")) // 2 > limit

    def delete(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> list[Error]:
        """Each partition's error, in their order; no error where nothing was stored.

        Raises KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP for a group with members that aren't consumers.
        """
        group = self._store.find(group_id)
        if group is None:
            raise KafkaError(Error.GROUP_ID_NOT_FOUND)
        group.check_offset_deletion()
        offsets = self._store.offsets
        errors = []
        records = []
        for topic, partition in partitions:
            if group.is_subscribed_to(topic):
                errors.append(Error.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            errors.append(Error.NONE)
            key = OffsetKey(group_id, topic, partition)
            if offsets.get(key) is not None or offsets.is_unstable(key):
                records.append(OffsetRecord(key, None))
        self._journal.write(records)
        return errors


def _records(group_id: str, offsets: Sequence[NewOffset], now_ms: int, expire_ms: int) -> list[OffsetRecord]:
    """The older format, which alone has an expiry, has no topic id."""
    return [
        OffsetRecord(
            OffsetKey(group_id, offset.topic, offset.partition),
            CommittedOffset(
                offset.offset,
                offset.leader_epoch,
                offset.metadata or "",
                now_ms,
                expire_timestamp_ms=expire_ms,
                topic_id=offset.topic_id if expire_ms == -1 else ZERO_UUID,
            ),
        )
        for offset in offsets
    ]

"""The groups of a shard and their offsets, built from its records.

Nothing else changes durable state. A decision is written, and then applied here. At a start the log is
replayed through the same `apply`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from coordinator.group.classic.group import ClassicGroup, adopt_record, group_from, is_of_this_generation
from coordinator.group.consumer import group as replay
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.kinds import Group
from coordinator.group.modern.group import ModernGroup
from coordinator.group.offsets.store import OffsetStore
from coordinator.group.records import (
    AnyRecord,
    CommittedOffset,
    ConsumerGroupRecord,
    GroupRecord,
    OffsetKey,
    OffsetRecord,
    ShareGroupRecord,
    StreamsGroupRecord,
)
from coordinator.group.share import group as share_replay
from coordinator.group.share.group import ShareGroup
from coordinator.group.streams import group as streams_replay
from coordinator.group.streams.group import StreamsGroup
from protocol.errors import Error, KafkaError
from protocol.messages import group_records, group_records_share
from protocol.records.batch import NO_PRODUCER_ID

G = TypeVar("G", ConsumerGroup, ShareGroup, StreamsGroup)
R = TypeVar("R", ConsumerGroupRecord, ShareGroupRecord, StreamsGroupRecord)

StageableGroup = ConsumerGroup | ShareGroup | StreamsGroup


class StagedGroup(NamedTuple):
    """A group with some records applied, and the other records. It is for groups that the server assigns."""

    group: StageableGroup
    others: list[AnyRecord]
    left: frozenset[str] = frozenset()
    """Members of a consumer group whose joins these records stop waiting for."""


class GroupStore:
    """The groups by kind. At most one of the four has a given id."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.classic: dict[str, ClassicGroup] = {}
        self.consumer: dict[str, ConsumerGroup] = {}
        self.share: dict[str, ShareGroup] = {}
        self.streams: dict[str, StreamsGroup] = {}
        self.offsets = OffsetStore()

    def find(self, group_id: str) -> Group | None:
        """The group of this id, of whatever kind."""
        return (
            self.consumer.get(group_id)
            or self.classic.get(group_id)
            or self.share.get(group_id)
            or self.streams.get(group_id)
        )

    def all(self) -> list[Group]:
        return [*self.all_with_offsets(), *self.share.values()]

    def all_with_offsets(self) -> list[Group]:
        """Groups that may commit offsets. Without offsets and members they are deleted."""
        return [*self.consumer.values(), *self.classic.values(), *self.streams.values()]

    def all_assigned(self) -> list[ModernGroup[Any]]:
        """Consumer and share groups, which the server assigns partitions."""
        return [*self.consumer.values(), *self.share.values()]

    def is_of_another_protocol(self, group_id: str) -> bool:
        """True if it is a share or streams group, and so can't become a classic or consumer group."""
        return group_id in self.share or group_id in self.streams

    def clear(self) -> None:
        """Forget all groups, as another node coordinates them. Others that still use these dicts find nothing."""
        self.classic.clear()
        self.consumer.clear()
        self.share.clear()
        self.streams.clear()

    def consumer_group(self, group_id: str) -> ConsumerGroup:
        """Raises KafkaError (GROUP_ID_NOT_FOUND)."""
        group = self.consumer.get(group_id)
        if group is None:
            raise self.is_no("consumer", group_id)
        return group

    def streams_group(self, group_id: str) -> StreamsGroup:
        """Raises KafkaError (GROUP_ID_NOT_FOUND)."""
        group = self.streams.get(group_id)
        if group is None:
            raise self.is_no("streams", group_id)
        return group

    def share_group(self, group_id: str) -> ShareGroup:
        """Raises KafkaError (GROUP_ID_NOT_FOUND)."""
        group = self.share.get(group_id)
        if group is None:
            raise self.is_no("share", group_id)
        return group

    def is_no(self, kind: str, group_id: str) -> KafkaError:
        """The error for a request about a group of this kind that doesn't exist."""
        why = "not found" if self.find(group_id) is None else f"is not a {kind} group"
        return KafkaError(Error.GROUP_ID_NOT_FOUND, f"Group {group_id} {why}.")

    def share_group_to_join(self, group_id: str) -> ShareGroup | None:
        """Return the share group, or a new one that isn't in the store yet: its first record adds it.

        Returns None if a group of another kind has the id, even an empty one.
        """
        group = self.share.get(group_id)
        if group is None and self.find(group_id) is None:
            return ShareGroup(group_id)
        return group

    # --- groups that are decided beside the loop ------------------------------------------------------------------

    def staged(self, group: StageableGroup, records: Iterable[AnyRecord]) -> StagedGroup:
        """Apply the records to a copy of the group. Nothing here changes before `adopt`.

        `group` is the current one, or a new one that isn't in the store yet.
        """
        if isinstance(group, StreamsGroup):
            is_here = self.streams.get(group.group_id) is group
            streams = group.copy() if is_here else StreamsGroup(group.group_id)
            return StagedGroup(streams, _staged(streams, records, StreamsGroupRecord, streams_replay.apply))
        if isinstance(group, ShareGroup):
            is_here = self.share.get(group.group_id) is group
            share = group.copy() if is_here else ShareGroup(group.group_id)
            apply = partial(share_replay.apply, now_ms=self._now_ms())
            return StagedGroup(share, _staged(share, records, ShareGroupRecord, apply))
        is_here = self.consumer.get(group.group_id) is group
        made = group.copy() if is_here else ConsumerGroup(group.group_id)
        awaited = frozenset(made.awaited_joins)
        others = _staged(made, records, ConsumerGroupRecord, replay.apply)
        return StagedGroup(made, others, awaited - made.awaited_joins)

    def adopt(self, staged: StagedGroup) -> None:
        """Take over a staged group, after its records were written. The group hasn't changed since it was staged.

        If a classic group had its id, the records begin with that group's tombstone.
        """
        for record in staged.others:
            self.apply(record)
        group = staged.group
        if isinstance(group, StreamsGroup):
            if group.group_id in self.streams:
                group.follow(self.streams[group.group_id])
            self.streams[group.group_id] = group
        elif isinstance(group, ShareGroup):
            if group.group_id in self.share:
                group.follow(self.share[group.group_id])
            self.share[group.group_id] = group
        else:
            if group.group_id in self.consumer:
                group.follow(self.consumer[group.group_id])
                group.awaited_joins -= staged.left
            self.consumer[group.group_id] = group

    def replace(self, classic: ClassicGroup) -> None:
        """Replace a consumer group by the classic one of the same id, after its records were written.

        The records themselves aren't applied. They would remove the members one by one, with the same result.
        Also, the record of the classic group only holds each member's chosen protocol, and `classic` has all
        that they support.
        """
        self.consumer.pop(classic.group_id, None)
        self.classic[classic.group_id] = classic

    # --- applying records -----------------------------------------------------------------------------------

    def apply(self, record: AnyRecord, producer_id: int = NO_PRODUCER_ID) -> None:
        """Change the durable state by one record of the log. With a producer id it is part of that producer's
        transaction."""
        if isinstance(record, OffsetRecord):
            self._apply_offset(record, producer_id)
        elif isinstance(record, ConsumerGroupRecord):
            self._apply_assigned(
                record, self.consumer, ConsumerGroup, group_records.ConsumerGroupMetadataKey, replay.apply
            )
        elif isinstance(record, ShareGroupRecord):
            apply = partial(share_replay.apply, now_ms=self._now_ms())
            self._apply_assigned(
                record, self.share, ShareGroup, group_records_share.ShareGroupMetadataKey, apply
            )
        elif isinstance(record, StreamsGroupRecord):
            self._apply_assigned(
                record,
                self.streams,
                StreamsGroup,
                group_records.StreamsGroupMetadataKey,
                streams_replay.apply,
            )
        else:
            self._apply_classic(record)

    def apply_offsets(
        self,
        group_id: str,
        committed: Sequence[tuple[OffsetKey, CommittedOffset]],
        first_offset: int,
        producer_id: int,
    ) -> None:
        """Apply offsets of a group. Their records are consecutive from this offset on. There is at least one."""
        if self.find(group_id) is None:
            # Offsets without a group: a consumer that assigns partitions to itself commits them.
            self.classic[group_id] = ClassicGroup(group_id, self._now_ms())
        self.offsets.commit(group_id, committed, first_offset, producer_id)

    def _apply_offset(self, record: OffsetRecord, producer_id: int) -> None:
        key, value = record
        if value is None:
            self.offsets.remove(key.group_id, (key[1:],))
        else:
            self.apply_offsets(key.group_id, ((key, value),), value.record_offset, producer_id)

    def _apply_classic(self, record: GroupRecord) -> None:
        group_id, value = record
        if value is None:
            self.classic.pop(group_id, None)
            return
        self.consumer.pop(group_id, None)
        self.streams.pop(group_id, None)
        group = self.classic.get(group_id)
        if group is not None and is_of_this_generation(group, value):
            adopt_record(group, value, self._now_ms())
        else:
            self.classic[group_id] = group_from(group_id, value)

    def _apply_assigned(
        self, record: R, groups: dict[str, G], new: type[G], end: type, apply: Callable[[G, R], None]
    ) -> None:
        """`end`: the class of the key whose tombstone deletes a group."""
        group_id = record.group_id
        group = groups.get(group_id)
        if record.value is None:
            if isinstance(record.key, end):
                groups.pop(group_id, None)
                return
            if group is None:
                return
        elif group is None:
            # A classic group that only exists for its offsets has no record of its own. This group replaces it.
            self.classic.pop(group_id, None)
            self.consumer.pop(group_id, None)
            group = groups[group_id] = new(group_id)
        apply(group, record)


def _staged(
    made: G, records: Iterable[AnyRecord], record_class: type[R], apply: Callable[[G, R], None]
) -> list[AnyRecord]:
    """Apply the records of the group, and return the others."""
    others: list[AnyRecord] = []
    for record in records:
        if isinstance(record, record_class) and record.group_id == made.group_id:
            apply(made, record)
        else:
            others.append(record)
    return others

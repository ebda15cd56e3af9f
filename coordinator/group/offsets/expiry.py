"""The expiry of offsets, of groups with their last offset, and of offsets of deleted topics.

Source: `GroupCoordinatorShard.cleanupGroupMetadata`, `OffsetMetadataManager.cleanupExpiredOffsets`.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

from coordinator.group.kinds import Group
from coordinator.group.records import AnyRecord, OffsetKey, OffsetRecord
from coordinator.group.shard_parts import ShardParts
from protocol.errors import KafkaError
from protocol.waiting import Waiting, step, turn

log = logging.getLogger("barnabas.groups")

_EXPIRY = ("expire offsets",)

OFFSETS_PER_TURN = 1_000
"""Each group counts as one more. Others are served before the next turn."""


class OffsetExpiry:
    """Looks for expired offsets, every `offsets.retention.check.interval.ms`."""

    def __init__(self, parts: ShardParts) -> None:
        self._store = parts.store
        self._runtime = parts.runtime
        self._journal = parts.journal
        self._retention_ms = parts.settings.offsets_retention_ms
        self._interval_ms = parts.settings.offsets_retention_check_interval_ms

    def start(self) -> None:
        self._runtime.schedule(_EXPIRY, self._interval_ms, self._due)

    def _due(self) -> None:
        self._go_on(self._expire())

    def _go_on(self, steps: Waiting[None]) -> None:
        """Take one step, and schedule the others for later turns."""
        is_over = True
        try:
            is_over = step(steps)
        except KafkaError as error:
            log.warning("expired offsets can't be deleted: %s", error)
        finally:  # an unexpected failure must not end the checks
            if is_over:
                self.start()
            else:
                self._runtime.schedule(_EXPIRY, 0, partial(self._go_on, steps))

    async def _expire(self) -> None:
        """Delete offsets past `offsets.retention.minutes`, and groups that have neither offsets nor members left.

        Others may be served after each step. Raises KafkaError if the deletion can't be recorded.
        """
        records: list[AnyRecord] = []
        left = OFFSETS_PER_TURN
        for group_id in [group.group_id for group in self._store.all_with_offsets()]:
            held = self._store.offsets.held(group_id)
            if held > OFFSETS_PER_TURN:
                await self._expire_many(group_id)
                continue
            group = self._store.find(group_id)
            if group is None:
                continue
            records += self._expired(group)
            left -= 1 + held
            if left <= 0:
                self._write(records)
                await turn()
                records, left = [], OFFSETS_PER_TURN
        self._write(records)

    async def _expire_many(self, group_id: str) -> None:
        """Do the same for a group with many offsets, in several steps."""
        keys = self._store.offsets.committed_keys(group_id)
        while some := [*islice(keys, OFFSETS_PER_TURN)]:
            group = self._store.find(group_id)
            if group is None:
                return
            self._write(self._tombstones(group, some))
            await turn()
        group = self._store.find(group_id)
        if group is not None and not self._store.offsets.held(group_id):
            self._write(self._expired(group))

    def _write(self, records: Sequence[AnyRecord]) -> None:
        if records:
            log.info("%d offsets and groups expired", len(records))
        self._journal.write_in_parts(records)

    def _expired(self, group: Group) -> Sequence[AnyRecord]:
        """The tombstones of a group's expired offsets, and that of the group if it has no offsets and members left."""
        offsets = self._store.offsets
        records = self._tombstones(group, offsets.committed_keys(group.group_id))
        if len(records) < offsets.held(group.group_id) or offsets.has_open_transaction(group.group_id):
            return records
        return [*records, *group.tombstones()] if group.is_empty else records

    def _tombstones(self, group: Group, keys: Iterable[OffsetKey]) -> Sequence[AnyRecord]:
        """The tombstones of these offsets, as far as they have expired. Offsets of a subscribed topic don't expire."""
        retention_start = group.retention_start()
        if retention_start is None:
            return []
        now_ms = self._runtime.now_ms()
        offsets = self._store.offsets
        records = []
        for key in keys:
            offset = offsets.get(key)
            if offset is None or group.is_subscribed_to(key.topic):
                continue
            expires_ms = offset.expire_timestamp_ms
            if expires_ms == -1:
                expires_ms = retention_start(offset) + self._retention_ms
            if now_ms >= expires_ms and not offsets.is_unstable(key):
                records.append(OffsetRecord(key, None))
        return records

    def forget_topics(self, topics: Sequence[tuple[str, bytes]], just_now: Container[str]) -> Iterator[int]:
        """Delete the offsets of deleted topics (name, id). Offsets without an id only go if their topic's
        name was deleted just now.

        Others may be served after each step. Each yields its cost, in keys. Raises KafkaError if the deletion
        can't be recorded.
        """
        gone: dict[str, list[bytes]] = {}
        for name, topic_id in topics:
            gone.setdefault(name, []).append(topic_id)
        for keys, cost in self._store.offsets.keys_of_topics(gone, just_now):
            self._journal.write_in_parts(OffsetRecord(key, None) for key in keys)
            yield cost

"""What expires: offsets, groups with their last one, offsets of deleted topics.

Source: `GroupCoordinatorShard.cleanupGroupMetadata`, `OffsetMetadataManager.cleanupExpiredOffsets`.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

from coordinator.group.kinds import Group
from coordinator.group.parts import ShardParts
from coordinator.group.records import AnyRecord, OffsetKey, OffsetRecord
from protocol.errors import KafkaError
from protocol.waiting import Waiting, step, turn

log = logging.getLogger("barnabas.groups")

_EXPIRY = ("expire offsets",)

OFFSETS_PER_TURN = 1_000
"""And groups, which count as one each: others are served before the next ones."""


class OffsetExpiry:
    """Looks for what has expired, every `offsets.retention.check.interval.ms`."""

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
        """With some of it; the rest has turns of its own."""
        is_over = True
        try:
            is_over = step(steps)
        except KafkaError as error:
            log.warning("expired offsets can't be deleted: %s", error)
        finally:  # a failure that nobody thought of must not be the last look
            if is_over:
                self.start()
            else:
                self._runtime.schedule(_EXPIRY, 0, partial(self._go_on, steps))

    async def _expire(self) -> None:
        """Delete what `offsets.retention.minutes` says, and the groups that are left with nothing and nobody. Others
        may be served after each step. Raises KafkaError where that can't be recorded."""
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
        """The same of a group with many offsets, which it needn't lose in one step."""
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
        """The tombstones of what has expired of a group, and its own where it is left with nothing and nobody."""
        offsets = self._store.offsets
        records = self._tombstones(group, offsets.committed_keys(group.group_id))
        if len(records) < offsets.held(group.group_id) or offsets.has_open_transaction(group.group_id):
            return records
        return [*records, *group.tombstones()] if group.is_empty else records

    def _tombstones(self, group: Group, keys: Iterable[OffsetKey]) -> Sequence[AnyRecord]:
        """Of those of a group's offsets that have expired: none has of a topic that somebody subscribes to."""
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
        """Topics (name, id) were deleted: their offsets go, those without an id only of names that were deleted just
        now. Others may be served after each step, and what it yields is what it cost, in keys. Raises KafkaError where
        that can't be recorded."""
        gone: dict[str, list[bytes]] = {}
        for name, topic_id in topics:
            gone.setdefault(name, []).append(topic_id)
        for keys, cost in self._store.offsets.keys_of_topics(gone, just_now):
            self._journal.write_in_parts(OffsetRecord(key, None) for key in keys)
            yield cost

"""Offsets that expire, groups that go with their last one, and offsets of topics that are deleted.

Source: `GroupCoordinatorShard.cleanupGroupMetadata`, `OffsetMetadataManager.cleanupExpiredOffsets`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial

from coordinator.group.kinds import Group
from coordinator.group.parts import ShardParts
from coordinator.group.records import AnyRecord, OffsetKey, OffsetRecord
from protocol.errors import KafkaError

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
        self._go_on(deque(), is_first=True)

    def _go_on(self, waiting: deque[str], *, is_first: bool = False) -> None:
        """With some of the groups; the others have turns of their own."""
        try:
            if is_first:
                waiting.extend(group.group_id for group in self._store.all())
            self._expire(waiting)
        except KafkaError as error:
            log.warning("expired offsets can't be deleted: %s", error)
            waiting.clear()
        finally:  # a failure that nobody thought of must not be the last look
            if waiting:
                self._runtime.schedule(_EXPIRY, 0, partial(self._go_on, waiting))
            else:
                self.start()

    def _expire(self, waiting: deque[str]) -> None:
        """Delete what `offsets.retention.minutes` says, and the groups that are left with nothing and nobody.

        Raises KafkaError where that can't be recorded.
        """
        records: list[AnyRecord] = []
        offsets_left = OFFSETS_PER_TURN
        while waiting and offsets_left > 0:
            group = self._store.find(waiting.popleft())
            if group is None:
                continue
            offsets_left -= 1 + self._store.offsets.held(group.group_id)
            keys, all_expired = self._expired(group)
            records += [OffsetRecord(key, None) for key in keys]
            if all_expired and group.is_empty:
                records += group.tombstones()
        if records:
            log.info("%d offsets and groups expired", len(records))
        self._journal.write_in_parts(records)

    def _expired(self, group: Group) -> tuple[list[OffsetKey], bool]:
        """The expired keys, of topics that nobody subscribes to, and whether they are all that there is."""
        offsets = self._store.offsets
        topics = offsets.of_group(group.group_id)
        all_expired = not offsets.has_open_transaction(group.group_id)
        if not topics:
            return [], all_expired
        retention_start = group.retention_start()
        if retention_start is None:
            return [], False
        now_ms = self._runtime.now_ms()
        keys = []
        for topic, partitions in topics.items():
            if group.is_subscribed_to(topic):
                all_expired = False
                continue
            for partition, offset in partitions.items():
                key = OffsetKey(group.group_id, topic, partition)
                expires_ms = offset.expire_timestamp_ms
                if expires_ms == -1:
                    expires_ms = retention_start(offset) + self._retention_ms
                if now_ms >= expires_ms and not offsets.is_unstable(key):
                    keys.append(key)
                else:
                    all_expired = False
        return keys, all_expired

    def forget_topics(self, topics: Sequence[tuple[str, bytes]]) -> Iterator[int]:
        """Topics (name, id) were deleted: their offsets go. Others may be served after each step, and what it yields is
        what it cost, in keys. Raises KafkaError where that can't be recorded."""
        gone: dict[str, list[bytes]] = {}
        for name, topic_id in topics:
            gone.setdefault(name, []).append(topic_id)
        for keys, cost in self._store.offsets.keys_of_topics(gone):
            self._journal.write_in_parts(OffsetRecord(key, None) for key in keys)
            yield cost

"""The groups of one partition of `__consumer_offsets`, and how its records make them.

Decide → append → apply: whatever is decided goes through `commit`, and `apply` alone changes durable state. A start
replays the log through the same `apply`, then calls `start`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, NamedTuple

from coordinator.group import admin, dispatch
from coordinator.group.classic import rebalance
from coordinator.group.classic.group import ClassicGroup
from coordinator.group.classic.states import DEAD
from coordinator.group.consumer import describe, replay, timers
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.heartbeat import heartbeat as consumer_heartbeat
from coordinator.group.offsets import committing, expiry, fetching
from coordinator.group.offsets.store import OffsetStore
from coordinator.group.records import (
    AnyRecord,
    ConsumerGroupRecord,
    GroupRecord,
    OffsetRecord,
    decode_record,
    encode_record,
)
from coordinator.group.settings import ConsumerTimeouts, GroupSettings
from coordinator.group.topics import NoTopics, Topics
from coordinator.ports import Bytes, Record, Runtime
from protocol.errors import Error, KafkaError
from protocol.messages.groups_classic import JoinGroupResponse, SyncGroupResponse
from protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

log = logging.getLogger("barnabas.groups")

_EXPIRY = ("expire offsets",)
PART_BYTES = 64 * 1024  # of records that need not be one batch; far below what a batch may have


class Client(NamedTuple):
    """Who sent a request. `host` is its address with a slash before it, as Kafka records it."""

    client_id: str
    host: str
    api_version: int


class GroupShard:
    """One shard. It is of one thread; replies are called while a request or a timer is served."""

    last_record_counts: ClassVar[bool] = False  # offsets hang on their groups, and on transactions

    def __init__(
        self,
        runtime: Runtime,
        settings: GroupSettings,
        topics: Topics | None = None,
        timeouts_of: Callable[[str], ConsumerTimeouts] | None = None,
    ) -> None:
        """`timeouts_of` gives those of a group by its id; Kafka's defaults where it isn't given."""
        self.runtime = runtime
        self.settings = settings
        self.topics: Topics = topics or NoTopics()
        self.timeouts_of = timeouts_of or (lambda group_id: ConsumerTimeouts())
        self.groups: dict[str, ClassicGroup] = {}
        self.consumer_groups: dict[str, ConsumerGroup] = {}
        """A group's id is in one of the two at most."""
        self.offsets = OffsetStore()
        self.other_groups: set[str] = set()
        """Share and streams groups, which other brokers have recorded: nothing here serves them."""
        self.topic_hashes: dict[str, int] = {}  # by name, as far as they have been asked for
        self.topics_created_version = self.topics.version
        """The version of the metadata that last brought a new topic."""
        self.resolving: set[str] = set()
        """Groups whose regular expressions are about to be resolved."""

    # ---- what it does, each verb in its own room

    join = dispatch.join
    sync = dispatch.sync
    heartbeat = dispatch.heartbeat
    leave = dispatch.leave
    consumer_heartbeat = consumer_heartbeat

    commit_offsets = committing.commit_offsets
    commit_offsets_in_transaction = committing.commit_offsets_in_transaction
    delete_offsets = committing.delete_offsets
    check_fetch = fetching.check_fetch
    fetch_offsets = fetching.fetch_offsets
    fetch_all_offsets = fetching.fetch_all_offsets
    forget_topics = expiry.forget_topics

    list_groups = admin.list_groups
    describe_group = admin.describe_group
    describe_consumer_group = describe.describe_consumer_group
    delete_groups = admin.delete_groups

    def consumer_group(self, group_id: str) -> ConsumerGroup:
        """Raises KafkaError (GROUP_ID_NOT_FOUND)."""
        group = self.consumer_groups.get(group_id)
        if group is None:
            other = group_id in self.groups or group_id in self.other_groups
            raise KafkaError(
                Error.GROUP_ID_NOT_FOUND,
                f"Group {group_id} {'is not a consumer group' if other else 'not found'}.",
            )
        return group

    # ---- records

    def commit(
        self,
        records: Sequence[AnyRecord],
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        guard: object | None = None,
    ) -> None:
        """Append records as one batch and apply them. Raises KafkaError where they can't be written: nothing is
        changed then."""
        if records:
            encoded = [encode_record(record) for record in records]
            self._commit(records, encoded, producer_id, producer_epoch, guard)

    def commit_in_parts(self, records: Iterable[AnyRecord]) -> None:
        """Append and apply records that need not come to be together, some at a time. Raises KafkaError where one part
        can't be written: those before it are in force."""
        part: list[AnyRecord] = []
        encoded: list[Record] = []
        size_bytes = 0
        for record in records:
            key, value = encode_record(record)
            if part and size_bytes + len(key) + len(value or b"") > PART_BYTES:
                self._commit(part, encoded)
                part, encoded, size_bytes = [], [], 0
            part.append(record)
            encoded.append((key, value))
            size_bytes += len(key) + len(value or b"")
        if part:
            self._commit(part, encoded)

    def _commit(
        self,
        records: Sequence[AnyRecord],
        encoded: Sequence[Record],
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        guard: object | None = None,
    ) -> None:
        end_offset = self.runtime.append(
            encoded,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            guard=guard,
        )
        first = end_offset - len(encoded)
        for index, record in enumerate(records):
            if isinstance(record, OffsetRecord) and record.value is not None:
                record = OffsetRecord(record.key, record.value._replace(record_offset=first + index))
            self.apply(record, producer_id)

    def apply(self, record: AnyRecord, producer_id: int = NO_PRODUCER_ID) -> None:
        """Change the durable state by one record of the log."""
        if isinstance(record, OffsetRecord):
            group_id = record.key.group_id
            if record.value is not None and not (
                group_id in self.groups or group_id in self.consumer_groups or group_id in self.other_groups
            ):
                # Offsets without a group: somebody commits who assigns partitions to itself.
                self.groups[group_id] = ClassicGroup(group_id, self.runtime.now_ms())
            self.offsets.apply(record.key, record.value, producer_id)
        elif isinstance(record, GroupRecord):
            self._apply_group(record)
        elif isinstance(record, ConsumerGroupRecord):
            replay.apply(self, record)
        elif record.exists is not None:
            if record.exists:
                self.groups.pop(record.group_id, None)
                self.consumer_groups.pop(record.group_id, None)
                self.other_groups.add(record.group_id)
            else:
                self.other_groups.discard(record.group_id)

    def _apply_group(self, record: GroupRecord) -> None:
        if record.value is None:
            self.groups.pop(record.group_id, None)
            return
        self.consumer_groups.pop(record.group_id, None)
        group = self.groups.get(record.group_id)
        if group is not None and group.is_said_by(record.value):
            group.adopt(record.value, self.runtime.now_ms())
        else:
            self.groups[record.group_id] = ClassicGroup.from_record(record.group_id, record.value)

    def replay(self, key: Bytes, value: Bytes | None, record_offset: int, producer_id: int) -> None:
        """One record of the log, at start. Raises CodecError for one that this version of Kafka doesn't read."""
        record = decode_record(key, value, record_offset)
        if record is None:
            log.warning("the record at offset %d is of no known type; it stays in the log", record_offset)
        else:
            self.apply(record, producer_id)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """A transaction's marker is in the log, read or just written: its offsets count now, or never."""
        self.offsets.end_transaction(producer_id, commit=commit)

    # ---- start and end

    def start(self) -> None:
        """Everything is replayed: sessions begin anew, and too large groups shrink."""
        for group in self.groups.values():
            for member in group.members.values():
                rebalance.restart_session(self, group, member)
            if len(group.members) > self.settings.max_size:
                rebalance.prepare_rebalance(self, group, f"group.max.size is {self.settings.max_size}")
        timers.restart_all(self)
        self.topics_created_version = self.topics.version
        self._expire_later()

    def topics_changed(self, names: Iterable[str], *, created: bool) -> None:
        """The metadata changed: topics of these names are new (`created`: some of them), others than before, or gone.

        Who subscribes to one of them looks at the next heartbeat what that means.
        """
        if created:
            self.topics_created_version = self.topics.version
        changed = {*names}
        for name in changed:
            self.topic_hashes.pop(name, None)
        for group in self.consumer_groups.values():
            if any(group.is_subscribed_to(name) for name in changed):
                group.request_refresh()

    def unload(self) -> None:
        """The partition is led elsewhere, or gone: who waits here has to look for the coordinator again."""
        for group in self.groups.values():
            group.move_to(DEAD, self.runtime.now_ms())
            for member in group.members.values():
                group.answer_join(
                    member, JoinGroupResponse(member_id=member.member_id, error_code=Error.NOT_COORDINATOR)
                )
                member.answer_sync(SyncGroupResponse(error_code=Error.NOT_COORDINATOR))
        self.groups.clear()
        self.consumer_groups.clear()

    def _expire_later(self) -> None:
        self.runtime.schedule(_EXPIRY, self.settings.offsets_retention_check_interval_ms, self._expire)

    def _expire(self) -> None:
        try:
            expiry.expire(self)
        except KafkaError as error:
            log.warning("expired offsets can't be deleted: %s", error)
        self._expire_later()

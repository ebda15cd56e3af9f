"""The groups of one partition of `__consumer_offsets`: the entry to this package, made of its parts.

Decide → append → apply. Each decision goes through the journal, and only the store changes durable state. At
a start the log is replayed through the same `apply`, then `start` is called.

Appended records are applied at once, so that the next request sees them, although they aren't committed yet.
So every answer waits at the gate, those of reads too. `ask` and `ask_waiting` take care of that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterator, Sequence, Set
from contextlib import AbstractContextManager
from typing import TypeVar

from coordinator.commit_waiters import Gate, let_out
from coordinator.group.admin import Administration
from coordinator.group.classic.rebalancing import Rebalancing
from coordinator.group.classic.requests import Join, Joining, Membership
from coordinator.group.consumer.classic_members import ClassicMembers
from coordinator.group.consumer.decision import ConsumerSessions
from coordinator.group.consumer.heartbeats import Heartbeats
from coordinator.group.consumer.migration import Leaving, Migration, most_leaving
from coordinator.group.consumer.regexes import Regexes
from coordinator.group.consumer.steps import HeartbeatSteps
from coordinator.group.member_memory import MemberMemory
from coordinator.group.modern.topic_hashes import TopicHashes
from coordinator.group.offsets.committing import Committing
from coordinator.group.offsets.expiry import OffsetExpiry
from coordinator.group.offsets.store import fetch_all_offsets, fetch_offsets
from coordinator.group.ports import Client, Deferred, KnownTopics
from coordinator.group.records import decode_record
from coordinator.group.shard_parts import Journal, ShardParts, SharePorts, Undecided
from coordinator.group.share.share_groups import ShareGroups
from coordinator.group.statistics import GroupStatistics
from coordinator.group.store import GroupStore
from coordinator.group.streams.heartbeats import StreamsHeartbeats
from coordinator.ports import Barriers, Runtime, WhenCommitted
from coordinator.settings import ConsumerTimeouts, GroupSettings, StreamsConfig
from protocol.errors import Error, KafkaError
from protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberResponse,
    OffsetFetchRequestTopics,
    OffsetFetchResponseTopics,
    SyncGroupRequest,
    SyncGroupResponse,
)
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest
from protocol.messages.groups_share import ShareGroupHeartbeatRequest
from protocol.messages.groups_streams import StreamsGroupHeartbeatRequest
from protocol.waiting import Later, Waiting
from protocol.wire.primitives import Bytes

log = logging.getLogger("barnabas.groups")


A = TypeVar("A")


class GroupShard:
    """One shard, used by one thread. Replies are called while a request or a timer is served."""

    def __init__(
        self,
        runtime: Runtime,
        settings: GroupSettings,
        topics: KnownTopics,
        timeouts_of: Callable[[str], ConsumerTimeouts],
        member_memory: MemberMemory,
        streams_config_of: Callable[[str], StreamsConfig],
        share: SharePorts,
        statistics: GroupStatistics | None = None,
    ) -> None:
        """`timeouts_of` returns the timeouts of a consumer group by its id, `streams_config_of` the settings
        of a streams group. All shards of a node share `member_memory` and `statistics`."""
        self._runtime = runtime
        self._commit_timeout_ms = settings.offsets_commit_timeout_ms
        self.groups = GroupStore(runtime.now_ms)
        self._member_memory = member_memory
        member_memory.count(self.groups)
        self.offsets = self.groups.offsets
        self.gate = Gate(runtime, closes_on_loss=True)
        self._hashes = TopicHashes(topics)
        self.journal = Journal(self.gate, self.groups)
        self._undecided = Undecided(self.groups)
        parts = ShardParts(
            runtime=runtime,
            store=self.groups,
            journal=self.journal,
            settings=settings,
            topics=topics,
            hashes=self._hashes,
            undecided=self._undecided,
            member_memory=member_memory,
            statistics=GroupStatistics() if statistics is None else statistics,
            timeouts_of=timeouts_of,
            streams_config_of=streams_config_of,
            share=share,
        )
        self.share_groups = ShareGroups(parts, self.gate)
        self._rebalancing = Rebalancing(parts)
        self._sessions = ConsumerSessions(parts, self._member_is_late)
        self.regexes = Regexes(parts)
        migration = Migration(parts, self._rebalancing, self._sessions)
        self._streams = StreamsHeartbeats(parts, self._rebalancing)
        self._leaving = Leaving(parts, migration, self._sessions)
        steps = HeartbeatSteps(parts, self.regexes, self._sessions)
        self._consumer_heartbeats = Heartbeats(
            parts, migration=migration, leaving=self._leaving, steps=steps, sessions=self._sessions
        )
        self._joining = Joining(parts, self._rebalancing)
        self._membership = Membership(parts, self._rebalancing)
        self._classic_members = ClassicMembers(
            parts, migration=migration, leaving=self._leaving, steps=steps, sessions=self._sessions
        )
        committing = Committing(parts, self._rebalancing.sessions)
        self._expiry = OffsetExpiry(parts)
        administration = Administration(parts, self._rebalancing)
        self._offer(committing, administration)

    def _offer(self, committing: Committing, administration: Administration) -> None:
        """Offer the methods that one part serves alone."""
        self.consumer_heartbeat = self._consumer_heartbeats.heartbeat
        self.streams_heartbeat = self._streams.heartbeat
        self.commit_offsets = committing.commit
        self.commit_offsets_in_transaction = committing.commit_in_transaction
        self.stage_deletion = committing.stage_deletion
        self.delete_offsets = committing.delete
        self.list_groups = administration.list_groups
        self.describe_group = administration.describe_group
        self.describe_consumer_group = administration.describe_consumer_group
        self.describe_streams_group = administration.describe_streams_group
        self.delete_groups = administration.delete_groups

    def _member_is_late(self, group_id: str, member_id: str, reason: str) -> None:
        self._leaving.fence_late(group_id, member_id, reason)

    # --- the way out of every answer ------------------------------------------------------------------------

    async def ask(self, question: Callable[[GroupShard], A]) -> A | KafkaError:
        """Answer a question at once, and return the answer, or the KafkaError, once it may be known: see `let_out`."""
        answer: A | KafkaError
        try:
            answer = question(self)
        except KafkaError as error:
            answer = error.as_value()
        return answer if self.gate.is_open else await self.let_out(answer)

    async def ask_waiting(self, question: Callable[[GroupShard], Waiting[A]]) -> A | KafkaError:
        """Answer as `ask` does, if the answer has to wait for others first."""
        answer: A | KafkaError
        try:
            answer = await question(self)
        except KafkaError as error:
            answer = error.as_value()
        return answer if self.gate.is_open else await self.let_out(answer)

    def let_out(self, answer: A | KafkaError) -> Waiting[A | KafkaError]:
        """Hold the answer back as `commit_waiters.let_out` does, for as long as a client waits
        (`offsets.commit.timeout.ms`)."""
        return let_out(answer, self.gate, self._runtime, self._commit_timeout_ms)

    # --- members --------------------------------------------------------------------------------------------
    #
    # A request of the classic protocol goes to whichever kind of group exists. A consumer group without
    # members becomes a classic one as soon as a member joins by the classic protocol (Kafka:
    # `GroupMetadataManager`, classicGroupJoin and its neighbours).

    def join(
        self, client: Client, request: JoinGroupRequest
    ) -> Deferred[JoinGroupResponse] | Later[JoinGroupResponse]:
        """JoinGroup. Raises KafkaError."""
        join = Join(client, request, Later())
        group = self.groups.consumer.get(join.group_id)
        if group is None or group.is_empty:
            self._joining.join(join)
        elif self._joining.is_sound(join):
            return self._classic_members.join(join, group) or join.answer
        return join.answer

    def sync(self, request: SyncGroupRequest) -> SyncGroupResponse | Later[SyncGroupResponse]:
        """SyncGroup. Raises KafkaError."""
        group = self.groups.consumer.get(request.group_id)
        if group is None or group.is_empty:
            return self._membership.sync(request)
        return self._classic_members.sync(request, group)

    def classic_heartbeat(self, request: HeartbeatRequest) -> Error:
        """Heartbeat of the classic protocol. Raises KafkaError."""
        group = self.groups.consumer.get(request.group_id)
        if group is None:
            return self._membership.heartbeat(request)
        return self._classic_members.heartbeat(request, group)

    def leave(self, request: LeaveGroupRequest) -> tuple[Error, list[MemberResponse]]:
        """LeaveGroup. Returns an error for the whole request, or one for each member. Raises KafkaError."""
        group = self.groups.consumer.get(request.group_id)
        if group is None:
            return self._membership.leave(request)
        return Error.NONE, self._classic_members.leave(request, group)

    def leaving_in_passing(self, group_id: str) -> int | None:
        """The number of members of a consumer group that may leave in one call, at some 10 ms. None for a
        classic group."""
        group = self.groups.consumer.get(group_id)
        return None if group is None else most_leaving(group)

    def expire_member(self, group_id: str, member_id: str) -> None:
        """End a member's session at once, by its timer.

        Raises KafkaError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID.
        """
        group = self.groups.find(group_id)
        if group is None:
            raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not group.has_member(member_id):
            raise KafkaError(Error.UNKNOWN_MEMBER_ID, f"Group {group_id} has no member {member_id}.")
        if group_id in self.groups.classic:
            self._rebalancing.sessions.watch(group_id, member_id, 0)
        elif group_id in self.groups.consumer:
            self._sessions.expire(group_id, member_id)
        elif group_id in self.groups.share:
            self.share_groups.expire(group_id, member_id)
        else:
            self._streams.sessions.expire(group_id, member_id)

    def member_waits(
        self,
        request: ConsumerGroupHeartbeatRequest
        | ShareGroupHeartbeatRequest
        | StreamsGroupHeartbeatRequest
        | JoinGroupRequest,
    ) -> AbstractContextManager[None]:
        """Keep the member from being late while its deferred request waits to be decided."""
        instance_id: str | None = None
        if isinstance(request, JoinGroupRequest):
            instance_id = request.group_instance_id
        elif not isinstance(request, ShareGroupHeartbeatRequest):
            instance_id = request.instance_id
        return self._undecided.waits(request.group_id, request.member_id, instance_id)

    # --- offsets --------------------------------------------------------------------------------------------

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> None:
        """Check that this member may fetch the group's offsets. Raises KafkaError."""
        group = self.groups.find(group_id)
        if group is not None:
            group.check_fetch(member_id, epoch)

    def fetch_offsets(
        self, group_id: str, topics: Sequence[OffsetFetchRequestTopics], *, require_stable: bool
    ) -> list[OffsetFetchResponseTopics]:
        """The offsets of the requested partitions; −1 for those without one."""
        return fetch_offsets(self.offsets, group_id, topics, require_stable=require_stable)

    def fetch_all_offsets(self, group_id: str, *, require_stable: bool) -> list[OffsetFetchResponseTopics]:
        """All offsets that the group has committed."""
        return fetch_all_offsets(self.offsets, group_id, require_stable=require_stable)

    def forget_topics(self, topics: Sequence[tuple[str, bytes]], just_now: Container[str]) -> Iterator[int]:
        """See `OffsetExpiry.forget_topics`, `ShareGroups.forget_topics`."""
        yield from self._expiry.forget_topics(topics, just_now)
        yield from self.share_groups.forget_topics(topics)

    # --- administration -------------------------------------------------------------------------------------

    def group_ids(self) -> list[str]:
        return [group.group_id for group in self.groups.all()]

    # --- the log --------------------------------------------------------------------------------------------

    @staticmethod
    def stands_alone(_value: Bytes | None) -> bool:
        """False: no record stands alone, because offsets depend on their groups and on transactions."""
        return False

    def replay(self, key: Bytes, value: Bytes | None, record_offset: int, producer_id: int) -> None:
        """Apply one record of the log while loading. Raises CodecError for one that this version of Kafka
        doesn't read."""
        record = decode_record(key, value, record_offset)
        if record is None:
            log.warning("the record at offset %d has an unknown type; it stays in the log", record_offset)
        else:
            self.groups.apply(record, producer_id)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Apply a transaction's marker from the log: its offsets count now, or never."""
        self.offsets.end_transaction(producer_id, commit=commit)

    def complete_transaction(
        self, producer_id: int, *, commit: bool, end_offset: int, then: WhenCommitted
    ) -> None:
        """Apply a transaction's marker that was appended to the shard's partition. It ends at this offset.

        Its offsets count from now on, or never. Like all state of the shard, this is secret until it is
        committed. Then `then` is called.
        """
        self.offsets.end_transaction(producer_id, commit=commit)
        self.gate.appended(end_offset)
        self.gate.when_committed(then)

    # --- start and end --------------------------------------------------------------------------------------

    def start(self, end_offset: int = 0) -> None:
        """Start the shard after everything up to this offset is replayed.

        Sessions restart, and groups that are too large shrink. Answers wait until all that is committed.
        """
        if end_offset:
            self.gate.appended(end_offset)
        self._member_memory.was_loaded()
        self._rebalancing.restart_all()
        self._sessions.restart_all()
        self._streams.sessions.restart_all()
        self.share_groups.restart_all()
        self.regexes.topics_were_created()
        self._expiry.start()

    def topics_changed(self, names: Set[str], *, created: bool) -> None:
        """Note that topics of these names were added, changed or deleted. `created`: some of them are new.

        A group that subscribes to one of them checks it at the next heartbeat.
        """
        if created:
            self.regexes.topics_were_created()
        self._hashes.forget(names)
        for group in self.groups.all_assigned():
            if not names.isdisjoint(group.topics):
                group.request_refresh()
                self._member_memory.may_be_more()
        for streams in self.groups.streams.values():
            if streams.requires_any(names):
                streams.request_refresh()
                self._member_memory.may_be_more()

    def interpose(self, barriers: Barriers | None) -> None:
        """Let a test hold the shard at these barriers from now on, or no longer (None)."""
        self._rebalancing.barriers = barriers

    def unload(self) -> None:
        """Stop the shard, as its partition is gone or has another leader. Those who wait have to look for the
        coordinator again."""
        self._rebalancing.give_up()
        self.gate.close()
        self.share_groups.give_up()
        self.groups.clear()

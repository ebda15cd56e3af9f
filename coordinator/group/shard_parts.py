"""The parts that all behaviour of a shard's groups works with: the effects of decisions, time limits, the journal.

A decision about a group consists of records, which the journal appends and applies as one, and of effects:
timers and log lines. A member whose request waits to be decided beside the loop isn't late meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from coordinator.commit_waiters import Gate
from coordinator.group.classic.group import ClassicGroup
from coordinator.group.member_memory import MemberMemory
from coordinator.group.modern.group import AssignedGroup
from coordinator.group.modern.topic_hashes import TopicHashes
from coordinator.group.offsets.commit import NO_PRODUCER, OffsetProducer, StagedOffsets, Tombstones
from coordinator.group.ports import Deferred, KnownTopics
from coordinator.group.records import AnyRecord, encode_record
from coordinator.group.statistics import GroupStatistics
from coordinator.group.store import GroupStore, StageableGroup, StagedGroup
from coordinator.persister import Persister
from coordinator.ports import CoordinatorRecord, Runtime
from coordinator.settings import ConsumerTimeouts, GroupSettings, ShareTimeouts, StreamsConfig
from protocol.errors import KafkaError, cannot_apply

log = logging.getLogger("barnabas.groups")


# --- the effects of a decision besides its records ------------------------------------------------------------


@dataclass(slots=True)
class Effects:
    """The effects of one decision."""

    effects: list[Callable[[], None]] = field(init=False, default_factory=list)
    """Timers and log lines. They are done when the decision is taken. It may be made in a thread, and more
    than once."""
    once_written: list[Callable[[], None]] = field(init=False, default_factory=list)
    """Effects of its written records, such as ending a time limit along with a state. They are skipped if
    writing fails."""

    def take_effect(self) -> None:
        """Do the effects, once, before the records are written. Effects of a step count even if a later step
        refuses."""
        for effect in self.effects:
            effect()

    def was_written(self) -> None:
        """Do the effects that follow the records, once they are written. Another group may have taken the
        group's place."""
        for effect in self.once_written:
            effect()


# --- members whose requests wait to be decided: they aren't late meanwhile --------------------------------------
#
# In Kafka a timeout is an event that comes after the request in the queue of the group's partition.


class Undecided:
    """Members with undecided requests, of groups of every kind. It knows ids only, as a decision may convert
    a group to another protocol."""

    def __init__(self, store: GroupStore) -> None:
        self._store = store
        self._counts: dict[tuple[str, str], int] = {}
        """The number of undecided requests, by group and member. Members without any have no entry."""

    @contextmanager
    def waits(self, group_id: str, member_id: str, instance_id: str | None) -> Iterator[None]:
        """Hold off the timers of the member while its request waits, and those of the member with that instance id."""
        group = self._store.consumer.get(group_id) or self._store.classic.get(group_id)
        owner = None if group is None or instance_id is None else group.static_members.get(instance_id)
        members = {(group_id, each) for each in (member_id, owner) if each}
        for member in members:
            self._counts[member] = self._counts.get(member, 0) + 1
        try:
            yield
        finally:
            for member in members:
                left = self._counts.pop(member) - 1
                if left:
                    self._counts[member] = left

    def is_of(self, group_id: str, member_id: str) -> bool:
        """True if a request of this member waits."""
        return (group_id, member_id) in self._counts


# --- time limits of members of groups that the server assigns: a late member is fenced, as if it had left -------
#
# If a timer fires for a member that is gone, or in another group by then, it does nothing. If the member
# can't be fenced now, the timer fires again after a while, unless it was put off or ended by then (Kafka:
# `CoordinatorTimerImpl`).

RETRY_MS = 500
"""The delay before a timer fires again if the member's request was undecided, or the member couldn't be fenced."""

Late = Callable[[str, str, str], None]
"""Deals with a late member, given its group's id, its id, and the reason. Raises KafkaError if that can't be
recorded."""

_Key = tuple[str, str, str]
"""The key of a timer: the kind of limit, the group, the member."""


class TimedMember(Protocol):
    """The part of a member that a time limit needs."""

    @property
    def member_id(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    @property
    def rebalance_timeout_ms(self) -> int: ...


M = TypeVar("M", bound=TimedMember)


class Sessions:
    """The session timers of members. Their keys begin with `session`."""

    def __init__(
        self,
        runtime: Runtime,
        late: Late,
        *,
        is_undecided: Callable[[str, str], bool],
        session: str,
        timeouts_of: Callable[[str], ConsumerTimeouts | ShareTimeouts | StreamsConfig],
    ) -> None:
        """`is_undecided` takes a group's and a member's id, and is true while a request of the member waits.
        `timeouts_of` returns the timeouts of a group by its id."""
        self._runtime = runtime
        self._is_undecided = is_undecided
        self._late = late
        self._session = session
        self._timeouts_of = timeouts_of

    def _schedule(self, key: _Key, delay_ms: int, late: Callable[[], None]) -> None:
        self._runtime.schedule(key, delay_ms, partial(self._due, key, late))

    def _due(self, key: _Key, late: Callable[[], None]) -> None:
        _, group_id, member_id = key
        if self._is_undecided(group_id, member_id):
            self._schedule(key, RETRY_MS, late)  # the decision may put it off, or end it
            return
        try:
            late()
        except KafkaError as error:
            log.warning("group %s: %s can't be fenced now: %s", group_id, member_id, error)
            self._schedule(key, RETRY_MS, late)

    def restart(self, group_id: str, member_id: str, timeout_ms: int | None = None) -> None:
        """Restart the session of a member that was heard of. By default it lasts for the group's session timeout."""
        self._schedule(
            (self._session, group_id, member_id),
            self._timeouts_of(group_id).session_timeout_ms if timeout_ms is None else timeout_ms,
            partial(self._late, group_id, member_id, "its session expired"),
        )

    def expire(self, group_id: str, member_id: str) -> None:
        """End the member's session at once, by its timer."""
        self.restart(group_id, member_id, 0)

    def cancel_all(self, group_id: str, member_id: str) -> None:
        """End the timers of a member that is gone."""
        self._runtime.cancel((self._session, group_id, member_id))


class MemberSessions(Sessions, Generic[M]):
    """Timers of members that sometimes have partitions or tasks to give up. These limits have their own
    timers, whose keys begin with `rebalance`."""

    def __init__(
        self,
        runtime: Runtime,
        late: Late,
        groups: Mapping[str, AssignedGroup[M]],
        *,
        is_undecided: Callable[[str, str], bool],
        session: str,
        rebalance: str,
        timeouts_of: Callable[[str], ConsumerTimeouts | ShareTimeouts | StreamsConfig],
        gives_up: Callable[[M], bool],
    ) -> None:
        """See `Sessions`. `gives_up` is true if a member has something to give up."""
        super().__init__(runtime, late, is_undecided=is_undecided, session=session, timeouts_of=timeouts_of)
        self._rebalance = rebalance
        self._groups = groups
        self._gives_up = gives_up

    def restart_all(self) -> None:
        """After a start, give every member a whole session, and its whole rebalance timeout if it has
        something to give up."""
        for group_id, group in self._groups.items():
            for member_id, member in group.members.items():
                self.restart(group_id, member_id)
                if self._gives_up(member):
                    self.limit_rebalance(group_id, member)

    def limit_rebalance(self, group_id: str, member: TimedMember) -> None:
        """Start the member's rebalance timeout. It is met if the member's epoch changes in time."""
        member_id, epoch = member.member_id, member.epoch

        def due() -> None:
            group = self._groups.get(group_id)
            found = None if group is None else group.members.get(member_id)
            if found is not None and found.epoch == epoch:
                self._late(group_id, member_id, f"it was still at epoch {epoch} at its rebalance timeout")

        self._schedule((self._rebalance, group_id, member_id), member.rebalance_timeout_ms, due)

    def end_rebalance(self, group_id: str, member_id: str) -> None:
        self._runtime.cancel((self._rebalance, group_id, member_id))

    def cancel_all(self, group_id: str, member_id: str) -> None:
        super().cancel_all(group_id, member_id)
        self.end_rebalance(group_id, member_id)


# --- the journal: it turns decisions into state ---------------------------------------------------------------

PART_BYTES = 64 * 1024  # of records that need not be in one batch; far below the limit of a batch


class StagedRecords(NamedTuple):
    """Encoded records, and their group with these records applied."""

    encoded: Sequence[CoordinatorRecord]
    group: StagedGroup


class Journal:
    """Writes records and applies them at once. They aren't committed yet: answers wait for that."""

    def __init__(self, gate: Gate, store: GroupStore) -> None:
        self._gate = gate
        self._store = store

    def write(self, records: Sequence[AnyRecord]) -> None:
        """Append records as one batch and apply them. Raises KafkaError if they can't be written; then
        nothing has changed."""
        if records:
            self._write(records, [encode_record(record) for record in records])

    def write_in_parts(self, records: Iterable[AnyRecord]) -> None:
        """Append and apply records that need not be in one batch, in parts.

        Raises KafkaError if a part can't be written. The parts before it are in force.
        """
        part: list[AnyRecord] = []
        encoded: list[CoordinatorRecord] = []
        size_bytes = 0
        for record in records:
            key, value = encode_record(record)
            if part and size_bytes + len(key) + len(value or b"") > PART_BYTES:
                self._write(part, encoded)
                part, encoded, size_bytes = [], [], 0
            part.append(record)
            encoded.append((key, value))
            size_bytes += len(key) + len(value or b"")
        if part:
            self._write(part, encoded)

    def staged(self, group: StageableGroup, records: Sequence[AnyRecord]) -> StagedRecords:
        """Do the slow part of writing a group's records: encode them, and apply them to a copy of the group.

        It changes nothing, so another thread may do it. It is for groups that the server assigns.
        """
        return StagedRecords(
            [encode_record(record) for record in records], self._store.staged(group, records)
        )

    def write_offsets(self, staged: StagedOffsets, producer: OffsetProducer = NO_PRODUCER) -> None:
        """Append the offsets as one batch and apply them. Raises KafkaError as `write` does."""
        committed = staged.committed
        if not committed:
            return
        producer_id = producer.producer_id
        end_offset = self._gate.append(
            staged.encoded, producer_id=producer_id, producer_epoch=producer.epoch, guard=producer.guard
        )
        try:
            first_offset = end_offset - len(committed)
            self._store.apply_offsets(staged.group_id, committed, first_offset, producer_id)
        except Exception as error:
            raise cannot_apply(error) from error

    def write_tombstones(self, staged: Tombstones) -> None:
        """Append the tombstones as one batch and apply them. Raises KafkaError as `write` does."""
        if not staged.encoded:
            return
        self._gate.append(staged.encoded)
        try:
            for group_id, places in staged.places.items():
                self._store.offsets.remove(group_id, places)
            for record in staged.others:
                self._store.apply(record)
        except Exception as error:
            raise cannot_apply(error) from error

    def write_staged(self, staged: StagedRecords) -> None:
        """Append the records as one batch, and replace the group by its copy. Raises KafkaError as `write` does."""
        self._gate.append(staged.encoded)
        try:
            self._store.adopt(staged.group)
        except Exception as error:
            raise cannot_apply(error) from error

    def write_replacement(self, classic: ClassicGroup, records: Sequence[AnyRecord]) -> None:
        """Append, as one batch, the records that replace a consumer group by a classic group of the same id.

        Raises KafkaError as `write` does.
        """
        self._gate.append([encode_record(record) for record in records])
        try:
            self._store.replace(classic)
        except Exception as error:
            raise cannot_apply(error) from error

    def _write(self, records: Sequence[AnyRecord], encoded: Sequence[CoordinatorRecord]) -> None:
        self._gate.append(encoded)
        try:
            for record in records:
                self._store.apply(record)
        except Exception as error:
            raise cannot_apply(error) from error


# --- all parts together ---------------------------------------------------------------------------------------


class SharePorts(NamedTuple):
    """The ports that only share groups need."""

    persister: Persister
    timeouts_of: Callable[[str], ShareTimeouts]
    """The timeouts of a share group, by its id."""


class ShardParts(NamedTuple):
    """The parts of a shard. Each piece of behaviour takes those that it needs."""

    runtime: Runtime
    store: GroupStore
    journal: Journal
    settings: GroupSettings
    topics: KnownTopics
    hashes: TopicHashes
    undecided: Undecided
    member_memory: MemberMemory
    statistics: GroupStatistics
    timeouts_of: Callable[[str], ConsumerTimeouts]
    """The timeouts of a consumer group, by its id."""
    streams_config_of: Callable[[str], StreamsConfig]
    """The settings of a streams group, by its id."""
    share: SharePorts


# --- Long decisions about a group that the server assigns: beside the loop, on a copy of the group --------------
#
#     deferred = shard.consumer_heartbeat(client, request)  # an answer, or a deferred decision
#     deferred.decide()                                     # beside the loop
#     answer = deferred.settle()  # on the loop; None: the group has changed meanwhile, begin again
#
# A decision changes nothing before it is taken. So a thread may make it, from the current group and a copy
# that the records are applied to, while others are served. It only counts if the group hasn't changed
# meanwhile. In Kafka the thread of the group's partition is held for that time.

A = TypeVar("A")


class AnyDecision(Protocol):
    """A decision about a group that the server assigns; see `consumer/decision.py`."""

    group: Any
    records: list[AnyRecord]

    def take_effect(self) -> None: ...

    def was_written(self) -> None: ...


class HeartbeatDecision(AnyDecision, Protocol):
    """A decision for a member's heartbeat. `old` is the member as the group knows it."""

    old: Any


class DeferredDecision(Deferred[A]):
    """A decision that is still to be made."""

    def __init__(self, parts: ShardParts, decision: AnyDecision, decide: Callable[[], A]) -> None:
        self._store = parts.store
        self._journal = parts.journal
        self._topics = parts.topics
        self._decision = decision
        self._decide = decide
        self._seen = self._group_of_now()
        self._topics_seen = parts.topics.version
        self._hashes = parts.hashes
        self._forgotten = parts.hashes.forgotten
        self._answer: A | None = None
        self._staged: StagedRecords | None = None
        self._error: Exception | None = None

    def decide(self) -> None:
        decision = self._decision
        try:
            self._answer = self._decide()
            if decision.records:  # without records the group stays as it is, and isn't copied
                self._staged = self._journal.staged(decision.group, decision.records)
                # The inputs are of no use any more, and slow to free: do that here, and not on the loop.
                decision.records.clear()
                decision.group = self._staged.group.group
        except Exception as error:
            self._error = error

    def settle(self) -> A | None:
        """Take the decision, if it still counts."""
        error, self._error = self._error, None
        decision = self._decision
        if self._group_of_now() != self._seen:
            return None
        if error is not None and self._topics.version != self._topics_seen:
            return None  # it may have seen half of a change
        try:
            if error is not None and not isinstance(error, KafkaError):
                raise error
            decision.take_effect()
            if error is not None:
                raise error
        finally:
            del error  # its traceback holds this frame
        self._taken()
        if self._staged is not None:
            self._journal.write_staged(self._staged)
        decision.was_written()
        self._written()
        self._look_again_at_topics()
        return self._answer

    def _taken(self) -> None:
        """Called before the records are written."""

    def _written(self) -> None:
        """Called after the records were written."""

    def _look_again_at_topics(self) -> None:
        """Request a refresh if topics changed meanwhile: the group may only now subscribe to one of them."""
        group_id = self._decision.group.group_id
        group = self._assigned_group(group_id)
        if group is not None and self._hashes.forgotten != self._forgotten:
            group.request_refresh()

    def _group_of_now(self) -> tuple[AssignedGroup[Any] | None, int, ClassicGroup | None, int]:
        """Values that differ once the group has changed."""
        group_id = self._decision.group.group_id
        group = self._assigned_group(group_id)
        classic = self._store.classic.get(group_id)
        return (
            group,
            -1 if group is None else group.changes,
            classic,
            -1 if classic is None else classic.changes,
        )

    def _assigned_group(self, group_id: str) -> AssignedGroup[Any] | None:
        store = self._store
        return store.consumer.get(group_id) or store.share.get(group_id) or store.streams.get(group_id)


class DeferredHeartbeat(DeferredDecision[A]):
    """A heartbeat. Taking the decision restarts the member's session."""

    def __init__(
        self, parts: ShardParts, sessions: Sessions, decision: HeartbeatDecision, decide: Callable[[], A]
    ) -> None:
        super().__init__(parts, decision, decide)
        self._sessions = sessions
        self._member_id: str = decision.old.member_id

    def _taken(self) -> None:
        self._sessions.restart(self._decision.group.group_id, self._member_id)

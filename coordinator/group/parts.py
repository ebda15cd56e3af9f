"""What all behaviour of a shard's groups works with: decisions' effects, time limits, the journal.

Whatever is decided of a group is records, which the journal appends and applies as one, and effects: timers and lines
of the log. Who waits to be decided beside the loop isn't late before.
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


# --- what a decision does besides its records -----------------------------------------------------------------


@dataclass(slots=True)
class Effects:
    """Of one decision."""

    effects: list[Callable[[], None]] = field(init=False, default_factory=list)
    """Timers and lines of the log: where the decision is taken, not where it is made, which may be in a thread, and
    more than once."""
    once_written: list[Callable[[], None]] = field(init=False, default_factory=list)
    """The same of what follows from its records: a time limit that ends with a state, where the state stays."""

    def take_effect(self) -> None:
        """Once, before the records are written. What a step has brought about that a later one refuses is done, too."""
        for effect in self.effects:
            effect()

    def was_written(self) -> None:
        """Once, behind the records; the group may be another one by then, that took its place."""
        for effect in self.once_written:
            effect()


# --- whose requests wait to be decided: whoever that is isn't late before -------------------------------------
#
# In Kafka a timeout is an event behind the request in the queue of the group's partition.


class Undecided:
    """Members of groups of every kind, by the ids alone: a group may go over from one protocol to
    another by what is decided."""

    def __init__(self, store: GroupStore) -> None:
        self._store = store
        self._counts: dict[tuple[str, str], int] = {}
        """How many requests wait to be decided, by group and member; without those that none does of."""

    @contextmanager
    def waits(self, group_id: str, member_id: str, instance_id: str | None) -> Iterator[None]:
        """A request of the member waits to be decided: no timer of it is due before that is done, nor one of whoever
        has the place of that instance."""
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
        """Whether a request of this member waits."""
        return (group_id, member_id) in self._counts


# --- time limits of members of groups that the server assigns: who is late is fenced, as if it had left -------
#
# A member that isn't there any more when a timer fires, or is another group's by then, is passed over. Who
# can't be fenced now is late once more after a while, unless the timer has been put off or ended by then
# (Kafka: `CoordinatorTimerImpl`).

RETRY_MS = 500
"""After which a timer is looked at again that was due meanwhile, or whose member couldn't be fenced."""

Late = Callable[[str, str, str], None]
"""What is done with a member that is late: its group's id, its id, and why. Raises KafkaError where that can't be
recorded."""

_Key = tuple[str, str, str]
"""Of a timer: what it limits, the group, the member."""


class TimedMember(Protocol):
    """What a time limit needs to know of a member."""

    @property
    def member_id(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    @property
    def rebalance_timeout_ms(self) -> int: ...


M = TypeVar("M", bound=TimedMember)


class Sessions:
    """`session` begins the keys of its timers."""

    def __init__(
        self,
        runtime: Runtime,
        late: Late,
        *,
        is_undecided: Callable[[str, str], bool],
        session: str,
        timeouts_of: Callable[[str], ConsumerTimeouts | ShareTimeouts | StreamsConfig],
    ) -> None:
        """By ids: `is_undecided` says whether a request of the member waits, `timeouts_of` gives a group's."""
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
            self._schedule(key, RETRY_MS, late)  # what is decided may put it off, or end it
            return
        try:
            late()
        except KafkaError as error:
            log.warning("group %s: %s can't be fenced now: %s", group_id, member_id, error)
            self._schedule(key, RETRY_MS, late)

    def restart(self, group_id: str, member_id: str, timeout_ms: int | None = None) -> None:
        """The member was heard of. By default it has the group's session timeout."""
        self._schedule(
            (self._session, group_id, member_id),
            self._timeouts_of(group_id).session_timeout_ms if timeout_ms is None else timeout_ms,
            partial(self._late, group_id, member_id, "its session expired"),
        )

    def expire(self, group_id: str, member_id: str) -> None:
        """The member's session is over at this moment: its timer says so."""
        self.restart(group_id, member_id, 0)

    def cancel_all(self, group_id: str, member_id: str) -> None:
        """The member isn't there any more."""
        self._runtime.cancel((self._session, group_id, member_id))


class MemberSessions(Sessions, Generic[M]):
    """Of members that have something to give up now and then, in a time limit of its own: `rebalance` begins the keys
    of those timers."""

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
        """See `Sessions`; `gives_up` says whether a member has something to give up."""
        super().__init__(runtime, late, is_undecided=is_undecided, session=session, timeouts_of=timeouts_of)
        self._rebalance = rebalance
        self._groups = groups
        self._gives_up = gives_up

    def restart_all(self) -> None:
        """After a start: everybody has a whole session, and its whole time to give up what it has to."""
        for group_id, group in self._groups.items():
            for member_id, member in group.members.items():
                self.restart(group_id, member_id)
                if self._gives_up(member):
                    self.limit_rebalance(group_id, member)

    def limit_rebalance(self, group_id: str, member: TimedMember) -> None:
        """It has to give up what it has to in time, unless its epoch changes before."""
        member_id, epoch = member.member_id, member.epoch

        def due() -> None:
            group = self._groups.get(group_id)
            found = None if group is None else group.members.get(member_id)
            if found is not None and found.epoch == epoch:
                self._late(group_id, member_id, f"it didn't get beyond epoch {epoch} in time")

        self._schedule((self._rebalance, group_id, member_id), member.rebalance_timeout_ms, due)

    def end_rebalance(self, group_id: str, member_id: str) -> None:
        self._runtime.cancel((self._rebalance, group_id, member_id))

    def cancel_all(self, group_id: str, member_id: str) -> None:
        super().cancel_all(group_id, member_id)
        self.end_rebalance(group_id, member_id)


# --- the journal: how decisions become state ------------------------------------------------------------------

PART_BYTES = 64 * 1024  # of records that need not be one batch; far below what a batch may have


class StagedRecords(NamedTuple):
    """Records that are ready to be written, and what becomes of their group then."""

    encoded: Sequence[CoordinatorRecord]
    group: StagedGroup


class Journal:
    """Writes records and applies them at once. What is written isn't committed yet: answers wait for that."""

    def __init__(self, gate: Gate, store: GroupStore) -> None:
        self._gate = gate
        self._store = store

    def write(self, records: Sequence[AnyRecord]) -> None:
        """Append records as one batch and apply them. Raises KafkaError where they can't be written: nothing is
        changed then."""
        if records:
            self._write(records, [encode_record(record) for record in records])

    def write_in_parts(self, records: Iterable[AnyRecord]) -> None:
        """Append and apply records that need not come to be together, some at a time. Raises KafkaError where one part
        can't be written: those before it are in force."""
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
        """All that is long in writing records of a group that the server assigns: they are encoded, and applied to a
        copy of it. It changes nothing, so that another thread may do it."""
        return StagedRecords(
            [encode_record(record) for record in records], self._store.staged(group, records)
        )

    def write_offsets(self, staged: StagedOffsets, producer: OffsetProducer = NO_PRODUCER) -> None:
        """Append the offsets as one batch and apply them. Raises KafkaError as `write`."""
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
        """Append them as one batch and apply them. Raises KafkaError as `write`."""
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
        """Append them as one batch; the copy takes the group's place. Raises KafkaError as `write`."""
        self._gate.append(staged.encoded)
        try:
            self._store.adopt(staged.group)
        except Exception as error:
            raise cannot_apply(error) from error

    def write_replacement(self, classic: ClassicGroup, records: Sequence[AnyRecord]) -> None:
        """Append, as one batch, the records by which a classic group takes the place of the consumer group of its id.
        Raises KafkaError as `write`."""
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


# --- all of it ------------------------------------------------------------------------------------------------


class SharePorts(NamedTuple):
    """What share groups need beside."""

    persister: Persister
    timeouts_of: Callable[[str], ShareTimeouts]
    """Those of a share group, by its id."""


class ShardParts(NamedTuple):
    """The shard owns them; each piece of behaviour takes out what it uses."""

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
    """Those of a consumer group, by its id."""
    streams_config_of: Callable[[str], StreamsConfig]
    """What a streams group has set for itself, by its id."""
    share: SharePorts


# --- What is much to decide of a group that the server assigns: beside the loop, by a copy of the group -------
#
#     deferred = shard.consumer_heartbeat(client, request)  # an answer, or one that is deferred
#     deferred.decide()                                     # beside the loop
#     answer = deferred.settle()  # on it; None: the group has changed meanwhile, begin again
#
# A decision changes nothing before it is taken, so it may be made in a thread while others are served: by the
# group as it is, and with a copy of it that the records are applied to. What the group is by then decides
# whether it counts. In Kafka the thread of the group's partition is held meanwhile.

A = TypeVar("A")


class AnyDecision(Protocol):
    """Of a group that the server assigns: what becomes of it, see `consumer/decision.py`."""

    group: Any
    records: list[AnyRecord]

    def take_effect(self) -> None: ...

    def was_written(self) -> None: ...


class HeartbeatDecision(AnyDecision, Protocol):
    """Of a member, `old` as the group knows it."""

    old: Any


class DeferredDecision(Deferred[A]):
    """One that waits to be decided."""

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
            if decision.records:  # else the group stays as it is, and isn't copied
                self._staged = self._journal.staged(decision.group, decision.records)
                # What it was made of is of no use any more, and long to free: here, and not on the loop.
                decision.records.clear()
                decision.group = self._staged.group.group
        except Exception as error:
            self._error = error

    def settle(self) -> A | None:
        """Takes the decision, if it still counts."""
        error, self._error = self._error, None
        decision = self._decision
        if self._group_of_now() != self._seen:
            return None
        if error is not None and self._topics.version != self._topics_seen:
            return None  # it may have seen a change half
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
        """Before the records are written."""

    def _written(self) -> None:
        """Once the records are written."""

    def _look_again_at_topics(self) -> None:
        """Whoever changed topics meanwhile told the groups that subscribed to them, and this one may only do so from
        here on."""
        group_id = self._decision.group.group_id
        group = self._assigned_group(group_id)
        if group is not None and self._hashes.forgotten != self._forgotten:
            group.request_refresh()

    def _group_of_now(self) -> tuple[AssignedGroup[Any] | None, int, ClassicGroup | None, int]:
        """What is another one once the group has changed."""
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
    """A heartbeat: the member's session begins anew with the decision."""

    def __init__(
        self, parts: ShardParts, sessions: Sessions, decision: HeartbeatDecision, decide: Callable[[], A]
    ) -> None:
        super().__init__(parts, decision, decide)
        self._sessions = sessions
        self._member_id: str = decision.old.member_id

    def _taken(self) -> None:
        self._sessions.restart(self._decision.group.group_id, self._member_id)

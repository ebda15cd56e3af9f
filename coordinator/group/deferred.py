"""What is much to decide of a group that the server assigns: beside the loop, by a copy of the group.

    deferred = shard.consumer_heartbeat(client, request)    # an answer, or one that is deferred
    deferred.decide()                                       # beside the loop
    answer = deferred.settle()                              # on it; None: the group has changed meanwhile, begin again

A decision changes nothing before it is taken, so it may be made in a thread while others are served: by the group as it
is, and with a copy of it that the records are applied to. What the group is by then decides whether it counts. In Kafka
the thread of the group's partition is held meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from coordinator.group.classic.group import ClassicGroup
from coordinator.group.modern.group import AssignedGroup
from coordinator.group.parts import Sessions, ShardParts, StagedRecords
from coordinator.group.ports import Deferred
from coordinator.group.records import AnyRecord
from protocol.errors import KafkaError

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

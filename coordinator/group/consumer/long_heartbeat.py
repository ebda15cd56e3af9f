"""Heartbeats that are much to decide: a member of thousands of topics or partitions, or of a large group.

    heartbeat = shard.consumer_heartbeat(client, request)   # an answer, or a LongHeartbeat
    heartbeat.decide()                                      # beside the loop
    answer = heartbeat.settle()                             # on it; None: the group has changed meanwhile, begin again

A decision changes nothing before it is taken, so it may be made in a thread while others are served: by the group as it
is, and with a copy of it that the records are applied to. What the group is by then decides whether it counts. In Kafka
the thread of the group's partition is held meanwhile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from coordinator.group.classic.group import ClassicGroup
from coordinator.group.consumer.decision import Decision
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.sessions import ConsumerSessions
from coordinator.group.journal import StagedRecords
from coordinator.group.known_topics import KnownTopics
from coordinator.group.parts import ShardParts
from protocol.errors import KafkaError
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

MOST_IN_PASSING = 10_000
"""What is decided in passing: some 10 ms, the unit being about a microsecond."""

_PER_TOPIC, _PER_PARTITION, _PER_MEMBER, _PER_SUBSCRIPTION = 80, 8, 40, 1
_PER_CHARACTER = 10
"""Of a regular expression that nobody subscribes to yet: it is compiled, to see whether it makes sense."""


def is_little(decision: Decision, request: ConsumerGroupHeartbeatRequest, topics: KnownTopics) -> bool:
    """Whether it is decided in passing: by what the group and the request hold, at a cost far below that."""
    group = decision.group
    names = request.subscribed_topic_names or ()
    members = len(group.members) + 1
    subscribed = len(group.topics) + len(names)
    work = subscribed * (_PER_TOPIC + members * _PER_SUBSCRIPTION) + members * _PER_MEMBER
    regex = request.subscribed_topic_regex
    if regex and not group.regexes[regex]:
        work += len(regex) * _PER_CHARACTER
    if work > MOST_IN_PASSING:
        return False
    for some in (group.topics, names):
        for name in some:
            topic = topics.by_name(name)
            if topic is not None:
                work += topic.partition_count * _PER_PARTITION
    return work <= MOST_IN_PASSING


class DeferredHeartbeat(ABC):
    """One that isn't answered in passing: part of the work is done beside the loop first."""

    @abstractmethod
    def decide(self) -> None:
        """In whatever thread. Raises nothing: `settle` does."""

    @abstractmethod
    def settle(self) -> ConsumerGroupHeartbeatResponse | None:
        """On the loop: the answer, or None where the heartbeat has to begin again. Raises KafkaError, as a
        heartbeat."""


class LongHeartbeat(DeferredHeartbeat):
    """One that waits to be decided."""

    def __init__(
        self,
        parts: ShardParts,
        sessions: ConsumerSessions,
        decision: Decision,
        decide: Callable[[], ConsumerGroupHeartbeatResponse],
    ) -> None:
        self._store = parts.store
        self._journal = parts.journal
        self._topics = parts.topics
        self._sessions = sessions
        self._decision = decision
        self._decide = decide
        self._seen = self._group_of_now()
        self._topics_seen = parts.topics.version
        self._hashes = parts.hashes
        self._forgotten = parts.hashes.forgotten
        self._answer: ConsumerGroupHeartbeatResponse | None = None
        self._staged: StagedRecords | None = None
        self._error: Exception | None = None

    def decide(self) -> None:
        decision = self._decision
        try:
            self._answer = self._decide()
            if decision.records:  # else the group stays as it is, and isn't copied
                self._staged = self._journal.staged(decision.group, decision.records)
        except Exception as error:
            self._error = error

    def settle(self) -> ConsumerGroupHeartbeatResponse | None:
        """Takes the decision, if it still counts."""
        error, self._error = self._error, None
        decision = self._decision
        if self._group_of_now() != self._seen:
            return None
        if error is not None and self._topics.version != self._topics_seen:
            return None  # it may have seen a change half
        if error is not None and not isinstance(error, KafkaError):
            raise error
        decision.take_effect()
        if error is not None:
            raise error
        self._sessions.restart(decision.group.group_id, decision.old.member_id)
        if self._staged is not None:
            self._journal.write_staged(self._staged)
        self._look_again_at_topics()
        return self._answer

    def _look_again_at_topics(self) -> None:
        """Whoever changed topics meanwhile told the groups that subscribed to them, and this one may only do so from
        here on."""
        group = self._store.consumer.get(self._decision.group.group_id)
        if group is not None and self._hashes.forgotten != self._forgotten:
            group.request_refresh()

    def _group_of_now(self) -> tuple[ConsumerGroup | None, int, ClassicGroup | None, bool]:
        """What is another one once the group has changed."""
        group_id = self._decision.group.group_id
        group = self._store.consumer.get(group_id)
        classic = self._store.classic.get(group_id)
        is_other = group_id in self._store.other or (classic is not None and len(classic.members) > 0)
        return group, -1 if group is None else group.changes, classic, is_other

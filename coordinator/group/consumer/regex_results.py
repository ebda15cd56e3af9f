"""What regular expressions have matched becomes records: in passing where that is little, else beside the loop.

Where the group changes while it is decided beside the loop it is decided anew, as requests are (`deferred.py`). What
isn't recorded in the end is matched again with the next heartbeat that finds it due; in Kafka, too, a result that
can't be written is logged and dropped.
Source: `GroupMetadataManager.handleRegularExpressionsResult`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from coordinator.group.consumer.decision import GroupDecision
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.records import epoch_record, regex_record
from coordinator.group.consumer.resolved_regex import ResolvedRegex
from coordinator.group.deferred import MOST_TRIES, DeferredDecision
from coordinator.group.known_topics import partitions_of
from coordinator.group.modern.subscriptions import count_subscribers
from coordinator.group.parts import ShardParts
from coordinator.java.maps import JavaMap, JavaSet
from protocol.errors import KafkaError
from protocol.waiting import compute

log = logging.getLogger("barnabas.groups")

MOST_RECORDED_IN_PASSING = 10_000
"""What is recorded in passing: some 10 ms, the unit being about a microsecond."""

_PER_TOPIC, _PER_PARTITION = 40, 8

Recorded = Callable[[], None]
"""Told that nothing more comes of it, be it recorded or not."""


class Matched(NamedTuple):
    """The topics that each expression of a group has matched, as of a version of the metadata."""

    found: Mapping[str, Sequence[str]]
    version: int
    timestamp_ms: int


class RegexResults:
    """Records what was matched, and gives the group its next epoch where its topics are others than before."""

    def __init__(self, parts: ShardParts) -> None:
        self._parts = parts
        self._groups = parts.store.consumer
        self._runtime = parts.runtime
        self._topics = parts.topics
        self._hashes = parts.hashes

    def record(self, group_id: str, matched: Matched, recorded: Recorded) -> None:
        """In this call or in a later one."""
        group = self._groups.get(group_id)
        if group is not None and not self._is_little(group, matched):
            self._runtime.carry_out(group_id, self._beside(group_id, matched, recorded))
            return
        try:
            if group is not None:
                self._in_passing(group, matched)
        finally:
            recorded()

    def _is_little(self, group: ConsumerGroup, matched: Matched) -> bool:
        """By how many topics and expressions there are; where these are few, by the topics' partitions as well."""
        lists = (group.topics, *matched.found.values())
        work = (sum(map(len, lists)) + len(matched.found)) * _PER_TOPIC
        if work > MOST_RECORDED_IN_PASSING:
            return False
        work += partitions_of(chain.from_iterable(lists), self._topics) * _PER_PARTITION
        return work <= MOST_RECORDED_IN_PASSING

    def _in_passing(self, group: ConsumerGroup, matched: Matched) -> None:
        decision = GroupDecision(group, [])
        self._decide(decision, matched)
        decision.take_effect()
        try:
            self._parts.journal.write(decision.records)
        except KafkaError as error:
            _complain(group.group_id, error)

    async def _beside(self, group_id: str, matched: Matched, recorded: Recorded) -> None:
        try:
            for _ in range(MOST_TRIES):
                group = self._groups.get(group_id)
                if group is None:
                    return  # deleted, of the classic protocol by now, or coordinated elsewhere
                decision = GroupDecision(group, [])
                deferred = DeferredDecision(self._parts, decision, partial(self._decide, decision, matched))
                await compute(deferred.decide)
                if deferred.settle():
                    return
            _complain(group_id, "it changes all the time")
        except KafkaError as error:
            _complain(group_id, error)
        finally:
            recorded()

    def _decide(self, decision: GroupDecision, matched: Matched) -> bool:
        """Nothing but the decision is changed. True, as a decision that was made."""
        group = decision.group
        resolved: JavaMap[str, ResolvedRegex] = JavaMap(len(matched.found))
        for regex, names in matched.found.items():
            resolved[regex] = ResolvedRegex(JavaSet.of(names), matched.version, matched.timestamp_ms)
        topics = dict(group.topics)
        bump = False
        for regex, now in resolved.items():
            if not group.regexes[regex]:
                continue  # nobody subscribes to it any more
            before = group.resolved.get(regex)
            old_topics = JavaSet[str]() if before is None else before.topics
            if old_topics != now.topics:
                bump = True
                for topic in old_topics:
                    count_subscribers(topics, topic, by_regex=-1)
                for topic in now.topics:
                    count_subscribers(topics, topic, by_regex=1)
            decision.records.append(regex_record(group.group_id, regex, now))
        hashed = self._hashes.look(topics)
        decision.effects.append(partial(self._hashes.keep, hashed))
        if bump:
            decision.effects.append(self._parts.member_memory.may_be_more)
        if bump or hashed.value != group.metadata_hash:
            epoch = group.epoch + 1
            decision.records.append(epoch_record(group.group_id, epoch, hashed.value))
            decision.effects.append(partial(group.was_refreshed, self._runtime.now_ms(), epoch))
        return True


def _complain(group_id: str, why: object) -> None:
    log.warning("group %s: its regular expressions aren't recorded: %s", group_id, why)

"""Initializing the state of a share group's partitions before they are assigned, and deleting it with the group.

A heartbeat records partitions without a state as initializing. Once that is committed, the share coordinator
is asked, outside the heartbeat, and its success is recorded in turn. If it refuses one of them, all are given
up, and the next heartbeat starts over. It also does `group.share.initialize.retry.interval.ms` after a
request by an earlier shard.

A topic may have thousands of partitions: the persister is asked for some at a time, and others are served in
between.

A deliberate difference: no heartbeat repeats a request of this shard that isn't answered yet, whether it
comes from a heartbeat or from altered offsets. In Kafka one does after that interval, and its request may
arrive long after the earlier one was answered. Initializing a state again forgets what was acknowledged
meanwhile, and its start offset.

Source: `GroupMetadataManager` (subscribedTopicsChangeMap and its neighbours), `GroupCoordinatorService`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from coordinator.group.records import AnyRecord
from coordinator.group.shard_parts import ShardParts
from coordinator.group.share.group import (
    UNKNOWN_TOPIC,
    InitTopics,
    ShareGroup,
    StatePartitions,
    TopicsPartitions,
    init_topics,
    state_partitions_record,
)
from coordinator.java.maps import JavaMap
from coordinator.persister import NO_START_OFFSET
from coordinator.ports import Runtime
from protocol.errors import Error, KafkaError
from protocol.waiting import Later

log = logging.getLogger("barnabas.groups")


# --- many requests whose answers are needed together ----------------------------------------------------------

MOST_ASKED_AT_ONCE = 50
"""The requests to send in one turn, at some 50 µs each."""

Ask = Callable[[], Later[KafkaError | None]]
"""Sends a request, and returns its outcome."""

AskOutcomes = Sequence[KafkaError | None]
"""The outcomes of the requests, in order."""


class AskingTogether:
    """The requests of one shard."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._under_way: dict[Later[AskOutcomes], list[KafkaError | None]] = {}

    async def ask(self, asks: Sequence[Ask]) -> AskOutcomes:
        """Send all requests and wait for all outcomes. If they are few and answered at once, this returns in
        the same call."""
        if not asks:
            return ()
        over: Later[AskOutcomes] = Later()
        outcomes: list[KafkaError | None] = [KafkaError(Error.NOT_COORDINATOR)] * len(asks)
        self._under_way[over] = outcomes
        missing = len(asks)

        def answered(index: int, outcome: Later[KafkaError | None]) -> None:
            nonlocal missing
            outcomes[index] = outcome.result()
            missing -= 1
            if not missing:
                self._end(over)

        def go_on(first: int) -> None:
            """Send as many as one turn takes, and the rest in later turns."""
            following = first + MOST_ASKED_AT_ONCE
            if following < len(asks):
                self._runtime.schedule(over, 0, partial(go_on, following))
            for index, ask in enumerate(asks[first:following], first):
                outcome = ask()
                outcome.when_answered(partial(answered, index, outcome))

        go_on(0)
        return await over

    def give_up(self) -> None:
        """Give up the shard: send nothing more. The outcome of unanswered requests is NOT_COORDINATOR."""
        for over in [*self._under_way]:
            self._end(over)

    def _end(self, over: Later[AskOutcomes]) -> None:
        outcomes = self._under_way.pop(over, None)
        if outcomes is not None:
            self._runtime.cancel(over)
            over.reply([*outcomes])


# --- initializing ---------------------------------------------------------------------------------------------

Offsets = Mapping[bytes, Mapping[int, int]]
"""Start offsets by topic id and partition."""

PartitionErrors = dict[tuple[bytes, int], KafkaError | None]
"""The share coordinator's answers by topic id and partition."""


class StateInitializing:
    """Initializes and deletes states for the groups of one shard."""

    def __init__(self, parts: ShardParts) -> None:
        self._runtime = parts.runtime
        self._store = parts.store
        self._journal = parts.journal
        self._topics = parts.topics
        self._persister = parts.share.persister
        self._asking = AskingTogether(parts.runtime)
        self._retry_ms = parts.settings.share_initialize_retry_interval_ms
        self._asked: dict[tuple[str, bytes, int], object] = {}
        """Unanswered requests to initialize: group and partition → the last one to ask."""

    def name_of(self, topic_id: bytes) -> str:
        """The topic's name, as a `NameOf`."""
        topic = self._topics.by_id(topic_id)
        return UNKNOWN_TOPIC if topic is None else topic.name

    def give_up(self) -> None:
        """Give up the shard. Those who wait for the share coordinator have to look for the coordinator again."""
        self._asking.give_up()

    # --- initializing ---------------------------------------------------------------------------------------

    def missing(self, group: ShareGroup, names: Iterable[str]) -> InitTopics:
        """The partitions of these topics that are neither initialized nor initializing."""
        now_ms = self._runtime.now_ms()
        state = group.state_partitions or StatePartitions.none()
        known = state.known_since(now_ms - self._retry_ms)
        found: dict[bytes, list[int]] = {}
        for name in names:
            topic = self._topics.by_name(name)
            if topic is None:
                continue
            there = known.get(topic.topic_id)
            if there is None or len(there.partitions) < topic.partition_count:
                partitions = () if there is None else there.partitions
                lacking = [
                    index
                    for index in range(topic.partition_count)
                    if index not in partitions and (group.group_id, topic.topic_id, index) not in self._asked
                ]
                if lacking:
                    found[topic.topic_id] = lacking
        return init_topics(found, self.name_of, now_ms)

    def record_of(self, group: ShareGroup, topics: InitTopics) -> AnyRecord:
        """The record that these partitions are initializing."""
        state = (group.state_partitions or StatePartitions.none()).begun(topics)
        return state_partitions_record(group.group_id, state, self.name_of)

    async def initialize(
        self, group_id: str, state_epoch: int, topics: InitTopics, known: StatePartitions
    ) -> None:
        """Initialize partitions, once it is committed that they are initializing, and record the outcome. If
        the commit took long, an earlier heartbeat may have asked already.

        Partitions that were added to a topic which was `known` before begin at their first record, whatever
        the group's settings are: they had no records to skip (KAFKA-20742).
        """
        offsets: dict[bytes, dict[int, int]] = {}
        for topic_id, topic in topics.items():
            was_known = topic_id in known.initialized or topic_id in known.initializing
            for index in topic.partitions:
                if (group_id, topic_id, index) not in self._asked:
                    offsets.setdefault(topic_id, {})[index] = 0 if was_known else NO_START_OFFSET
        if not offsets:
            return
        errors, current = await self.ask(group_id, state_epoch, offsets)
        failure = next((error for error in errors.values() if error is not None), None)
        if failure is None:
            self.succeeded(group_id, current)
            return
        log.error("group %s: its partitions' state can't be initialized: %s", group_id, failure)
        self._change(group_id, lambda state: state.given_up(_by_topic(current)))

    async def ask(
        self, group_id: str, state_epoch: int, offsets: Offsets
    ) -> tuple[PartitionErrors, Sequence[tuple[bytes, int]]]:
        """Have the share coordinator start these partitions anew, at these offsets.

        Returns its answers, and those partitions for which this was the latest request: others may have been
        requested again or deleted meanwhile.
        """
        places = [(topic_id, index) for topic_id, of_topic in offsets.items() for index in of_topic]
        asks: list[Ask] = [
            partial(
                self._persister.initialize, group_id, topic_id, index, state_epoch, offsets[topic_id][index]
            )
            for topic_id, index in places
        ]
        asker = object()
        self._asked |= dict.fromkeys(((group_id, *place) for place in places), asker)
        found = await self._asking.ask(asks)
        current = [place for place in places if self._asked.get((group_id, *place)) is asker]
        for place in current:
            del self._asked[group_id, *place]
        return dict(zip(places, found, strict=True)), current

    def succeeded(self, group_id: str, places: Sequence[tuple[bytes, int]]) -> None:
        """Record that these are initialized, if there are any."""
        if not places:
            return
        topics = init_topics(_by_topic(places), self.name_of, self._runtime.now_ms())
        self._change(group_id, lambda state: state.done(topics))

    def _change(self, group_id: str, change: Callable[[StatePartitions], StatePartitions]) -> None:
        """Change the record of a group, if it still exists."""
        group = self._store.share.get(group_id)
        if group is None:
            return
        before = group.state_partitions or StatePartitions.none()
        state = change(before)
        try:
            self._journal.write([state_partitions_record(group_id, state, self.name_of)])
        except KafkaError as error:
            log.warning("group %s: can't record the state of its partitions: %s", group_id, error)

    # --- deleting -------------------------------------------------------------------------------------------

    async def delete(self, group_id: str, topics: TopicsPartitions) -> PartitionErrors:
        """Have the share coordinator delete these partitions."""
        places = [(topic_id, index) for topic_id, indexes in topics.items() for index in indexes]
        for place in places:  # later requests start over, after this
            self._asked.pop((group_id, *place), None)
        asks: list[Ask] = [
            partial(self._persister.delete, group_id, topic_id, index) for topic_id, index in places
        ]
        return dict(zip(places, await self._asking.ask(asks), strict=True))

    def to_delete(self, group: ShareGroup) -> tuple[AnyRecord | None, TopicsPartitions]:
        """All partitions of a group that the share coordinator may know, and the record that they are to be
        deleted.

        The record is None if there is nothing to record. Earlier deletions that haven't been done are retried.
        """
        state = group.state_partitions
        if state is None:
            return None, {}
        found: JavaMap[bytes, Sequence[int]] = JavaMap()
        for topics in (state.initialized, state.initializing):
            for topic_id, topic in topics.items():
                found[topic_id] = [*dict.fromkeys([*(found.get(topic_id) or ()), *topic.partitions])]
        for topic_id in state.deleting:
            known = self._topics.by_id(topic_id)
            if known is not None:
                found[topic_id] = range(known.partition_count)
        deleting = StatePartitions.none()
        deleting.deleting.update(found)
        record = state_partitions_record(group.group_id, deleting, self.name_of)
        return record, dict(found.items())

    def forget_topics(self, topic_ids: Sequence[bytes]) -> Iterable[AnyRecord]:
        """The records for deleted topics. The share coordinator hears of the deletion, too."""
        for group_id, group in self._store.share.items():
            state = group.state_partitions
            if state is not None and state.names_any(topic_ids):
                left = state.without_topics(topic_ids)
                yield state_partitions_record(group_id, left, self.name_of)


def _by_topic(places: Iterable[tuple[bytes, int]]) -> TopicsPartitions:
    found: dict[bytes, list[int]] = {}
    for topic_id, index in places:
        found.setdefault(topic_id, []).append(index)
    return found

"""The state of a share group's partitions is initialized before anybody is assigned one, and deleted with the group.

What a heartbeat finds missing it records as initializing; once that is committed the share coordinator is asked,
outside of the heartbeat, and what it has initialized is recorded in turn. Where it refuses one of them all are given
up, and the next heartbeat begins anew. So it does after `group.share.initialize.retry.interval.ms` where a shard that
was here before has asked.

A topic may have thousands of partitions: the persister is asked for some at a time, others being served in between.

A conscious difference: what this shard has asked, for a heartbeat or for altered offsets, and isn't answered yet, no
heartbeat asks again. In Kafka one does, after that time, and its request may come when the earlier one was answered
long ago: a state that is initialized forgets what was acknowledged meanwhile, and where it was told to begin.

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


# --- many questions, whose answers are of use together --------------------------------------------------------

MOST_ASKED_AT_ONCE = 50
"""So many are asked in one turn, at some 50 µs each."""

Ask = Callable[[], Later[KafkaError | None]]
"""Asks something, and has what came of it answered."""

AskOutcomes = Sequence[KafkaError | None]
"""What came of each question, in their order."""


class AskingTogether:
    """What one shard asks."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._under_way: dict[Later[AskOutcomes], list[KafkaError | None]] = {}

    async def ask(self, asks: Sequence[Ask]) -> AskOutcomes:
        """Once all is answered: in this call where the questions are few and are answered at once."""
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
            """Ask as many as one turn takes, and the rest in later ones."""
            following = first + MOST_ASKED_AT_ONCE
            if following < len(asks):
                self._runtime.schedule(over, 0, partial(go_on, following))
            for index, ask in enumerate(asks[first:following], first):
                outcome = ask()
                outcome.when_answered(partial(answered, index, outcome))

        go_on(0)
        return await over

    def give_up(self) -> None:
        """The shard is given up: nothing more is asked, and what isn't answered yet is NOT_COORDINATOR."""
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
"""By topic id and partition, what the share coordinator said."""


class StateInitializing:
    """Of the groups of one shard."""

    def __init__(self, parts: ShardParts) -> None:
        self._runtime = parts.runtime
        self._store = parts.store
        self._journal = parts.journal
        self._topics = parts.topics
        self._persister = parts.share.persister
        self._asking = AskingTogether(parts.runtime)
        self._retry_ms = parts.settings.share_initialize_retry_interval_ms
        self._asked: dict[tuple[str, bytes, int], object] = {}
        """Of which groups what is asked to be initialized, and isn't answered yet; by whom last."""

    def name_of(self, topic_id: bytes) -> str:
        """As `NameOf`."""
        topic = self._topics.by_id(topic_id)
        return UNKNOWN_TOPIC if topic is None else topic.name

    def give_up(self) -> None:
        """The shard is given up: who waits for the share coordinator has to look for the coordinator again."""
        self._asking.give_up()

    # --- initializing ---------------------------------------------------------------------------------------

    def missing(self, group: ShareGroup, names: Iterable[str]) -> InitTopics:
        """The partitions of these topics that are neither initialized nor being so."""
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
        """That these are initializing."""
        state = (group.state_partitions or StatePartitions.none()).begun(topics)
        return state_partitions_record(group.group_id, state, self.name_of)

    async def initialize(
        self, group_id: str, state_epoch: int, topics: InitTopics, known: StatePartitions
    ) -> None:
        """That these are initializing is committed: ask for it, and record what comes of it. An earlier heartbeat may
        have asked since, where the commit took long.

        Partitions that were added to a topic that was `known` before begin at their first record, and not at what the
        group's settings say: nothing of them was there to be passed over (KAFKA-20742)."""
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
        """Have the share coordinator begin these partitions anew, at these offsets. What it said, and of which of them
        that is the last word: others were asked to begin once more, or to be forgotten, meanwhile."""
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
        """These are initialized, if any are."""
        if not places:
            return
        topics = init_topics(_by_topic(places), self.name_of, self._runtime.now_ms())
        self._change(group_id, lambda state: state.done(topics))

    def _change(self, group_id: str, change: Callable[[StatePartitions], StatePartitions]) -> None:
        """Of a group that is still there."""
        group = self._store.share.get(group_id)
        if group is None:
            return
        before = group.state_partitions or StatePartitions.none()
        state = change(before)
        try:
            self._journal.write([state_partitions_record(group_id, state, self.name_of)])
        except KafkaError as error:
            log.warning("group %s: what state its partitions have can't be recorded: %s", group_id, error)

    # --- deleting -------------------------------------------------------------------------------------------

    async def delete(self, group_id: str, topics: TopicsPartitions) -> PartitionErrors:
        """Have the share coordinator forget these partitions."""
        places = [(topic_id, index) for topic_id, indexes in topics.items() for index in indexes]
        for place in places:  # who comes next begins anew, behind this
            self._asked.pop((group_id, *place), None)
        asks: list[Ask] = [
            partial(self._persister.delete, group_id, topic_id, index) for topic_id, index in places
        ]
        return dict(zip(places, await self._asking.ask(asks), strict=True))

    def to_delete(self, group: ShareGroup) -> tuple[AnyRecord | None, TopicsPartitions]:
        """All that the share coordinator may know of a group, and the record that it is to be deleted; None where
        nothing is recorded. What was to be deleted before, and isn't, is tried again."""
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
        """What is to be recorded where topics were deleted: the share coordinator has learned of it, too."""
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

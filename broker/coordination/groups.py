"""The group coordinators of this broker: a shard for each partition of `__consumer_offsets` that it leads.

    found = await node.groups.ask(group_id, lambda shard: shard.classic_heartbeat(request))

The group's shard is asked at once; the answer comes once all is committed that the shard has appended. Long decisions
on a group that the server assigns (for a heartbeat, a join, or on the coordinator's own account) are made beside the
loop, one at a time, in the order in which they come, as in the queue of Kafka's partition. Heartbeats with nothing to
decide, commits and queries don't wait in that line.
Source: `GroupCoordinatorService`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from broker.config.broker_definitions import broker_definition
from broker.config.group_config import group_timeouts, streams_config
from broker.controller.broker_records import serves_share_groups
from broker.controller.image import GROUP_RESOURCE
from broker.coordination.hosted_shards import HostedShards
from broker.network.turns import Lines, in_line
from broker.security.authorizer import DESCRIBE, TOPIC
from coordinator.group.ports import MOST_TRIES, Client, Deferred, KnownTopic
from coordinator.settings import ConsumerTimeouts, StreamsConfig
from protocol.errors import Error, KafkaError, stops_the_broker
from protocol.waiting import Later, Pause, Waiting, compute, turn

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.controller.image import ClusterImage, TopicChanges, TopicImage
    from broker.controller.metadata_log import MetadataLog
    from broker.coordination.hosted_shards import PartitionRuntime
    from broker.environment.scheduler import Scheduler
    from broker.network.context import RequestContext
    from broker.network.turns import Turns
    from broker.replicas.partition import Partition
    from broker.replicas.partitions import Partitions
    from broker.security.authorizer import Authorizer
    from coordinator.group.member_memory import MemberMemory
    from coordinator.group.shard import GroupShard
    from coordinator.group.statistics import GroupStatistics
    from coordinator.persister import Persister
    from coordinator.settings import GroupSettings, ShareTimeouts
    from protocol.messages.groups import JoinGroupRequest
    from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest
    from protocol.messages.groups_share import ShareGroupHeartbeatRequest
    from protocol.messages.groups_streams import StreamsGroupHeartbeatRequest

    MemberRequest = (
        ConsumerGroupHeartbeatRequest
        | ShareGroupHeartbeatRequest
        | StreamsGroupHeartbeatRequest
        | JoinGroupRequest
    )


# --- The cluster's topics as the group coordinator sees them (Kafka: `KRaftCoordinatorMetadataImage`) ---------


class ClusterTopics:
    """The port `coordinator.group.ports.KnownTopics`, over the present metadata."""

    def __init__(self, metadata: MetadataLog) -> None:
        self._metadata = metadata
        self._seen: dict[bytes, KnownTopic] = {}
        self._racks: dict[int, str | None] = {}

    @property
    def image(self) -> ClusterImage:
        return self._metadata.image

    @property
    def version(self) -> int:
        return self._metadata.last_applied_offset

    def by_name(self, name: str) -> KnownTopic | None:
        topic = self.image.topics.get(name)
        return None if topic is None else self._metadata_of(topic)

    def by_id(self, topic_id: bytes) -> KnownTopic | None:
        topic = self.image.topics_by_id.get(topic_id)
        return None if topic is None else self._metadata_of(topic)

    def names(self) -> Iterable[str]:
        return self.image.topics

    def _metadata_of(self, topic: TopicImage) -> KnownTopic:
        seen = self._seen.get(topic.topic_id)
        # `follow` reads a changed topic again. A new partition counts even before that.
        is_same = seen is not None and seen.partition_count == len(topic.partitions)
        return seen if seen is not None and is_same else self._read(topic)

    def _read(self, topic: TopicImage) -> KnownTopic:
        brokers = self.image.brokers
        racks = tuple(
            tuple(
                rack
                for replica in topic.partitions[index].replicas
                if replica in brokers and (rack := brokers[replica].record.rack) is not None
            )
            for index in sorted(topic.partitions)
        )
        return KnownTopic(topic.name, topic.topic_id, racks)

    def follow(self, changes: TopicChanges) -> tuple[list[str], bool]:
        """The names of topics that these changes create, alter or remove, and whether some are new.

        The cost is proportional to the changes, not to the number of topics, unless a broker's rack has changed. A
        changed rack alone doesn't count as a change, as in Kafka: assignors just find the new rack.
        """
        changed: list[str] = []
        created = False
        self._follow_racks()
        for topic in changes.removed:
            if self._seen.pop(topic.topic_id, None) is not None:
                changed.append(topic.name)
        for name in changes.touched:
            touched = self.image.topics.get(name)
            if touched is None:  # removed meanwhile
                continue
            seen = self._seen.get(touched.topic_id)
            now = self._read(touched)
            if now != seen:
                self._seen[touched.topic_id] = now
                changed.append(name)
                created = created or seen is None
        return changed, created

    def _follow_racks(self) -> None:
        racks = {node_id: broker.record.rack for node_id, broker in self.image.brokers.items()}
        if racks == self._racks:
            return
        self._racks = racks
        for topic_id in self._seen:
            topic = self.image.topics_by_id.get(topic_id)
            if topic is not None:
                self._seen[topic_id] = self._read(topic)


# --------------------------------------------------------------------------------------------------------------

log = logging.getLogger("barnabas.coordination")

A = TypeVar("A")

OFFSETS_TOPIC = "__consumer_offsets"
MINUTE_MS = 60_000

Question = Callable[["GroupShard"], A | Deferred[A] | Later[A]]
"""Asks the shard. Returns the answer, a `Deferred` decision, or a `Later`. Raises KafkaError."""


class Groups:
    """Finds the shard of a group, and tells the shards about changes of topics."""

    def __init__(
        self,
        config: BrokerConfig,
        partitions: Partitions,
        scheduler: Scheduler,
        runtime_of: Callable[[Partition], PartitionRuntime],
        metadata: MetadataLog,
        persister_of: Callable[[], Persister],
    ) -> None:
        """`persister_of` returns the store of share partitions' durable state."""
        self.undecided: Lines[str] = {}
        """The groups with a long decision under way, each with the decisions that wait for its end."""
        self.unasked: dict[Waiting[None], None] = {}
        """Decisions without a request. They end with the node."""
        self._metadata = metadata
        self._topics = ClusterTopics(metadata)
        self._own_timeouts: tuple[int, ConsumerTimeouts] | None = (
            None  # the generation of the settings that they come from, and the timeouts
        )
        self._config = config
        self._persister_of = persister_of
        self.hosted = HostedShards(
            OFFSETS_TOPIC,
            config.get_int("offsets.topic.num.partitions"),
            partitions,
            scheduler,
            runtime_of,
            self._new_shard,
            content="groups",
            unreadable=Error.NOT_COORDINATOR,
            reloads_in_new_epoch=False,
        )
        self.partition_of = self.hosted.partition_of
        """The partition of `__consumer_offsets` that has a group."""
        self.shard_of: Callable[[str], GroupShard] = self.hosted.of
        """The shard of a group. Raises KafkaError: NOT_COORDINATOR, also for a partition that can't be read;
        COORDINATOR_LOAD_IN_PROGRESS for one that isn't loaded yet."""
        self.shard_at: Callable[[int], GroupShard] = self.hosted.at
        """The shard of a partition of `__consumer_offsets`. Raises as `shard_of`."""
        self.all_shards: Callable[[], list[GroupShard]] = self.hosted.readable
        """All shards but those that can't be read: Kafka's ListGroups leaves these out, too. Raises KafkaError
        (COORDINATOR_LOAD_IN_PROGRESS) if one of them isn't loaded yet."""

    def _new_shard(self, runtime: PartitionRuntime, leader_epoch: int) -> GroupShard:
        # Imported here, since it brings in a fifth of the broker: a start without groups doesn't wait for it.
        from coordinator.group.shard import GroupShard
        from coordinator.group.shard_parts import SharePorts

        return GroupShard(
            runtime,
            self._settings,
            self._topics,
            self._timeouts_of,
            self._member_memory,
            self.streams_config_of,
            SharePorts(self._persister_of(), self._share_timeouts_of),
            self.statistics,
        )

    @cached_property
    def statistics(self) -> GroupStatistics:
        """The statistics of all shards."""
        from coordinator.group.statistics import GroupStatistics

        return GroupStatistics()

    @cached_property
    def _member_memory(self) -> MemberMemory:
        from coordinator.group.member_memory import MemberMemory

        return MemberMemory()

    @property
    def serves_consumer_groups(self) -> bool:
        """True if the protocol of KIP-848 is on, by the cluster's `group.version` and the broker's settings."""
        return "consumer" in self._protocols and self._metadata.image.features.get("group.version", 0) >= 1

    @property
    def serves_share_groups(self) -> bool:
        """True if the protocol of KIP-932 is on, by the cluster's `share.version` alone."""
        return serves_share_groups(self._metadata.image)

    @property
    def serves_streams_groups(self) -> bool:
        """True if the protocol of KIP-1071 is on, by the cluster's `streams.version` and the broker's settings."""
        return "streams" in self._protocols and self._metadata.image.features.get("streams.version", 0) >= 1

    @cached_property
    def _protocols(self) -> frozenset[str]:
        """The enabled protocols. The setting can't be altered while the broker runs."""
        protocols = self._config.get_list("group.coordinator.rebalance.protocols")
        return frozenset(protocol.lower() for protocol in protocols)

    @property
    def consumer_assignors(self) -> tuple[str, ...]:
        return self._settings.consumer_assignors

    @property
    def max_offset_metadata(self) -> int:
        """The longest metadata of an offset, in Java's characters."""
        return self._settings.offset_metadata_max_length

    @cached_property
    def _settings(self) -> GroupSettings:
        return group_settings(self._config)

    # --- asking ---------------------------------------------------------------------------------------------

    async def ask(self, group_id: str, question: Callable[[GroupShard], A]) -> A | KafkaError:
        """The shard's answer or error, once clients may know it: see `GroupShard.let_out`. Also returns the errors of
        `shard_of`."""
        try:
            shard = self.shard_of(group_id)
        except KafkaError as error:
            return error.as_value()
        found: (
            A | KafkaError
        )  # as in `GroupShard.ask`, which would add a coroutine to each heartbeat and commit
        try:
            found = question(shard)
        except KafkaError as error:
            found = error.as_value()
        return found if shard.gate.is_open else await shard.let_out(found)

    async def ask_waiting(
        self, group_id: str, question: Callable[[GroupShard], Waiting[A]]
    ) -> A | KafkaError:
        """As `ask`, for a question that has to wait for something before its answer."""
        try:
            shard = self.shard_of(group_id)
        except KafkaError as error:
            return error.as_value()
        return await shard.ask_waiting(question)

    async def decide(self, request: MemberRequest, question: Question[A]) -> A | KafkaError:
        """As `ask`, for a request whose decision may be long. If the client hangs up before that is made, nothing has
        happened.

        The shard is the same from begin to end. If the partition is given up meanwhile, the answer is NOT_COORDINATOR,
        even if it is led here again by then.
        """
        try:
            shard = self.shard_of(request.group_id)
        except KafkaError as error:
            return error.as_value()
        found: A | Deferred[A] | Later[A] | KafkaError
        try:
            found = question(shard)
            if isinstance(found, Deferred):
                with shard.member_waits(request):
                    steps = self._decided(shard, request.group_id, question)
                    found = await in_line(self.undecided, request.group_id, steps)
        except KafkaError as error:
            found = error.as_value()
        if isinstance(found, Later):
            found = await found
        return found if shard.gate.is_open else await shard.let_out(found)

    async def _decided(self, shard: GroupShard, group_id: str, question: Question[A]) -> A | Later[A]:
        """Decide, and try again if the group has changed meanwhile. Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS if
        it keeps changing, since clients then ask again."""
        for _ in range(MOST_TRIES):
            self._check_leads(shard, group_id)
            begun = question(shard)
            if not isinstance(begun, Deferred):
                return begun
            await compute(begun.decide)
            self._check_leads(shard, group_id)
            answer: A | None = begun.settle()
            if answer is not None:
                return answer
        raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS)

    def _check_leads(self, shard: GroupShard, group_id: str) -> None:
        """Check that the shard is still in use. Raises KafkaError if it has been given up."""
        if self.shard_of(group_id) is not shard:
            raise KafkaError(Error.NOT_COORDINATOR)

    def carry_out(
        self,
        turns: Turns,
        group_id: str,
        steps: Waiting[None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """See `coordinator.ports.Runtime.carry_out`. `failed` gets broken invariants."""

        async def unasked_steps() -> None:
            try:
                await in_line(self.undecided, group_id, steps)
            finally:
                self.unasked.pop(under_way, None)

        def tell(error: BaseException) -> None:
            log.error("a decision on group %s is lost", group_id, exc_info=error)
            if stops_the_broker(error):
                failed(error)

        under_way = unasked_steps()
        self.unasked[under_way] = None
        turns.carry_out(under_way, tell)

    # --- following the metadata -----------------------------------------------------------------------------

    async def follow(self, changes: TopicChanges) -> None:
        """The metadata changed, and the partitions with it: load and give up shards, tell them which topics changed,
        and forget the offsets of removed topics. No topic of such a name is created before this is over.

        An offset without a topic id belongs to the topic of its name. If there has been a newer topic of that name, the
        offset may have been committed for that one. So it stays if the removal is not new, or if the shard was led
        elsewhere until now. Kafka, too, forgets nothing of topics that were removed before its first publishing."""
        await self.hosted.follow()
        names, created = self._topics.follow(changes)
        changed = frozenset(names)  # made once, since there may be many shards and thousands of names
        if changed:
            self.hosted.tell(lambda shard: shard.topics_changed(changed, created=created))
        gone = [(each.name, each.topic_id) for each in (*changes.removed, *changes.bygone)]
        if gone:
            just_now = {each.name for each in changes.removed}
            pause = Pause()
            await self.hosted.tell_in_steps(
                lambda shard, is_new: self._forget(shard, gone, () if is_new else just_now, pause)
            )

    def unload(self) -> None:
        """The node stops: answer waiting requests with NOT_COORDINATOR."""
        self.hosted.unload()
        for steps in [*self.unasked]:
            steps.close()

    @staticmethod
    async def _forget(
        shard: GroupShard, topics: Sequence[tuple[str, bytes]], just_now: Container[str], pause: Pause
    ) -> None:
        try:
            for cost in shard.forget_topics(topics, just_now):
                if pause.is_due(cost):
                    await turn()
        except KafkaError as error:
            log.warning("the offsets of deleted topics stay: %s", error)

    def _timeouts_of(self, group_id: str) -> ConsumerTimeouts:
        """The group's own timeouts, within the broker's bounds, or else the broker's."""
        overrides = self._metadata.image.configs.get((GROUP_RESOURCE, group_id))
        if overrides:
            return ConsumerTimeouts(*group_timeouts(self._config, "consumer", overrides))
        own, generation = self._own_timeouts, self._config.generation
        if own is None or own[0] != generation:
            own = (generation, ConsumerTimeouts(*group_timeouts(self._config, "consumer", {})))
            self._own_timeouts = own
        return own[1]

    def streams_config_of(self, group_id: str) -> StreamsConfig:
        """The settings of a streams group, its own ones or the broker's."""
        overrides = self._metadata.image.configs.get((GROUP_RESOURCE, group_id), {})
        newer = newer_streams_settings(self._config, overrides)
        return StreamsConfig(*streams_config(self._config, overrides), **newer)

    def _share_timeouts_of(self, group_id: str) -> ShareTimeouts:
        """As `_timeouts_of`, for a share group."""
        from coordinator.settings import ShareTimeouts

        overrides = self._metadata.image.configs.get((GROUP_RESOURCE, group_id), {})
        return ShareTimeouts(*group_timeouts(self._config, "share", overrides))


NEWER_STREAMS_SETTINGS = {
    "rack_tags": "rack.aware.assignment.tags",
    "num_warmup_replicas": "num.warmup.replicas",
    "task_offset_interval_ms": "task.offset.interval.ms",
    "acceptable_recovery_lag": "acceptable.recovery.lag",
}
"""Settings of streams groups that are new in Kafka 4.4, by the fields of `StreamsConfig`."""


def newer_streams_settings(config: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, Any]:
    """The values of these settings that the group has, or that the broker knows."""
    found: dict[str, Any] = {field: config.get(name) for field, name in _known_to_broker()}
    for field, name in NEWER_STREAMS_SETTINGS.items():
        text = overrides.get(f"streams.{name}")
        if text is None:
            continue
        if field == "rack_tags":
            found[field] = tuple(tag.strip() for tag in text.split(",") if tag.strip())
        elif text.strip().isdecimal():
            found[field] = int(text)
    return found


@cache
def _known_to_broker() -> list[tuple[str, str]]:
    names = {field: f"group.streams.{name}" for field, name in NEWER_STREAMS_SETTINGS.items()}
    return [(field, name) for field, name in names.items() if broker_definition(name) is not None]


def group_settings(config: BrokerConfig) -> GroupSettings:
    """The coordinator's settings. None of them can be altered while the broker runs."""
    from coordinator.settings import GroupSettings  # loaded with the first shard, as the whole coordinator

    return GroupSettings(
        min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
        max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
        max_size=config.get_int("group.max.size"),
        offset_metadata_max_length=config.get_int("offset.metadata.max.bytes"),
        offsets_commit_timeout_ms=config.get_int("offsets.commit.timeout.ms"),
        offsets_retention_ms=config.get_int("offsets.retention.minutes") * MINUTE_MS,
        offsets_retention_check_interval_ms=config.get_int("offsets.retention.check.interval.ms"),
        consumer_max_size=config.get_int("group.consumer.max.size"),
        streams_max_size=config.get_int("group.streams.max.size"),
        consumer_assignors=config.get_list("group.consumer.assignors"),
        consumer_regex_refresh_interval_ms=config.get_int("group.consumer.regex.refresh.interval.ms"),
        share_max_size=config.get_int("group.share.max.size"),
        share_initialize_retry_interval_ms=config.get_int("group.share.initialize.retry.interval.ms"),
        migration_policy=(config.get_string("group.consumer.migration.policy") or "").lower(),
    )


def client_of(context: RequestContext, authorizer: Authorizer) -> Client:
    """The client that sent a request, as the coordinator sees it."""
    return Client(
        context.client_id or "",
        f"/{context.connection.peer_host}",
        context.api_version,
        may_describe=partial(authorizer.allows, context, DESCRIBE, TOPIC),
    )

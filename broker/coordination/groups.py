"""The group coordinators of this broker: a shard for each partition of `__consumer_offsets` that it leads.

Source: `GroupCoordinatorService`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from broker.config.broker_definitions import broker_definition
from broker.config.group_config import group_timeouts, streams_config
from broker.controller.controller_result import Pause
from broker.controller.image import GROUP_RESOURCE
from broker.controller.registration import serves_share_groups
from broker.coordination.cluster_topics import ClusterTopics
from broker.coordination.hosted_shards import HostedShards
from broker.network.later import Later
from broker.security.authorizer import DESCRIBE, TOPIC
from coordinator.group.ports import Client
from coordinator.settings import ConsumerTimeouts, StreamsConfig
from protocol.errors import Error, KafkaError
from protocol.waiting import Waiting, turn

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.controller.image import TopicChanges
    from broker.controller.metadata_log import MetadataLog
    from broker.coordination.hosted_shards import PartitionRuntime
    from broker.environment.scheduler import Scheduler
    from broker.network.context import RequestContext
    from broker.replicas.partition import Partition
    from broker.replicas.partitions import Partitions
    from broker.security.authorizer import Authorizer
    from coordinator.group.member_memory import MemberMemory
    from coordinator.group.shard import GroupShard
    from coordinator.persister import Persister
    from coordinator.settings import GroupSettings, ShareTimeouts
    from protocol.waiting import Waiting

log = logging.getLogger("barnabas.coordination")

A = TypeVar("A")
R = TypeVar("R")

OFFSETS_TOPIC = "__consumer_offsets"
MINUTE_MS = 60_000


class Groups:
    """Finds the shard of a group, and tells the shards what becomes of topics."""

    def __init__(
        self,
        config: BrokerConfig,
        partitions: Partitions,
        scheduler: Scheduler,
        runtime_of: Callable[[Partition], PartitionRuntime],
        metadata: MetadataLog,
        persister_of: Callable[[], Persister],
    ) -> None:
        """`persister_of` gives what keeps the durable state of share partitions."""
        self.deciding: dict[str, deque[Later[None]]] = {}
        """The groups that something long is being decided of, each with who waits for the end of that: see
        `group_lines`."""
        self.unasked: dict[Waiting[None], None] = {}
        """What is decided in no request's name, and ends with the node."""
        self._topics = ClusterTopics(metadata)
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

    def _new_shard(self, runtime: PartitionRuntime, leader_epoch: int) -> GroupShard:
        # Here, since it brings in a fifth of the broker: no start waits for it that has no groups to load.
        from coordinator.group.parts import SharePorts
        from coordinator.group.shard import GroupShard

        return GroupShard(
            runtime,
            self._settings,
            self._topics,
            self._timeouts_of,
            self._member_memory,
            self.streams_config_of,
            SharePorts(self._persister_of(), self._share_timeouts_of),
        )

    @cached_property
    def _member_memory(self) -> MemberMemory:
        from coordinator.group.member_memory import MemberMemory

        return MemberMemory()

    @property
    def serves_consumer_groups(self) -> bool:
        """Whether the protocol of KIP-848 is on, by the cluster's `group.version` and the broker's settings."""
        protocols = self._config.get_list("group.coordinator.rebalance.protocols")
        on = "consumer" in (protocol.lower() for protocol in protocols)
        return on and self._topics.image.features.get("group.version", 0) >= 1

    @property
    def serves_share_groups(self) -> bool:
        """Whether that of KIP-932 is, by the cluster's `share.version` alone."""
        return serves_share_groups(self._topics.image)

    @property
    def serves_streams_groups(self) -> bool:
        """Whether the protocol of KIP-1071 is on, by the cluster's `streams.version` and the broker's settings."""
        protocols = self._config.get_list("group.coordinator.rebalance.protocols")
        on = "streams" in (protocol.lower() for protocol in protocols)
        return on and self._topics.image.features.get("streams.version", 0) >= 1

    @property
    def consumer_assignors(self) -> tuple[str, ...]:
        return self._settings.consumer_assignors

    @property
    def max_offset_metadata(self) -> int:
        """Of an offset, in characters of Java."""
        return self._settings.offset_metadata_max_length

    @cached_property
    def _settings(self) -> GroupSettings:
        return group_settings(self._config)

    # --- finding --------------------------------------------------------------------------------------------

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that has a group."""
        return self.hosted.partition_of(group_id)

    def shard_of(self, group_id: str) -> GroupShard:
        """Raises KafkaError: NOT_COORDINATOR, also for a partition that can't be read; COORDINATOR_LOAD_IN_PROGRESS for
        one that isn't read yet."""
        return self.hosted.of(group_id)

    def shard_at(self, index: int) -> GroupShard:
        """The shard of a partition of `__consumer_offsets`. Raises as `shard_of`."""
        return self.hosted.at(index)

    def all_shards(self) -> list[GroupShard]:
        """But for those that can't be read: Kafka's ListGroups passes them over, too. Raises KafkaError
        (COORDINATOR_LOAD_IN_PROGRESS) where one of them isn't read yet."""
        return self.hosted.readable()

    # --- asking ---------------------------------------------------------------------------------------------

    def answer(
        self,
        group_id: str,
        question: Callable[[GroupShard], A],
        respond: Callable[[A | KafkaError], R],
    ) -> R | Later[R]:
        """As `ask`, for the one question of a request: the handler's answer, which is what `respond` makes of the
        shard's. Where nobody has to wait that is the response itself, and no `Later` is made."""
        try:
            shard = self.shard_of(group_id)
        except KafkaError as error:
            return respond(error.as_value())
        found: A | KafkaError
        try:
            found = question(shard)
        except KafkaError as error:
            found = error.as_value()
        if shard.gate.is_open:  # `let_out` would come back in the same call
            return respond(found)
        later: Later[R] = Later()
        shard.let_out(found, later.guarded(lambda answer: later.reply(respond(answer))))
        return later.answer()

    def ask(
        self, group_id: str, question: Callable[[GroupShard], A], reply: Callable[[A | KafkaError], None]
    ) -> None:
        """Ask the shard of a group something: see `GroupShard.ask`. The errors of `shard_of` go to `reply`, too."""
        try:
            shard = self.hosted.of(group_id)
        except KafkaError as error:
            reply(error.as_value())
        else:
            shard.ask(question, reply)

    def ask_for_later(
        self,
        group_id: str,
        question: Callable[[GroupShard, Callable[[A], None]], None],
        reply: Callable[[A | KafkaError], None],
    ) -> None:
        """As `ask`, for a question whose answer may come later: see `GroupShard.ask_for_later`."""
        try:
            shard = self.hosted.of(group_id)
        except KafkaError as error:
            reply(error.as_value())
        else:
            shard.ask_for_later(question, reply)

    # --- following the metadata -----------------------------------------------------------------------------

    async def follow(self, changes: TopicChanges) -> None:
        """The metadata changed, and the partitions with it: shards come and go, learn of the topics that changed, and
        forget the offsets of those that were removed. No topic of such a name is created before that is over.

        An offset without a topic id is of the topic that has its name. Where there has been another one since, whoever
        committed it may have meant that: it stays where the removal is history, and where its shard was led elsewhere
        until now. Kafka, too, forgets nothing of what was removed before its first publishing."""
        await self.hosted.follow()
        names, created = self._topics.follow(changes)
        changed = frozenset(names)  # once: there may be a shard for each of thousands of them
        if changed:
            self.hosted.tell(lambda shard: shard.topics_changed(changed, created=created))
        gone = [(each.name, each.topic_id) for each in (*changes.removed, *changes.bygone)]
        if gone:
            just_now = {each.name for each in changes.removed}
            pause = Pause()
            await self.hosted.tell_in_steps(
                lambda shard, is_new: self._forget(shard, gone, () if is_new else just_now, pause)
            )

    def stop_loading(self) -> None:
        """What isn't loaded yet won't be."""
        self.hosted.stop_loading()

    def unload(self) -> None:
        """The node stops: who waits is told NOT_COORDINATOR."""
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
        """A group's own settings, within the broker's bounds, or the broker's."""
        overrides = self._topics.image.configs.get((GROUP_RESOURCE, group_id), {})
        values = group_timeouts(self._config, "consumer", overrides)
        return ConsumerTimeouts(*values)

    def streams_config_of(self, group_id: str) -> StreamsConfig:
        """The same of a streams group."""
        overrides = self._topics.image.configs.get((GROUP_RESOURCE, group_id), {})
        newer = newer_streams_settings(self._config, overrides)
        return StreamsConfig(*streams_config(self._config, overrides), **newer)

    def _share_timeouts_of(self, group_id: str) -> ShareTimeouts:
        """As `_timeouts_of`, of a share group."""
        from coordinator.settings import ShareTimeouts

        overrides = self._topics.image.configs.get((GROUP_RESOURCE, group_id), {})
        return ShareTimeouts(*group_timeouts(self._config, "share", overrides))


NEWER_STREAMS_SETTINGS = {
    "rack_tags": "rack.aware.assignment.tags",
    "num_warmup_replicas": "num.warmup.replicas",
    "task_offset_interval_ms": "task.offset.interval.ms",
    "acceptable_recovery_lag": "acceptable.recovery.lag",
}
"""What Kafka 4.4 has for streams groups besides: by the names of `StreamsConfig`."""


def newer_streams_settings(config: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, Any]:
    """Those that a group has, or that the broker knows."""
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
    """The coordinator's settings; none of them can be altered while the broker runs."""
    from coordinator.settings import GroupSettings  # with the first shard, as all of the coordinator

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
    """Who sent a request, as a coordinator knows it."""
    return Client(
        context.client_id or "",
        f"/{context.connection.peer_host}",
        context.api_version,
        may_describe=partial(authorizer.allows, context, DESCRIBE, TOPIC),
    )

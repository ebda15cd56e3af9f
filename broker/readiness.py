"""Requests that come before this node is what the metadata says it is: they wait for that.

A client is told of a topic, a leader or a coordinator by metadata that is committed. Partitions and shards follow it in
steps, and a shard is loaded in turns of the loop, in a node that has just started or been elected most of all. Whoever
asks for them meanwhile would be told NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, NOT_COORDINATOR or
COORDINATOR_LOAD_IN_PROGRESS, as by Kafka, and come again: after 3 s, with some settings of librdkafka. Here the request
waits instead, before anything is done of it, and its connection with it. After `LONGEST_WAIT_S`, or where too many wait
already, it is handled as things are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from broker.coordination.groups import OFFSETS_TOPIC
from broker.coordination.share_states import SHARE_STATE_TOPIC
from broker.coordination.transactions import TRANSACTION_TOPIC
from broker.network.later import Later
from broker.replicas.leader import Leader
from coordinator.java.hashes import partition_of_key
from coordinator.share.share_partition_key import SharePartitionKey
from protocol.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from broker.controller.image import TopicImage
    from broker.controller.metadata_log import MetadataLog
    from broker.coordination.hosted_shards import HostedShards
    from broker.environment.scheduler import Scheduled, Scheduler
    from broker.replicas.partitions import Partitions

LONGEST_WAIT_S = 3.0
"""Well within what clients wait for an answer."""

MOST_WAITING = 10_000
"""Requests. Each connection has one at most, and what a client has sent that has hung up since."""

Ready: TypeAlias = "Callable[[Readiness, Any], bool]"
"""Whether all is here that the request needs, as far as it will be."""


class Readiness:
    """Who waits for what the metadata says to be so here."""

    def __init__(
        self,
        node_id: int,
        metadata: MetadataLog,
        partitions: Partitions,
        hosted: Mapping[str, HostedShards[Any]],
        scheduler: Scheduler,
    ) -> None:
        """`hosted`: the shards of each internal topic."""
        self._node_id = node_id
        self._metadata = metadata
        self._partitions = partitions
        self._scheduler = scheduler
        self._hosted = hosted
        self._waiting: dict[Later[Any], tuple[Ready, Any, Scheduled]] = {}
        self.needs = NEEDS
        self.is_behind = False
        """Whether anything is followed or loaded just now: else there is nothing to wait for."""
        metadata.following.told.append(self._look)
        for shards in hosted.values():
            shards.on_loaded = self._look

    def wait(self, ready: Ready, request: Any) -> Later[tuple[Any, int]] | None:
        """Answered with the request, and 0, once it may be handled; None where it may be at once."""
        if not self.is_behind or len(self._waiting) >= MOST_WAITING or ready(self, request):
            return None
        later: Later[tuple[Any, int]] = Later()
        timer = self._scheduler.call_later(LONGEST_WAIT_S, partial(self._let_go, later))
        self._waiting[later] = ready, request, timer
        return later

    def stop(self) -> None:
        """Nobody is answered any more."""
        for _, _, timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()

    def _look(self) -> None:
        """Something is followed or loaded from now on, or isn't any more: in the order in which they came."""
        self.is_behind = is_behind = (
            self._metadata.following.is_behind
            or any(hosted.is_loading for hosted in self._hosted.values())
            or (self._may_lag and not all(topic in self._metadata.image.topics for topic in self._hosted))
        )
        for later, (ready, request, _) in [*self._waiting.items()]:
            if not is_behind or ready(self, request):
                self._let_go(later)

    def _let_go(self, later: Later[tuple[Any, int]]) -> None:
        _, request, timer = self._waiting.pop(later)
        timer.cancel()
        later.reply((request, 0))

    @property
    def _may_lag(self) -> bool:
        """Whether others may know of metadata that hasn't come here yet."""
        return not self._metadata.is_leader

    # --- what is here ---------------------------------------------------------------------------------------

    def has_shard(self, internal_topic: str, key: str) -> bool:
        """False for the shard of a key that is loaded just now, or will be once the metadata is followed; and where the
        topic isn't known yet to a broker that is asked for it all the same: who asks has been told of it elsewhere."""
        hosted = self._hosted[internal_topic]
        is_loading = hosted.is_loading_shard_of(key)
        if is_loading is not None:
            return not is_loading
        topic = self._metadata.image.topics.get(internal_topic)
        if topic is None:
            return not self._may_lag
        if not topic.partitions or not self._metadata.following.is_behind:
            return True
        partition = topic.partitions.get(partition_of_key(key, len(topic.partitions)))
        return partition is None or partition.leader != self._node_id

    def has_all_shards(self, internal_topic: str) -> bool:
        """Whether none of them is loaded just now, or will be."""
        return not self._hosted[internal_topic].is_loading and not self.is_to_follow(internal_topic)

    def is_to_follow(self, name: str) -> bool:
        """Whether it isn't seen yet here that the topic is there."""
        topic = self._metadata.image.topics.get(name)
        return (
            topic is not None
            and self._metadata.following.is_behind
            and topic.topic_id not in self._partitions.by_id
        )

    def leads(self, name: str, topic_id: bytes, indexes: Iterable[int]) -> bool:
        """False where one of the topic's partitions will be led here once the metadata is followed, and isn't yet. The
        name counts where there is no id."""
        image = self._metadata.image
        topic = image.topics.get(name) if topic_id == ZERO_UUID else image.topics_by_id.get(topic_id)
        return topic is None or all(self._leads(topic, index) for index in indexes)

    def _leads(self, topic: TopicImage, index: int) -> bool:
        wanted = topic.partitions.get(index)
        if wanted is None or wanted.leader != self._node_id:
            return True
        hosted = self._partitions.by_id.get(topic.topic_id)
        partition = None if hosted is None else hosted.partitions.get(index)
        return partition is not None and isinstance(partition.role, Leader)


# --- what requests need -----------------------------------------------------------------------------------------


def _groups(ids: Callable[[Any], Iterable[str]]) -> Ready:
    return lambda here, request: all(here.has_shard(OFFSETS_TOPIC, each) for each in ids(request))


def _transactions(ids: Callable[[Any], Iterable[str | None]]) -> Ready:
    return lambda here, request: all(
        here.has_shard(TRANSACTION_TOPIC, each) for each in ids(request) if each is not None
    )


def _share_states(here: Readiness, request: Any) -> bool:
    return all(
        here.has_shard(
            SHARE_STATE_TOPIC, SharePartitionKey(request.group_id, topic.topic_id, each.partition).text
        )
        for topic in request.topics
        for each in topic.partitions
    )


def _partitions(
    index: str, *, topics: str = "topics", name: str = "name", partitions: str = "partitions"
) -> Ready:
    """By the names of the fields; without a name for the index the partitions are numbers."""

    def ready(here: Readiness, request: Any) -> bool:
        if not here._metadata.following.is_behind:
            return True
        return all(
            here.leads(
                getattr(topic, name, ""),
                getattr(topic, "topic_id", ZERO_UUID),
                [getattr(each, index) if index else each for each in getattr(topic, partitions)],
            )
            for topic in getattr(request, topics)
        )

    return ready


_produced = _partitions("index", topics="topic_data", partitions="partition_data")
_transactional = _transactions(lambda request: [request.transactional_id])
_fetched = _partitions("partition", name="topic")


def _produce(here: Readiness, request: Any) -> bool:
    """The coordinator is asked, too, whether the transaction has the partition."""
    return _transactional(here, request) and _produced(here, request)


def _fetch(here: Readiness, request: Any) -> bool:
    """A follower asks for much besides, and comes again by itself."""
    replica = request.replica_id if request.replica_state is None else request.replica_state.replica_id
    return replica >= 0 or _fetched(here, request)


_COORDINATED = {0: OFFSETS_TOPIC, 1: TRANSACTION_TOPIC, 2: SHARE_STATE_TOPIC}


def _find_coordinator(here: Readiness, request: Any) -> bool:
    """How many partitions the topic has is known once it is followed."""
    topic = _COORDINATED.get(request.key_type)
    return topic is None or not here.is_to_follow(topic)


_one_group = _groups(lambda request: [request.group_id])
_described_groups = _groups(lambda request: request.group_ids)

NEEDS: dict[str, Ready] = {
    **dict.fromkeys(
        (
            *("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetDelete"),
            *("TxnOffsetCommit", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat"),
            *("AlterShareGroupOffsets", "DeleteShareGroupOffsets"),
        ),
        _one_group,
    ),
    **dict.fromkeys(
        ("ConsumerGroupDescribe", "ShareGroupDescribe", "StreamsGroupDescribe"), _described_groups
    ),
    "OffsetFetch": _groups(
        lambda request: [group.group_id for group in request.groups] or [request.group_id]
    ),
    "DescribeGroups": _groups(lambda request: request.groups),
    "DeleteGroups": _groups(lambda request: request.groups_names),
    "DescribeShareGroupOffsets": _groups(lambda request: [group.group_id for group in request.groups]),
    "ListGroups": lambda here, request: here.has_all_shards(OFFSETS_TOPIC),
    **dict.fromkeys(("InitProducerId", "AddOffsetsToTxn", "EndTxn"), _transactional),
    "AddPartitionsToTxn": _transactions(
        lambda request: (
            [each.transactional_id for each in request.transactions]
            or [request.v3_and_below_transactional_id]
        )
    ),
    "DescribeTransactions": _transactions(lambda request: request.transactional_ids),
    "ListTransactions": lambda here, request: here.has_all_shards(TRANSACTION_TOPIC),
    **dict.fromkeys(
        (
            *("InitializeShareGroupState", "ReadShareGroupState", "WriteShareGroupState"),
            *("DeleteShareGroupState", "ReadShareGroupStateSummary"),
        ),
        _share_states,
    ),
    "FindCoordinator": _find_coordinator,
    "Produce": _produce,
    "Fetch": _fetch,
    "ListOffsets": _partitions("partition_index"),
    "OffsetForLeaderEpoch": _partitions("partition", name="topic"),
    "DeleteRecords": _partitions("partition_index"),
    "DescribeProducers": _partitions("", partitions="partition_indexes"),
    "ShareFetch": _partitions("partition_index"),
}
"""By the names of APIs."""

"""Requests that come before this node has followed the metadata: they wait for that.

Clients learn of topics, leaders and coordinators from committed metadata. Partitions and shards follow it in
steps, and loading a shard takes turns of the loop, above all after a start or an election. Kafka answers a
request that comes earlier NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, NOT_COORDINATOR or
COORDINATOR_LOAD_IN_PROGRESS. Clients then try again, with some settings of librdkafka only after 3 s. Here
the request waits instead, before anything is done for it, and so does its connection. After `LONGEST_WAIT_S`,
or if too many requests wait already, it is handled as things are. If its client hangs up meanwhile, it is
never handled, as if it had been refused. The exception is Produce: a producer with acks=0 may hang up as soon
as it has sent.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from broker.coordination.groups import OFFSETS_TOPIC
from broker.coordination.share_states import SHARE_STATE_TOPIC
from broker.coordination.transactions import TRANSACTION_TOPIC
from broker.replicas.leader import Leader
from coordinator.java.maps import partition_of_key
from coordinator.share.share_partition_key import SharePartitionKey
from protocol.waiting import Later
from protocol.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from broker.controller.image import TopicImage
    from broker.controller.metadata_log import MetadataLog
    from broker.coordination.hosted_shards import HostedShards
    from broker.environment.scheduler import Scheduled, Scheduler
    from broker.replicas.partitions import Partitions

LONGEST_WAIT_S = 3.0
"""Well within the time that clients wait for an answer."""

LONGEST_LAG_S = 0.5
"""For metadata that another node has told the client of, but that isn't here yet. It may never come."""

MOST_WAITING = 10_000
"""Each connection has one waiting request at most, and possibly one of a producer that has hung up."""

MOST_LOOKED_AT = 200
"""The most groups, transactional ids or partitions of a request to look at, from the first on: this is done
in passing."""

_FOLLOWED = "followed"
"""What a request waits for if the node still has to follow the metadata."""

Lacks: TypeAlias = "Callable[[EarlyRequests, Any], Hashable]"
"""Returns what the request needs that isn't here yet, identified by when it comes. None if nothing is
missing."""


class _Waiting(NamedTuple):
    lacks: Lacks
    request: Any
    timer: Scheduled


class EarlyRequests:
    """The waiting requests, by what they wait for. A request's answer is True if it has waited in vain."""

    def __init__(
        self,
        node_id: int,
        metadata: MetadataLog,
        partitions: Partitions,
        hosted: Mapping[str, HostedShards[Any]],
        scheduler: Scheduler,
    ) -> None:
        """`hosted` are the shards of each internal topic."""
        self._node_id = node_id
        self._metadata = metadata
        self._partitions = partitions
        self._scheduler = scheduler
        self._hosted = hosted
        self._waiting: dict[Hashable, dict[Later[bool], _Waiting]] = {}
        self._count = 0
        self.needs = NEEDS
        self.is_behind = False
        """True while anything is being followed or loaded."""
        self.unheard_of: frozenset[str | None] = frozenset()
        """Internal topics that other nodes may already know."""
        metadata.following.told.append(self._follows)
        for topic, shards in hosted.items():
            shards.on_loaded = partial(self._loaded, topic)

    def wait(self, lacks: Lacks, request: Any) -> Later[bool] | None:
        """Have the request wait. Returns None if it can be handled at once."""
        if self._count >= MOST_WAITING:
            return None
        lacking = lacks(self, request)
        if lacking is None:
            return None
        later: Later[bool] = Later()
        longest_s = LONGEST_LAG_S if lacking in self.unheard_of else LONGEST_WAIT_S
        timer = self._scheduler.call_later(longest_s, partial(self._give_up, later))
        later.on_abandon = partial(self._withdraw, later)
        self._count += 1
        self._waiting.setdefault(lacking, {})[later] = _Waiting(lacks, request, timer)
        return later

    def soon(self, callback: Callable[[], object]) -> None:
        """Call back in a later turn, for callers that do more with an answer than note it."""
        self._scheduler.call_soon(callback)

    def stop(self) -> None:
        """Stop: nothing is answered any more."""
        for lacking in self._waiting.values():
            for waiting in lacking.values():
                waiting.timer.cancel()
        self._waiting.clear()

    def _follows(self) -> None:
        """Look again: the node begins to follow the metadata, or has followed all of it."""
        self._look()
        for lacking in [*self._waiting]:
            self._look_again(lacking)

    def _loaded(self, topic: str, index: int) -> None:
        """Look again: the shard of a partition is here, or won't be."""
        self._look()
        self._look_again((topic, index))
        if not self._hosted[topic].is_loading:
            self._look_again((topic, None))

    def _look(self) -> None:
        topics = self._metadata.image.topics
        self.is_behind = self._metadata.following.is_behind or any(
            hosted.is_loading for hosted in self._hosted.values()
        )
        missing = (topic for topic in self._hosted if topic not in topics)
        self.unheard_of = frozenset(missing if self._may_lag else ())

    @property
    def _may_lag(self) -> bool:
        """True if other nodes may know of metadata that isn't here yet."""
        return not self._metadata.is_leader

    def _look_again(self, lacking: Hashable) -> None:
        """Look again at waiting requests, in the order in which they came. If one still misses something, it
        waits for that."""
        for later, waiting in self._waiting.pop(lacking, {}).items():
            still = waiting.lacks(self, waiting.request)
            if still is not None:
                self._waiting.setdefault(still, {})[later] = waiting
                continue
            waiting.timer.cancel()
            self._count -= 1
            later.reply(False)

    def _give_up(self, later: Later[bool]) -> None:
        self._withdraw(later)
        later.reply(True)

    def _withdraw(self, later: Later[bool]) -> None:
        for lacking, of_it in self._waiting.items():
            waiting = of_it.pop(later, None)
            if waiting is not None:
                waiting.timer.cancel()
                self._count -= 1
                if not of_it:
                    del self._waiting[lacking]
                return

    # --- what a request may wait for ------------------------------------------------------------------------

    def shard(self, topic: str, key: str) -> Hashable:
        """The shard of a key, if it is being loaded or will be once the metadata is followed.

        Or the internal topic, if it isn't known here yet: the client was sent here by a node that knows it.
        """
        loading = self._hosted[topic].loading_partition_of(key)
        if loading is not None:
            return None if loading < 0 else (topic, loading)
        image = self._metadata.image.topics.get(topic)
        if image is None:
            return topic if topic in self.unheard_of else None
        if not image.partitions or not self._metadata.following.is_behind:
            return None
        partition = image.partitions.get(partition_of_key(key, len(image.partitions)))
        return None if partition is None or partition.leader != self._node_id else _FOLLOWED

    def any_shard(self, topic: str) -> Hashable:
        """A shard that is being loaded, or will be."""
        return (topic, None) if self._hosted[topic].is_loading else self.topic(topic)

    def topic(self, name: str) -> Hashable:
        """A topic that exists but hasn't been followed yet."""
        image = self._metadata.image.topics.get(name)
        is_to_follow = (
            image is not None
            and self._metadata.following.is_behind
            and image.topic_id not in self._partitions.by_id
        )
        return _FOLLOWED if is_to_follow else None

    def leader(self, name: str, topic_id: bytes, indexes: Iterable[int]) -> Hashable:
        """A partition of the topic that this node will lead once the metadata is followed. The name counts if
        there is no id."""
        if not self._metadata.following.is_behind:
            return None
        image = self._metadata.image
        topic = image.topics.get(name) if topic_id == ZERO_UUID else image.topics_by_id.get(topic_id)
        led = topic is None or all(self._leads(topic, index) for index in indexes)
        return None if led else _FOLLOWED

    def _leads(self, topic: TopicImage, index: int) -> bool:
        wanted = topic.partitions.get(index)
        if wanted is None or wanted.leader != self._node_id:
            return True
        hosted = self._partitions.by_id.get(topic.topic_id)
        partition = None if hosted is None else hosted.partitions.get(index)
        return partition is not None and isinstance(partition.role, Leader)


# --- what requests need -------------------------------------------------------------------------------------


class Need(NamedTuple):
    """What an API's requests need."""

    lacks: Lacks
    internal_topic: str | None = None
    """The internal topic of the coordinators that handle them."""


def _first(found: Iterable[Hashable]) -> Hashable:
    return next((each for each in islice(found, MOST_LOOKED_AT) if each is not None), None)


def _shards(topic: str, keys: Callable[[Any], Iterable[str | None]]) -> Need:
    return Need(
        lambda here, request: _first(here.shard(topic, key) for key in keys(request) if key is not None),
        topic,
    )


def _groups(ids: Callable[[Any], Iterable[str]]) -> Need:
    return _shards(OFFSETS_TOPIC, ids)


def _transactions(ids: Callable[[Any], Iterable[str | None]]) -> Need:
    return _shards(TRANSACTION_TOPIC, ids)


def _share_state_keys(request: Any) -> Iterable[str]:
    return (
        SharePartitionKey(request.group_id, topic.topic_id, each.partition).text
        for topic in request.topics
        for each in topic.partitions
    )


def _partitions(
    index: str, *, topics: str = "topics", name: str = "name", partitions: str = "partitions"
) -> Need:
    """Return the need for partitions. The arguments are names of fields. With an empty `index`, partitions
    are numbers."""

    def lacks(here: EarlyRequests, request: Any) -> Hashable:
        return _first(
            here.leader(
                getattr(topic, name, ""),
                getattr(topic, "topic_id", ZERO_UUID),
                [getattr(each, index) if index else each],
            )
            for topic in getattr(request, topics)
            for each in getattr(topic, partitions)
        )

    return Need(lacks)


_transactional = _transactions(lambda request: [request.transactional_id])
_produced = _partitions("index", topics="topic_data", partitions="partition_data")
_fetched = _partitions("partition", name="topic")


def _produce(here: EarlyRequests, request: Any) -> Hashable:
    """The coordinator is needed, too: it is asked whether the transaction has the partition."""
    lacking = _transactional.lacks(here, request)
    return _produced.lacks(here, request) if lacking is None or lacking in here.unheard_of else lacking


def _fetch(here: EarlyRequests, request: Any) -> Hashable:
    """Followers don't wait: they ask for many partitions, and come again by themselves."""
    replica = request.replica_id if request.replica_state is None else request.replica_state.replica_id
    return None if replica >= 0 else _fetched.lacks(here, request)


_COORDINATED = {0: OFFSETS_TOPIC, 1: TRANSACTION_TOPIC, 2: SHARE_STATE_TOPIC}


def _find_coordinator(here: EarlyRequests, request: Any) -> Hashable:
    """The number of the topic's partitions is known once it is followed."""
    topic = _COORDINATED.get(request.key_type)
    return None if topic is None else here.topic(topic)


_one_group = _groups(lambda request: [request.group_id])
_described_groups = _groups(lambda request: request.group_ids)

NEEDS: dict[str, Need] = {
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
    "ListGroups": Need(lambda here, request: here.any_shard(OFFSETS_TOPIC)),
    **dict.fromkeys(("InitProducerId", "AddOffsetsToTxn", "EndTxn"), _transactional),
    "AddPartitionsToTxn": _transactions(
        lambda request: (
            [each.transactional_id for each in request.transactions]
            or [request.v3_and_below_transactional_id]
        )
    ),
    "DescribeTransactions": _transactions(lambda request: request.transactional_ids),
    "ListTransactions": Need(lambda here, request: here.any_shard(TRANSACTION_TOPIC)),
    **dict.fromkeys(
        (
            *("InitializeShareGroupState", "ReadShareGroupState", "WriteShareGroupState"),
            *("DeleteShareGroupState", "ReadShareGroupStateSummary"),
        ),
        _shards(SHARE_STATE_TOPIC, _share_state_keys),
    ),
    "FindCoordinator": Need(_find_coordinator),
    "Produce": Need(_produce),
    "Fetch": Need(_fetch),
    "ListOffsets": _partitions("partition_index"),
    "OffsetForLeaderEpoch": _partitions("partition", name="topic"),
    "DeleteRecords": _partitions("partition_index"),
    "DescribeProducers": _partitions("", partitions="partition_indexes"),
    "ShareFetch": _partitions("partition_index"),
}
"""By the names of APIs."""

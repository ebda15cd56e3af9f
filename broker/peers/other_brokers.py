"""Channels to the cluster's other brokers: leaders that this one follows and asks for end offsets, leaders
that get markers, and the coordinators of transactions and share groups.

Each purpose has channels of its own. A channel sends its broker one request at a time, and gathers new items
for the next one.

Source: `InterBrokerSendThread`, of `TransactionMarkerChannelManager` and `AddPartitionsToTxnManager`.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from broker.controller.image import NO_LEADER, alive_node
from broker.coordination.transactions import TRANSACTION_TOPIC
from broker.peers.opening import OPEN, Entrance
from broker.peers.peer import OnePeer, PeerSettings
from broker.peers.replica_fetcher_manager import ReplicaFetchers
from broker.replicas.replica_fetcher import FetchSettings
from protocol.errors import Error, KafkaError, error_of, tell_each
from protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.topic_partition import indexes_by_topic
from protocol.waiting import Later, carry_on

if TYPE_CHECKING:
    from collections.abc import Hashable

    from broker.config.broker_config import BrokerConfig
    from broker.controller.broker_records import BrokerIncarnation
    from broker.controller.image import ClusterImage, TopicChanges
    from broker.coordination.latest_offsets import AskLatestOffset
    from broker.coordination.produce_verification import AskElsewhere
    from broker.coordination.share_persister import AskShareStates, ShareStateAsk
    from broker.environment.environment import Environment
    from broker.environment.network import Network
    from broker.environment.scheduler import Scheduler
    from broker.fault_handler import FaultHandler
    from broker.quotas import ReplicationQuota
    from broker.replicas.partitions import Partitions
    from broker.shares.dead_letters import Produced, ProduceElsewhere
    from coordinator.ports import MarkerAnswers, Markers, TxnMarker
    from coordinator.transaction.producer_ids import TransactionalProducer
    from protocol.topic_partition import TopicPartition
    from protocol.wire.schema import Message, Struct

    Errors = Mapping[TopicPartition, Error]

log = logging.getLogger("barnabas.peers")


T = TypeVar("T")

MOST_SAID_AT_ONCE = 1_000
"""The most items in a request. Kafka has no limit."""


class _Channel(Generic[T]):
    """The channel to one broker."""

    __slots__ = ("is_busy", "peer", "waiting")

    def __init__(self, peer: OnePeer) -> None:
        self.peer = peer
        self.waiting: dict[Hashable, T] = {}
        self.is_busy = False


class BrokerChannels(Generic[T]):
    """The channels for one purpose."""

    def __init__(
        self,
        image: ClusterImage,
        listener_name: str,
        settings: PeerSettings,
        network: Network,
        scheduler: Scheduler,
        *,
        request_of: Callable[[Sequence[T]], Message],
        answered: Callable[[Sequence[T], Message | KafkaError], None],
        together: Callable[[Sequence[T]], int] = len,
    ) -> None:
        """`listener_name` is the listener for connections between brokers.

        `answered` is called in a later turn with some items and their answer, or a KafkaError:
        NETWORK_EXCEPTION (also if the broker isn't alive), REQUEST_TIMED_OUT, UNSUPPORTED_VERSION. `together`
        returns how many of the first items go into one request, at least one.
        """
        self._image = image
        self._listener_name = listener_name
        self._settings = settings
        self._network = network
        self._scheduler = scheduler
        self._request_of = request_of
        self._answered = answered
        self._together = together
        self._channels: dict[int, _Channel[T]] = {}
        self._is_stopped = False

    def waiting(self, node_id: int, key: Hashable) -> T | None:
        """Return the item with this key that isn't sent yet, or None."""
        channel = self._channels.get(node_id)
        return None if channel is None else channel.waiting.get(key)

    def say(self, node_id: int, item: T, key: Hashable | None = None) -> None:
        """Send an item to this broker, once it has answered the request before. The item replaces a waiting
        one with the same key, which gets no answer then. With None, it replaces nothing."""
        if self._is_stopped:
            return
        channel = self._channels.get(node_id)
        if channel is None:
            peer = OnePeer(self._settings, self._network, self._scheduler)
            channel = self._channels[node_id] = _Channel(peer)
        channel.waiting[object() if key is None else key] = item
        if not channel.is_busy:
            channel.is_busy = True
            self._scheduler.call_soon(self._begin, node_id, channel)  # with the other items of this turn

    def stop(self) -> None:
        """Stop: nothing is answered any more."""
        self._is_stopped = True
        for channel in self._channels.values():
            channel.peer.stop()
        self._channels.clear()

    def _begin(self, node_id: int, channel: _Channel[T]) -> None:
        if not self._is_stopped:
            carry_on(self._send_all(node_id, channel))

    async def _send_all(self, node_id: int, channel: _Channel[T]) -> None:
        """Send one request after the other, until nothing waits."""
        while items := self._next(channel):
            answer: Message | KafkaError
            try:
                answer = await self._ask(node_id, channel, self._request_of(items))
            except KafkaError as error:
                answer = error
            if self._is_stopped:
                return
            try:
                self._answered(items, answer)
            except BaseException:
                self._begin(node_id, channel)  # the waiting items are still sent
                raise
        channel.is_busy = False

    def _next(self, channel: _Channel[T]) -> list[T]:
        items = [*islice(channel.waiting.values(), MOST_SAID_AT_ONCE)]
        items = items[: self._together(items)] if items else items
        for key in [*islice(channel.waiting, len(items))]:
            del channel.waiting[key]
        return items

    async def _ask(self, node_id: int, channel: _Channel[T], request: Message) -> Message:
        node = alive_node(self._image, node_id, self._listener_name)
        if node is None:
            error = KafkaError(Error.NETWORK_EXCEPTION, f"broker {node_id} isn't alive")
            refused: Later[Message] = Later()
            self._scheduler.call_soon(refused.fail, error)
            return await refused
        return await channel.peer.at(node.host, node.port).ask(request)


# --- End offsets of partitions, from their leaders (`NetworkPartitionMetadataClient`) -----------------------


_CONSUMER = -1
_LATEST_TIMESTAMP = -1


class _AskedFor(NamedTuple):
    partition: TopicPartition
    answer: Later[int | KafkaError]


class LatestOffsetChannels:
    """Channels to the leaders of partitions."""

    def __init__(self, channels: Callable[..., BrokerChannels[_AskedFor]]) -> None:
        self._channels = channels(request_of=_offsets_request, answered=_offsets_answered)

    def ask(self, node_id: int, partition: TopicPartition) -> Later[int | KafkaError]:
        """See `AskLatestOffset`."""
        answer: Later[int | KafkaError] = Later()
        self._channels.say(node_id, _AskedFor(partition, answer))
        return answer

    def stop(self) -> None:
        """Stop: nothing is answered any more."""
        self._channels.stop()


def _offsets_request(asked: Sequence[_AskedFor]) -> ListOffsetsRequest:
    wanted = dict.fromkeys(each.partition for each in asked)
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        topics=[
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=_LATEST_TIMESTAMP)
                    for index in indexes
                ],
            )
            for name, indexes in indexes_by_topic(wanted).items()
        ],
    )


def _offsets_answered(asked: Sequence[_AskedFor], answer: Any) -> None:
    told: dict[TopicPartition, int | KafkaError] = {}
    otherwise = KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, "The leader doesn't know the partition.")
    if isinstance(answer, KafkaError):
        otherwise = answer
    else:
        for topic in answer.topics:
            for found in topic.partitions:
                said: int | KafkaError = found.offset
                if found.error_code:
                    said = KafkaError(error_of(found.error_code), "The leader can't tell.")
                told[topic.name, found.partition_index] = said
    tell_each(
        asked,
        lambda each: each.answer.reply(told.get(each.partition, otherwise)),
        log,
        "a callback for a partition's end offset failed",
    )


# --- Dead letters of share groups' records, to the leaders of their topics (`ShareGroupDLQStateManager`) ----

_ALL_IN_SYNC = -1
_PRODUCE_TIMEOUT_MS = 30_000
MOST_PRODUCED_BYTES = 8 << 20
"""The most bytes of record batches in one request, unless a single batch is larger."""


class DeadLetterChannels:
    """Channels to the leaders of partitions."""

    def __init__(self, channels: Callable[..., BrokerChannels[Produced]]) -> None:
        self._channels = channels(
            request_of=_produce_request, answered=_produce_answered, together=_produced_together
        )

    def produce(self, node_id: int, produced: Produced) -> None:
        """See `ProduceElsewhere`."""
        self._channels.say(node_id, produced)

    def stop(self) -> None:
        """Stop: nothing is answered any more."""
        self._channels.stop()


def _produced_together(produced: Sequence[Produced]) -> int:
    """How many of the first items go into one request. By the rules of Produce, that is one batch for each
    partition."""
    seen = set()
    size = 0
    for count, each in enumerate(produced):
        size += len(each.batch)
        if (each.topic_id, each.partition) in seen or (count and size > MOST_PRODUCED_BYTES):
            return count
        seen.add((each.topic_id, each.partition))
    return len(produced)


def _produce_request(produced: Sequence[Produced]) -> ProduceRequest:
    by_topic: dict[bytes, TopicProduceData] = {}
    for each in produced:
        topic = by_topic.get(each.topic_id)
        if topic is None:
            topic = by_topic[each.topic_id] = TopicProduceData(
                name=each.name, topic_id=each.topic_id, partition_data=[]
            )
        data = PartitionProduceData(index=each.partition, records=memoryview(each.batch))
        topic.partition_data.append(data)
    return ProduceRequest(acks=_ALL_IN_SYNC, timeout_ms=_PRODUCE_TIMEOUT_MS, topic_data=[*by_topic.values()])


def _produce_answered(produced: Sequence[Produced], answer: Any) -> None:
    told: dict[tuple[bytes | str, int], Error] = {}
    otherwise = Error.UNKNOWN_SERVER_ERROR
    if isinstance(answer, KafkaError):
        otherwise = answer.error
    else:
        for topic in answer.responses:
            for found in topic.partition_responses:
                for named in (topic.topic_id, topic.name):
                    told[named, found.index] = error_of(found.error_code)

    def tell(each: Produced) -> None:
        by_name = told.get((each.name, each.partition), otherwise)
        each.answer.reply(told.get((each.topic_id, each.partition), by_name))

    tell_each(produced, tell, log, "a callback for a share partition's dead letters failed")


# --- Markers for partitions that other brokers lead ---------------------------------------------------------
#
# Source: `TransactionMarkerChannelManager`, `TransactionMarkerRequestCompletionHandler`.


class _Sent(NamedTuple):
    marker: TxnMarker
    partitions: Sequence[TopicPartition]
    done: Callable[[MarkerAnswers], None]


class MarkerChannels:
    """The port `coordinator.ports.Markers` in a cluster: each marker goes to the partition's leader."""

    def __init__(
        self,
        node_id: int,
        image: ClusterImage,
        own: Markers,
        channels: Callable[..., BrokerChannels[_Sent]],
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._own = own
        self._channels = channels(request_of=_markers_request, answered=_markers_answered)

    def write(
        self,
        marker: TxnMarker,
        partitions: Sequence[TopicPartition],
        done: Callable[[MarkerAnswers], None],
    ) -> None:
        """See the port."""
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for name in partitions:
            by_leader[self._leader_of(name)].append(name)
        without = by_leader.pop(NO_LEADER, ())
        own = by_leader.pop(self._node_id, ())
        for leader_id, some in by_leader.items():
            self._channels.say(leader_id, _Sent(marker, some, done))
        try:
            if without:
                done(dict.fromkeys(without, Error.NOT_LEADER_OR_FOLLOWER))
        finally:
            if own:
                self._own.write(marker, own, done)

    def stop(self) -> None:
        """Send nothing more."""
        self._channels.stop()

    def _leader_of(self, name: TopicPartition) -> int:
        topic, index = name
        image = self._image.topics.get(topic)
        partition = None if image is None else image.partitions.get(index)
        return self._node_id if partition is None else partition.leader  # missing ones are answered here


def _markers_request(sent: Sequence[_Sent]) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=each.marker.producer_id,
                producer_epoch=each.marker.producer_epoch,
                transaction_result=each.marker.commit,
                topics=[
                    WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                    for name, indexes in indexes_by_topic(each.partitions).items()
                ],
                coordinator_epoch=each.marker.coordinator_epoch,
                transaction_version=each.marker.transaction_version,
            )
            for each in sent
        ]
    )


def _markers_answered(sent: Sequence[_Sent], answer: Message | KafkaError) -> None:
    """Pass on the results. The transaction coordinator sends markers without an answer again (`MARKER_REACTIONS`)."""
    told: dict[tuple[int, str, int], Error] = {}
    if isinstance(answer, WriteTxnMarkersResponse):
        for marker in answer.markers:
            for topic in marker.topics:
                for partition in topic.partitions:
                    key = marker.producer_id, topic.name, partition.partition_index
                    told[key] = error_of(partition.error_code)

    def tell(each: _Sent) -> None:
        of = each.marker.producer_id
        each.done({name: told.get((of, *name), Error.REQUEST_TIMED_OUT) for name in each.partitions})

    tell_each(sent, tell, log, "a callback for a transaction's markers failed")


# --- Share states -------------------------------------------------------------------------------------------
# Requests to the share coordinators on other nodes. One request is about one group, with all its share
# partitions that were asked about in a row. Source: `PersisterStateManager`; KIP-932.


class _Said(NamedTuple):
    asked: ShareStateAsk
    answer: Later[Any]


class ShareStateChannels:
    """Channels to the share coordinators."""

    def __init__(self, channels: Callable[..., BrokerChannels[_Said]]) -> None:
        self._channels = channels(
            request_of=_share_states_request, answered=_share_states_answered, together=_together
        )

    def ask(self, node_id: int, asked: ShareStateAsk) -> Later[Any]:
        """See `AskShareStates`."""
        answer: Later[Any] = Later()
        self._channels.say(node_id, _Said(asked, answer))
        return answer

    def stop(self) -> None:
        """Stop: nothing is answered any more."""
        self._channels.stop()


def _together(said: Sequence[_Said]) -> int:
    """How many of the first items go into one request: the same question about one group, and no share
    partition twice."""
    first = said[0].asked
    seen = set()
    for count, (asked, _) in enumerate(said):
        if asked.kind is not first.kind or asked.key.group_id != first.key.group_id or asked.key in seen:
            return count
        seen.add(asked.key)
    return len(said)


def _share_states_request(said: Sequence[_Said]) -> Message:
    by_topic: dict[bytes, list[Struct]] = {}
    for asked, _ in said:
        by_topic.setdefault(asked.key.topic_id, []).append(asked.part())
    first = said[0].asked
    kind = first.kind
    topics = [kind.of_topic(topic_id=topic_id, partitions=parts) for topic_id, parts in by_topic.items()]
    return kind.request(group_id=first.key.group_id, topics=topics)


def _share_states_answered(said: Sequence[_Said], answer: Any) -> None:
    if isinstance(answer, KafkaError):
        if answer.error is Error.UNSUPPORTED_VERSION:  # that node will never answer it
            answer = KafkaError(Error.UNKNOWN_SERVER_ERROR, answer.message)
        _tell(said, lambda _: answer)
        return
    results = {
        (topic.topic_id, result.partition): result for topic in answer.results for result in topic.partitions
    }
    _tell(said, lambda asked: asked.answer_in(results))


def _tell(said: Sequence[_Said], answer_to: Callable[[ShareStateAsk], Any]) -> None:
    tell_each(
        said,
        lambda each: each.answer.reply(answer_to(each.asked)),
        log,
        "a callback for a share coordinator's answer failed",
    )


# --- Transactions -------------------------------------------------------------------------------------------
# A partition's leader asks a transaction's coordinator on another node whether the partition is in the
# transaction, or to add it. Source: `AddPartitionsToTxnManager`; AddPartitionsToTxn v4, v5.


class _Asked(NamedTuple):
    producer: TransactionalProducer
    partitions: Sequence[TopicPartition]
    verify_only: bool
    answer: Later[Errors]


class TransactionChannels:
    """Channels to the coordinators of transactions."""

    def __init__(
        self,
        node_id: int,
        image: ClusterImage,
        partition_of: Callable[[str], int],
        channels: Callable[..., BrokerChannels[_Asked]],
    ) -> None:
        """`partition_of` returns the partition of `__transaction_state` for a transactional id."""
        self._node_id = node_id
        self._image = image
        self._partition_of = partition_of
        self._channels = channels(request_of=_partitions_request, answered=_partitions_answered)

    def ask(
        self,
        producer: TransactionalProducer,
        partitions: Sequence[TopicPartition],
        verify_only: bool,
    ) -> Later[Errors] | None:
        """Ask for each partition's error. Returns None if the coordinator isn't on another node.

        Of each transactional id, one request waits to be sent, since answers are told apart by that id. An
        older producer is fenced: INVALID_PRODUCER_EPOCH. If the same producer asks again, its earlier request
        is answered NETWORK_EXCEPTION. Both come in this call; other answers come in a later turn.
        """
        topic = self._image.topics.get(TRANSACTION_TOPIC)
        index = self._partition_of(producer.transactional_id)
        partition = None if topic is None else topic.partitions.get(index)
        if partition is None or partition.leader in (self._node_id, NO_LEADER):
            return None
        asked = _Asked(producer, partitions, verify_only, Later())
        before = self._channels.waiting(partition.leader, producer.transactional_id)
        if before is not None and before.producer.producer_epoch > producer.producer_epoch:
            _refuse(asked, Error.INVALID_PRODUCER_EPOCH)
            return asked.answer
        self._channels.say(partition.leader, asked, producer.transactional_id)
        if before is not None:
            is_fenced = before.producer.producer_epoch < producer.producer_epoch
            _refuse(before, Error.INVALID_PRODUCER_EPOCH if is_fenced else Error.NETWORK_EXCEPTION)
        return asked.answer

    def stop(self) -> None:
        """Stop: nothing is answered any more."""
        self._channels.stop()


def _refuse(asked: _Asked, error: Error) -> None:
    asked.answer.reply(dict.fromkeys(asked.partitions, error))


def _partitions_request(asked: Sequence[_Asked]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=each.producer.transactional_id,
                producer_id=each.producer.producer_id,
                producer_epoch=each.producer.producer_epoch,
                verify_only=each.verify_only,
                topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=indexes)
                    for name, indexes in indexes_by_topic(each.partitions).items()
                ],
            )
            for each in asked
        ]
    )


def _partitions_answered(asked: Sequence[_Asked], answer: Message | KafkaError) -> None:
    told: dict[tuple[str, str, int], Error] = {}
    error = Error.NETWORK_EXCEPTION
    if not isinstance(answer, KafkaError):
        assert isinstance(answer, AddPartitionsToTxnResponse)
        if answer.error_code:
            error = error_of(answer.error_code)
        if error is Error.CLUSTER_AUTHORIZATION_FAILED:
            error = Error.INVALID_TXN_STATE  # this broker lacks the right, which the client can't help
        told = {
            (result.transactional_id, topic.name, partition.partition_index): error_of(
                partition.partition_error_code
            )
            for result in answer.results_by_transaction
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }

    def tell(each: _Asked) -> None:
        of = each.producer.transactional_id
        each.answer.reply({name: told.get((of, *name), error) for name in each.partitions})

    tell_each(asked, tell, log, "a callback for the partitions of a transaction failed")


# --- All channels -------------------------------------------------------------------------------------------


class OtherBrokers:
    """The other brokers, at their addresses in the image, on the inter-broker listener. `Cluster` says what
    each is for."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        image: ClusterImage,
        faults: FaultHandler,
        entrance: Entrance = OPEN,
    ) -> None:
        """`entrance` says how this broker connects to the others."""
        self._entrance = entrance
        self._node_id = config.node_id
        self._listener_name = config.inter_broker_listener
        self._fetch_settings = FetchSettings.of(config)
        self._software_version = software_version()
        self._environment = environment
        self._image = image
        self._faults = faults
        self._to_stop: list[Callable[[], None]] = []

    def markers(self, own: Markers) -> Markers:
        channels = MarkerChannels(self._node_id, self._image, own, self._channels("txn-marker-sender"))
        self._to_stop.append(channels.stop)
        return channels

    def coordinators(self, partition_of: Callable[[str], int]) -> AskElsewhere:
        channels = TransactionChannels(
            self._node_id, self._image, partition_of, self._channels("add-partitions-manager")
        )
        self._to_stop.append(channels.stop)
        return channels.ask

    def share_states(self) -> AskShareStates:
        channels = ShareStateChannels(self._channels("share-state-persister"))
        self._to_stop.append(channels.stop)
        return channels.ask

    def dead_letters(self) -> ProduceElsewhere:
        channels = DeadLetterChannels(self._channels("dead-letters"))
        self._to_stop.append(channels.stop)
        return channels.produce

    def latest_offsets(self) -> AskLatestOffset:
        channels = LatestOffsetChannels(self._channels("latest-offsets"))
        self._to_stop.append(channels.stop)
        return channels.ask

    def following(
        self, incarnation: BrokerIncarnation, partitions: Partitions, quota: ReplicationQuota
    ) -> Callable[[TopicChanges], None]:
        """Start to follow partitions on other nodes. Returns the callback for changes of the image."""
        fetchers = ReplicaFetchers(
            incarnation,
            self._image,
            partitions,
            listener_name=self._listener_name,
            peer_settings=PeerSettings(
                f"broker-{self._node_id}-fetcher-0",
                self._software_version,
                request_timeout_ms=self._fetch_settings.timeout_ms,
                entrance=self._entrance,
            ),
            environment=self._environment,
            settings=self._fetch_settings,
            quota=quota,
            failed=self._faults.stop_on_failure,
        )
        self._to_stop.append(fetchers.stop)
        return fetchers.follow

    def stop(self) -> None:
        """Send nothing more."""
        for stop in self._to_stop:
            stop()

    def _channels(self, purpose: str) -> Callable[..., BrokerChannels[Any]]:
        return partial(
            BrokerChannels,
            self._image,
            self._listener_name,
            PeerSettings(
                f"broker-{self._node_id}-{purpose}", self._software_version, entrance=self._entrance
            ),
            self._environment.network,
            self._environment.scheduler,
        )


def software_version() -> str:
    """The installed version. Other nodes count clients by it (KIP-511)."""
    try:
        return version("barnabas")
    except PackageNotFoundError:
        return "unknown"

"""The transaction coordinators of this broker: a shard for each partition of `__transaction_state` that it leads; and
the one path by which a transaction's marker gets into a log.

WriteTxnMarkers requests and the coordinators of this broker (by the port `coordinator.ports.Markers`) both end in
`TxnMarkers`. A marker is answered once it is committed. A marker for `__consumer_offsets` goes through the shard of the
partition's groups. The shard applies its offsets in the order of the log, and keeps them behind its gate until then. So
no client that knows of the transaction's end finds the old offsets (KAFKA-17507).
Source: `TransactionCoordinator`, `TransactionStateManager`, `TransactionMarkerChannelManager`,
`KafkaApis.handleWriteTxnMarkersRequest`, `GroupCoordinatorService.completeTransaction`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker.controller.metadata_versions import TRANSACTION_VERSION
from broker.coordination.groups import OFFSETS_TOPIC
from broker.coordination.hosted_shards import Durations, HostedShards
from broker.environment.scheduler import TURN_S
from broker.replicas.leader import Leader
from coordinator.ports import EndedBy
from coordinator.settings import TransactionSettings
from protocol.errors import NO_ERROR, Error, KafkaError, stops_the_broker
from protocol.records.batch import (
    ABORT,
    COMMIT,
    LOG_APPEND_TIME,
    EndTransactionMarker,
    build_end_txn_marker,
    patch_max_timestamp,
)
from storage.log.log_state import COORDINATOR

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.controller.image import ClusterImage
    from broker.coordination.groups import Groups
    from broker.coordination.hosted_shards import PartitionRuntime
    from broker.environment.scheduler import Clock, Scheduled, Scheduler
    from broker.replicas.partition import Partition
    from broker.replicas.partitions import Partitions
    from coordinator.ports import MarkerAnswers, Markers, TxnMarker
    from coordinator.transaction.shard import TransactionShard
    from protocol.topic_partition import TopicPartition

    Done = Callable[[MarkerAnswers], None]

log = logging.getLogger("barnabas.coordination")

TRANSACTION_TOPIC = "__transaction_state"


class TransactionStatistics:
    """Statistics of all transactions that this node coordinates (see the shards' port), and of its questions to
    coordinators. Counts only go up; of durations the last ones are kept."""

    __slots__ = (
        "durations",
        "ended",
        "fan_outs",
        "given_up",
        "retried_markers",
        "verification_failures",
        "verifications",
    )

    def __init__(self) -> None:
        self.ended: dict[EndedBy, int] = dict.fromkeys(EndedBy, 0)
        self.durations = Durations()
        self.fan_outs = Durations()
        self.retried_markers = 0
        self.given_up = 0
        self.verifications = Durations()
        """How long questions before appends took, from question to answer, wherever the coordinator is."""
        self.verification_failures = 0
        """Partitions that coordinators have refused."""


class Transactions:
    """Finds the shard of a transactional id."""

    def __init__(
        self,
        config: BrokerConfig,
        partitions: Partitions,
        scheduler: Scheduler,
        runtime_of: Callable[[Partition], PartitionRuntime],
        *,
        markers: Markers,
        next_producer_id: Callable[[], int],
        image: ClusterImage,
    ) -> None:
        """`next_producer_id` may raise KafkaError."""
        self.statistics = TransactionStatistics()
        self.settings = transaction_settings(config)
        self._markers = self._own_markers = markers
        self._next_producer_id = next_producer_id
        self._image = image
        self.hosted = HostedShards(
            TRANSACTION_TOPIC,
            config.get_int("transaction.state.log.num.partitions"),
            partitions,
            scheduler,
            runtime_of,
            self._new_shard,
            content="transactions",
            unreadable=Error.COORDINATOR_LOAD_IN_PROGRESS,
            reloads_in_new_epoch=True,
        )
        self.partition_of = self.hosted.partition_of
        """The partition of `__transaction_state` that has a transactional id."""
        self.shard_of: Callable[[str], TransactionShard] = self.hosted.of
        """The shard of a transactional id. Raises KafkaError: NOT_COORDINATOR; COORDINATOR_LOAD_IN_PROGRESS for a
        partition that isn't loaded."""
        self.all_shards: Callable[[], list[TransactionShard]] = self.hosted.all
        """All shards. Raises KafkaError (COORDINATOR_LOAD_IN_PROGRESS) if one isn't loaded."""

    def _transaction_version(self) -> int:
        return self._image.features.get(TRANSACTION_VERSION, 0)

    def _new_shard(self, runtime: PartitionRuntime, leader_epoch: int) -> TransactionShard:
        # Imported here, so that a start without transactions doesn't wait for it.
        from coordinator.transaction.shard import TransactionShard

        return TransactionShard(
            runtime,
            self._markers,
            self._next_producer_id,
            self.settings,
            transaction_version=self._transaction_version,
            coordinator_epoch=leader_epoch,
            statistics=self.statistics,
        )

    def interpose(self, interposed: Callable[[Markers], Markers]) -> None:
        """Send markers by what `interposed` returns for their usual way, from now on."""
        self._markers = interposed(self._own_markers)

        def go_by_it(shard: TransactionShard) -> None:
            shard.markers = self._markers

        self.hosted.tell(go_by_it)

    def id_of(self, producer_id: int) -> str:
        """The transactional id that has the producer id now, or an empty text."""
        found = ""

        def look(shard: TransactionShard) -> None:
            nonlocal found
            for transactional_id, metadata in shard.transactions.items():
                if metadata.producer_id == producer_id:
                    found = transactional_id

        self.hosted.tell(look)
        return found

    def check_timeout(self, timeout_ms: int) -> None:
        """Check a timeout, before the transactional id is looked up. Raises KafkaError(INVALID_TRANSACTION_TIMEOUT)."""
        if not 0 < timeout_ms <= self.settings.max_timeout_ms:
            raise KafkaError(Error.INVALID_TRANSACTION_TIMEOUT)


def transaction_settings(config: BrokerConfig) -> TransactionSettings:
    """The coordinator's settings. None of them can be altered while the broker runs."""
    return TransactionSettings(
        max_timeout_ms=config.get_int("transaction.max.timeout.ms"),
        two_phase_commit_enable=config.get_boolean("transaction.two.phase.commit.enable"),
        abort_timed_out_interval_ms=config.get_int(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms"
        ),
        remove_expired_interval_ms=config.get_int(
            "transaction.remove.expired.transaction.cleanup.interval.ms"
        ),
        transactional_id_expiration_ms=config.get_int("transactional.id.expiration.ms"),
    )


def as_known(error: Error, api_version: int, fenced_since: int) -> Error:
    """The error of an answer. A request before version `fenced_since` doesn't know PRODUCER_FENCED, and gets
    INVALID_PRODUCER_EPOCH in its place."""
    if error is Error.PRODUCER_FENCED and api_version < fenced_since:
        return Error.INVALID_PRODUCER_EPOCH
    return error


# --- markers -----------------------------------------------------------------------------------------------------

MARKERS_PER_TURN = 100
"""Markers of one transaction that one turn of the loop writes. Others are served before the next ones."""

MANY_MARKERS = 2
"""With more markers, the turn also ends once they have taken 10 ms: a partition's first batch creates its files."""

AT_ONCE_PER_TURN = 1_000
"""Markers of all transactions that one turn writes: many may time out together, or a request may have many markers."""

_AS_LEADER = dict.fromkeys(
    (Error.COORDINATOR_NOT_AVAILABLE, Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR),
    Error.NOT_LEADER_OR_FOLLOWER,
)
"""Errors of the group's coordinator, which the transaction's coordinator doesn't know. It is to send the marker
again."""

_SENT_AGAIN = Error.KAFKA_STORAGE_ERROR
"""An error on which every coordinator sends the marker again, after a while."""

UNKNOWN_TRANSACTION_VERSION = -1
"""The value of Kafka's `TransactionVersion` for a missing version. Kafka fails on it."""


class _Row:
    """The partitions of one transaction that still wait for its marker, each once. The marker's batch is built once a
    turn, and copied for each partition."""

    __slots__ = ("batch", "done", "marker", "partitions", "record")

    def __init__(self, marker: TxnMarker, partitions: Sequence[TopicPartition], done: Done) -> None:
        self.marker = marker
        self.partitions = deque(partitions)
        self.done = done

    def build(self, now_ms: int) -> None:
        marker = self.marker
        self.record = EndTransactionMarker(
            marker.commit, marker.coordinator_epoch, now_ms, marker.transaction_version
        )
        self.batch = build_end_txn_marker(
            COMMIT if marker.commit else ABORT,
            coordinator_epoch=marker.coordinator_epoch,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp=now_ms,
        )


class _Answers:
    """The answers of partitions to which a marker is written in one turn. Those that are known at its end are reported
    together, the others as they come."""

    __slots__ = ("_done", "_together")

    def __init__(self, done: Done) -> None:
        self._done = done
        self._together: dict[TopicPartition, Error | None] | None = {}

    def add(self, partition: TopicPartition, error: Error | None) -> None:
        if self._together is None:
            self._done({partition: error})
        else:
            self._together[partition] = error

    def tell(self) -> None:
        """The turn is over: report the answers so far."""
        together, self._together = self._together, None
        if together:
            self._done(together)


class TxnMarkers:
    """Writes markers, a bounded number in one turn of the loop."""

    def __init__(
        self,
        image: ClusterImage,
        partitions: Partitions,
        groups: Groups,
        *,
        clock: Clock,
        scheduler: Scheduler,
    ) -> None:
        self._image = image
        self._partitions = partitions
        self._groups = groups
        self._clock = clock
        self._call_soon = scheduler.call_soon
        self._rows: deque[_Row] = deque()
        self._turn: Scheduled | None = None
        self._left_at_once = AT_ONCE_PER_TURN
        self._stopped = False

    def write(self, marker: TxnMarker, partitions: Sequence[TopicPartition], done: Done) -> None:
        """See the port. The first markers are written at once, so that a transaction with few partitions is over when
        this returns."""
        if not partitions or self._stopped:
            return
        row = _Row(marker, partitions, done)
        try:
            if self._left_at_once > 0:
                self._left_at_once -= min(len(row.partitions), MARKERS_PER_TURN)
                self._write_some(row)
        finally:
            if row.partitions:
                self._rows.append(row)
            if row.partitions or self._left_at_once < AT_ONCE_PER_TURN // 2:
                self._again()

    def stop(self) -> None:
        """Write no more markers, neither waiting nor new ones. The next start goes on with these transactions."""
        self._stopped = True
        self._rows.clear()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def _again(self) -> None:
        if self._turn is None:
            self._turn = self._call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        self._left_at_once = AT_ONCE_PER_TURN
        if not self._rows:
            return
        row = self._rows.popleft()
        try:
            self._write_some(row)
        finally:
            if row.partitions:
                self._rows.append(row)
            if self._rows:
                self._again()

    def _write_some(self, row: _Row) -> None:
        answers = _Answers(row.done)
        row.build(self._clock.time_ns() // 1_000_000)
        count = min(len(row.partitions), MARKERS_PER_TURN)
        until_s = self._clock.monotonic_s() + TURN_S if count > MANY_MARKERS else None
        broken: Exception | None = None
        for _ in range(count):
            name = row.partitions.popleft()
            try:
                self._write_one(row, name, answers)
            except Exception as error:  # else the partition would never get its marker
                log.exception("the marker of producer id %d into %s-%d failed", row.marker.producer_id, *name)
                answers.add(name, _SENT_AGAIN)
                if broken is None and stops_the_broker(error):
                    broken = error
            if until_s is not None and self._clock.monotonic_s() >= until_s:
                self._left_at_once = 0
                break
        answers.tell()
        if broken is not None:
            raise broken

    def _write_one(self, row: _Row, name: TopicPartition, answers: _Answers) -> None:
        """Write a marker, and add the answer once it is committed or refused."""
        topic, index = name
        hosted = self._partitions.by_name.get(topic)
        partition = None if hosted is None else hosted.partitions.get(index)
        if partition is None:
            image = self._image.topics.get(topic)
            known = image is not None and index in image.partitions
            answers.add(name, Error.NOT_LEADER_OR_FOLLOWER if known else None)
            return
        try:
            leader = partition.role
            if leader.__class__ is not Leader:
                raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
            shard = self._groups.shard_at(index) if topic == OFFSETS_TOPIC else None
            end_offset = self._append(partition, leader, row)
        except KafkaError as error:
            answers.add(name, _told(error))
            return
        if shard is None and leader.log.high_watermark >= end_offset:
            answers.add(name, NO_ERROR)  # always so on a single node; this saves making a waiter
            return

        def then(error: KafkaError | None) -> None:
            answers.add(name, NO_ERROR if error is None else _told(error))

        if shard is None:
            leader.when_committed(end_offset, then)
        else:
            marker = row.marker
            shard.complete_transaction(
                marker.producer_id, commit=marker.commit, end_offset=end_offset, then=then
            )

    def _append(self, partition: Partition, leader: Leader, row: _Row) -> int:
        """Append a marker. Returns the offset after it. Raises KafkaError if it isn't written: like any append with
        acks=all, it needs enough replicas in sync."""
        marker, record = row.marker, row.record
        leader.check_in_sync()
        batch = bytearray(row.batch)
        now_ms = record.timestamp_ms
        if marker.transaction_version == UNKNOWN_TRANSACTION_VERSION:
            partition.log.producers.check_epoch(marker.producer_id, marker.producer_epoch)
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR, "a marker of no transaction version")
        rules = partition.topic.rules
        if len(batch) > rules.max_message_bytes:
            raise KafkaError(Error.MESSAGE_TOO_LARGE, f"a marker has {len(batch)} bytes")
        if rules.message_timestamp_type == "LogAppendTime":
            patch_max_timestamp(batch, 0, len(batch), LOG_APPEND_TIME, now_ms)
        return leader.append(batch, now_ms, COORDINATOR, marker=record).last_offset + 1


def _told(error: KafkaError) -> Error:
    return _AS_LEADER.get(error.error, error.error)

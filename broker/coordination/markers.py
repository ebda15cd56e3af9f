"""Transaction markers on their way into the partitions: the one path by which a marker gets into a log.

WriteTxnMarkers from outside and the coordinators of this broker (their port is `coordinator.ports.Markers`) both end
here. A marker for `__consumer_offsets` is answered once the group's shard has let its offsets count, so that nobody
who learns of the end finds the offsets of before (KAFKA-17507). Sources: `KafkaApis.handleWriteTxnMarkersRequest`,
`TransactionMarkerChannelManager`, `GroupCoordinatorService.completeTransaction`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from broker.coordination.groups import OFFSETS_TOPIC
from protocol.errors import Error, KafkaError
from protocol.records.batch import LOG_APPEND_TIME, patch_max_timestamp
from protocol.records.records import ABORT, COMMIT, build_end_txn_marker
from storage.log.results import AppendOrigin
from storage.producers.producer_state import EndTransactionMarker

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.coordination.groups import Groups
    from broker.environment.clock import Clock
    from broker.environment.scheduler import Scheduled, Scheduler
    from broker.replicas.partitions import Partition, Partitions
    from coordinator.ports import MarkerAnswers, TopicPartition, TxnMarker

    Done = Callable[[MarkerAnswers], None]

PER_TURN = 100
"""So many markers of one transaction are written in one turn of the loop; others are served before the next ones."""

AT_ONCE_PER_TURN = 1_000
"""And so many of all transactions that end in one turn: many that time out together, a request with many markers."""

UNKNOWN_TRANSACTION_VERSION = -1
"""What Kafka's `TransactionVersion` has for those who forgot to say: it fails on it."""


class _Row:
    """The partitions of one transaction that still wait for its marker."""

    __slots__ = ("done", "marker", "partitions")

    def __init__(self, marker: TxnMarker, partitions: Iterable[TopicPartition], done: Done) -> None:
        self.marker = marker
        self.partitions = deque(dict.fromkeys(partitions))
        self.done = done


class _Written(NamedTuple):
    """A marker as it is written: built once, and copied for each partition."""

    marker: TxnMarker
    record: EndTransactionMarker
    batch: bytearray


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

    def write(self, marker: TxnMarker, partitions: Sequence[TopicPartition], done: Done) -> None:
        """See the port: the first ones at once, so that a transaction of few partitions is over when this returns."""
        row = _Row(marker, partitions, done)
        if not row.partitions:
            return
        if self._left_at_once > 0:
            self._left_at_once -= min(len(row.partitions), PER_TURN)
            self._write_some(row)
        if row.partitions:
            self._rows.append(row)
        if row.partitions or self._left_at_once < AT_ONCE_PER_TURN // 2:
            self._again()

    def stop(self) -> None:
        """What waits isn't written any more: the next start drives these transactions on."""
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
        answers: dict[TopicPartition, Error | None] = {}
        written = self._build(row.marker)
        while row.partitions and len(answers) < PER_TURN:
            topic_partition = row.partitions.popleft()
            answers[topic_partition] = self._write_one(written, *topic_partition)
        row.done(answers)

    def _build(self, marker: TxnMarker) -> _Written:
        now_ms = self._clock.now_ms()
        batch = build_end_txn_marker(
            COMMIT if marker.commit else ABORT,
            coordinator_epoch=marker.coordinator_epoch,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp=now_ms,
        )
        record = EndTransactionMarker(
            marker.commit, marker.coordinator_epoch, now_ms, marker.transaction_version
        )
        return _Written(marker, record, batch)

    def _write_one(self, written: _Written, topic: str, index: int) -> Error | None:
        partition = self._partitions.find(topic, index)
        if partition is None:
            image = self._image.topics.get(topic)
            known = image is not None and index in image.partitions
            return Error.NOT_LEADER_OR_FOLLOWER if known else None
        try:
            if topic == OFFSETS_TOPIC:
                self._end_offsets(partition, written)
            else:
                self._append(partition, written)
        except KafkaError as error:
            return error.error
        return Error.NONE

    def _end_offsets(self, partition: Partition, written: _Written) -> None:
        try:
            shard = self._groups.shard_at(partition.index)
        except KafkaError as error:
            # The transaction coordinator knows no coordinator's errors here: it is to come again.
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER) from error
        self._append(partition, written)
        shard.end_transaction(written.marker.producer_id, commit=written.marker.commit)

    def _append(self, partition: Partition, written: _Written) -> None:
        marker, record, built = written
        leader = partition.leader()
        batch = bytearray(built)
        now_ms = record.timestamp_ms
        if marker.transaction_version == UNKNOWN_TRANSACTION_VERSION:
            partition.log.producers.check_epoch(marker.producer_id, marker.producer_epoch)
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR, "a marker of no transaction version")
        rules = partition.topic.rules
        if len(batch) > rules.max_message_bytes:
            raise KafkaError(Error.MESSAGE_TOO_LARGE, f"a marker has {len(batch)} bytes")
        if rules.message_timestamp_type == "LogAppendTime":
            patch_max_timestamp(batch, 0, len(batch), LOG_APPEND_TIME, now_ms)
        leader.log.append(
            batch,
            leader_epoch=leader.leader_epoch,
            now_ms=now_ms,
            origin=AppendOrigin.COORDINATOR,
            marker=record,
        )
        leader.advance()

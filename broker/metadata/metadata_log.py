"""`__cluster_metadata-0`: the log that the cluster's metadata is made of.

Decide → append → apply: `append` writes a decision's records as one batch and applies them to the image; `replay`
reads the log at start and applies it through the same function. Kafka writes a decision's records as one batch
where they are atomic, or between BeginTransaction and EndTransaction records (KIP-868); both are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker.metadata.image import ClusterImage, MetadataContradictionError
from broker.metadata.record_serde import decode_record, encode_record
from protocol.codec import encode
from protocol.messages import metadata_records as records
from protocol.messages.raft_records import LeaderChangeMessage, LeaderChangeVoter
from protocol.record_batch import read_header
from protocol.records import build_batch, build_control_batch, read_records
from protocol.schema import Message
from storage.partition_log import PartitionLog
from storage.results import AppendOrigin

if TYPE_CHECKING:
    from broker.clock import Clock

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = bytes(15) + b"\x01"
READ_BYTES = 1024 * 1024
MAX_RECORDS_PER_BATCH = 10_000  # QuorumController.MAX_RECORDS_PER_BATCH

CONTROL_LEADER_CHANGE = 2  # ControlRecordType.LEADER_CHANGE

# Versions are those that Kafka 4.3 writes at metadata.version 30.
WRITTEN_VERSIONS: dict[type[Message], int] = {
    records.RegisterBrokerRecord: 4,
    records.BrokerRegistrationChangeRecord: 3,
    records.PartitionRecord: 2,
    records.PartitionChangeRecord: 2,
}


class MetadataLog:
    """The metadata log of a node that is the only voter: appended is committed."""

    def __init__(self, log: PartitionLog, image: ClusterImage, clock: Clock) -> None:
        self.log = log
        self.image = image
        self.epoch = 0  # the leader epoch of this run
        self.on_change: Callable[[], None] = lambda: None  # called after each decision has been applied
        self._clock = clock

    def replay(self) -> None:
        """Apply everything in the log. Raises MetadataContradictionError, CodecError: the folder can't be used."""
        transaction: list[Message] | None = None
        position = self.log.log_start_offset
        end = self.log.log_end_offset
        while position < end:
            data = self.log.read(position, READ_BYTES, upper_bound=end, min_one_batch=True).records
            if not data:
                raise MetadataContradictionError(f"the metadata log can't be read at offset {position}")
            view = memoryview(data)
            pos = 0
            while pos + 12 <= len(view):
                size = int.from_bytes(view[pos + 8 : pos + 12], "big") + 12
                if pos + size > len(view):
                    break
                header = read_header(view, pos)
                if not header.is_control:
                    for record in read_records(view[pos : pos + size]):
                        if record.value is None:
                            raise MetadataContradictionError(
                                f"a null record at offset {record.offset} of the metadata log"
                            )
                        transaction = self._replay_one(decode_record(bytes(record.value)), transaction)
                position = header.last_offset + 1
                pos += size

    def _replay_one(self, record: Message, transaction: list[Message] | None) -> list[Message] | None:
        """Records between Begin and End count together, or not at all."""
        if isinstance(record, records.BeginTransactionRecord):
            return []
        if isinstance(record, records.AbortTransactionRecord):
            return None
        if isinstance(record, records.EndTransactionRecord):
            for held in transaction or ():
                self.image.apply(held)
            return None
        if transaction is not None:
            transaction.append(record)
            return transaction
        self.image.apply(record)
        return None

    def become_leader(self, node_id: int) -> None:
        """Begin an epoch of our own with a LeaderChange record, as a KRaft leader does before anything else."""
        last_epoch = self.log.leader_epochs.latest
        self.epoch = max(last_epoch, 0) + 1
        self.log.assign_leader_epoch(self.epoch)
        now_ms = self._clock.now_ms()
        voter = LeaderChangeVoter(voter_id=node_id)
        message = LeaderChangeMessage(version=0, leader_id=node_id, voters=[voter], granting_voters=[voter])
        key = b"\x00\x00" + CONTROL_LEADER_CHANGE.to_bytes(2, "big")
        self._append_batch(build_control_batch(key, encode(message, 0), timestamp=now_ms))

    def append(self, decided: Sequence[Message]) -> None:
        """Write a decision and apply it. Nothing is applied unless it is in the log."""
        now_ms = self._clock.now_ms()
        for first in range(0, len(decided), MAX_RECORDS_PER_BATCH):
            part = decided[first : first + MAX_RECORDS_PER_BATCH]
            values = [encode_record(record, WRITTEN_VERSIONS.get(type(record), 0)) for record in part]
            self._append_batch(build_batch([(now_ms, None, value, ()) for value in values]))
            for record in part:
                self.image.apply(record)
        self.on_change()

    def append_transaction(self, name: str, decided: Sequence[Message]) -> None:
        """Write a decision between Begin and End records, then apply it (the bootstrap records of a new cluster)."""
        bracketed = [records.BeginTransactionRecord(name=name), *decided, records.EndTransactionRecord()]
        now_ms = self._clock.now_ms()
        values = [encode_record(record, WRITTEN_VERSIONS.get(type(record), 0)) for record in bracketed]
        self._append_batch(build_batch([(now_ms, None, value, ()) for value in values]))
        for record in decided:
            self.image.apply(record)
        self.on_change()

    def _append_batch(self, batch: bytearray) -> None:
        self.log.append(
            batch,
            leader_epoch=self.epoch,
            now_ms=self._clock.now_ms(),
            origin=AppendOrigin.RAFT_LEADER,
        )
        self.log.update_high_watermark(self.log.log_end_offset)

    @property
    def next_offset(self) -> int:
        """The offset that the next record gets: a broker's epoch is the offset of its registration."""
        return self.log.log_end_offset

    @property
    def last_applied_offset(self) -> int:
        """The offset of the last record applied (Kafka: `MetadataProvenance.lastContainedOffset`)."""
        return self.log.log_end_offset - 1

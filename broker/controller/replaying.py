"""The records of the metadata log, brought back into an image."""

from __future__ import annotations

from collections.abc import Sequence

from broker.controller.image import ClusterImage, MetadataContradictionError
from broker.controller.record_serde import decode_metadata_record
from protocol.errors import CodecError
from protocol.messages import metadata_records as records
from protocol.records.batch import CorruptRecordError
from protocol.records.records import read_records
from protocol.wire.schema import Message
from storage.log.partition_log import PartitionLog

_MARKS: set[type[Message]] = {
    records.BeginTransactionRecord,
    records.EndTransactionRecord,
    records.AbortTransactionRecord,
}


def apply_batch(
    image: ClusterImage, transaction: list[Message] | None, batch: memoryview
) -> list[Message] | None:
    """What `apply_in_force` returns after the last record. Raises MetadataContradictionError, CorruptRecordError.

    Whatever a record does to the image that takes it, it is the record that is wrong.
    """
    for record in read_records(batch):
        try:
            if record.value is None:
                raise MetadataContradictionError("it has no value")
            transaction = apply_in_force(image, transaction, decode_metadata_record(bytes(record.value)))
        except Exception as error:
            raise MetadataContradictionError(
                f"the record at offset {record.offset}: {_reason(error)}"
            ) from error
    return transaction


def apply_in_force(
    image: ClusterImage, transaction: list[Message] | None, record: Message
) -> list[Message] | None:
    """Records between Begin and End count together, or not at all. Returns those of a transaction without its end."""
    if type(record) in _MARKS:
        if isinstance(record, records.BeginTransactionRecord):
            return []
        if isinstance(record, records.EndTransactionRecord):
            for each in transaction or ():
                image.apply(each)
        return None
    if transaction is None:
        image.apply(record)
    else:
        transaction.append(record)
    return transaction


def replay_snapshot(image: ClusterImage, held: Sequence[Message], path: str) -> None:
    """Raises MetadataContradictionError, which says where."""
    for number, record in enumerate(held):
        try:
            image.apply(record)
        except Exception as error:
            where = f"{path}: record {number}, {type(record).__name__}"
            raise MetadataContradictionError(f"{where}: {_reason(error)}") from error


def contradiction(log: PartitionLog, offset: int, error: Exception) -> MetadataContradictionError:
    """What is wrong with a batch, and in which file. Kafka's MetadataLoader has a fault of it, which ends the
    process."""
    path = log.segments.row[log.segments.slot_of(offset)].log.path
    where = "" if isinstance(error, MetadataContradictionError) else f"the batch at offset {offset}: "
    return MetadataContradictionError(f"{path}: {where}{_reason(error)}")


def _reason(error: Exception) -> str:
    known = isinstance(error, CodecError | CorruptRecordError | MetadataContradictionError)
    return str(error) if known else f"{type(error).__name__} {error}".rstrip()

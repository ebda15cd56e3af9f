"""The records of the metadata log, brought back into an image."""

from __future__ import annotations

from collections.abc import Iterator

from broker.controller.image import ClusterImage, MetadataContradictionError
from broker.controller.record_serde import decode_metadata_record
from protocol.messages import metadata_records as records
from protocol.records.records import read_records
from protocol.wire.schema import Message


def decoded_records(batch: memoryview) -> Iterator[Message]:
    """The records of one batch. Raises MetadataContradictionError, CodecError, CorruptRecordError."""
    for record in read_records(batch):
        if record.value is None:
            raise MetadataContradictionError(f"a null record at offset {record.offset} of the metadata log")
        yield decode_metadata_record(bytes(record.value))


def apply_in_force(
    image: ClusterImage, transaction: list[Message] | None, record: Message
) -> list[Message] | None:
    """Records between Begin and End count together, or not at all. Returns those of a transaction without its end."""
    if isinstance(record, records.BeginTransactionRecord):
        return []
    if isinstance(record, records.AbortTransactionRecord):
        return None
    if isinstance(record, records.EndTransactionRecord):
        for each in transaction or ():
            image.apply(each)
        return None
    if transaction is None:
        image.apply(record)
    else:
        transaction.append(record)
    return transaction

"""Decided records as a batch of the metadata log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from broker.controller.pause import PER_STEP
from broker.controller.record_serde import encode_metadata_record
from broker.controller.record_versions import written_version
from protocol.errors import Error, KafkaError
from protocol.records.records import build_batch
from protocol.waiting import turn
from protocol.wire.schema import Message


def encoded(decided: Iterable[Message], metadata_version: int) -> Iterator[bytes]:
    """Each record as it is written at a metadata.version."""
    for record in decided:
        yield encode_metadata_record(record, written_version(type(record), metadata_version))


async def batch_of(
    decided: Sequence[Message], metadata_version: int, now_ms: int, most_bytes: int
) -> bytearray:
    """The records in a batch. Raises KafkaError (UNKNOWN_SERVER_ERROR) where it is larger than may be."""
    values = []
    for value in encoded(decided, metadata_version):
        values.append((now_ms, None, value, ()))
        if len(values) % PER_STEP == 0:
            await turn()
    batch = build_batch(values)
    if len(batch) > most_bytes:
        raise too_large_to_write(f"a batch of {len(batch)} bytes")
    return batch


def too_large_to_write(what: str) -> KafkaError:
    """As in Kafka, whose controller begins a new epoch over it."""
    return KafkaError(Error.UNKNOWN_SERVER_ERROR, f"{what}, which the metadata log doesn't take")

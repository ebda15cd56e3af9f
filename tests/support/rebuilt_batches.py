"""Batches in the form in which the cleaner rebuilds them."""

from collections.abc import Sequence

from protocol.records.batch import BatchHeader, Record, append_record
from storage.cleaning.batch_filter import BatchRebuild, empty_batch


def rebuild_batch(
    header: BatchHeader, records: Sequence[Record], *, delete_horizon_ms: int | None = None
) -> bytearray:
    """Return what becomes of the batch of `header` if these records stay."""
    if not records:
        return empty_batch(header)
    payload = bytearray()
    for offset, timestamp, _sequence, key, value, headers in records:
        append_record(
            payload, timestamp - header.base_timestamp, offset - header.base_offset, key, value, headers
        )
    stays = [(0, len(payload))]
    rebuild = BatchRebuild(header, bytes(payload), stays, len(records), delete_horizon_ms)
    while not rebuild.go_on():
        pass
    return rebuild.sealed()

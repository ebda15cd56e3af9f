"""The record inside a transaction marker.

Key `int16 version | int16 type` (0 abort, 1 commit), value `int16 version | int32 coordinator epoch`; later
versions only add to them. Source: org.apache.kafka.common.record EndTransactionMarker, ControlRecordType.
"""

from typing import NamedTuple

from protocol.records.records import ABORT, COMMIT, read_control_type, read_coordinator_epoch, read_records
from protocol.wire.primitives import Bytes


class EndTransactionMarker(NamedTuple):
    """The record inside a transaction marker, and what its writer said besides."""

    commit: bool
    coordinator_epoch: int
    timestamp_ms: int
    transaction_version: int = 0
    """That of the WriteTxnMarkers request, by which its epoch is checked; no record says it."""


def read_marker(batch: Bytes) -> EndTransactionMarker | None:
    """The marker that a control batch holds; None for another kind of control record, or no record at all.

    Compaction may have emptied the batch. Raises `CorruptRecordError`.
    """
    for record in read_records(batch):
        control_type = read_control_type(record.key)
        if control_type in (ABORT, COMMIT):
            return EndTransactionMarker(
                control_type == COMMIT, read_coordinator_epoch(record.value), record.timestamp
            )
        return None
    return None

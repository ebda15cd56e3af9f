"""What a reader of committed records is told of those that were aborted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.messages.fetch import AbortedTransaction
from storage.log.aborted import IndexInTheMakingError

if TYPE_CHECKING:
    from storage.log.log_state import ReadResult
    from storage.log.partition_log import PartitionLog


def aborted_in(
    log: PartitionLog, offset: int, read: ReadResult, upper_bound: int
) -> list[AbortedTransaction] | None:
    """Of what was read from the offset on. None while that isn't known: nothing of it is for the reader then, who comes
    again."""
    try:
        found = log.aborted_transactions(offset, read, upper_bound)
    except IndexInTheMakingError:
        return None
    return [
        AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset) for entry in found
    ]

"""Searching a log by time without blocking the loop (Kafka: `UnifiedLog.fetchOffsetByTimestamp`)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from broker.environment.threads import Alone
from protocol.records.validation_budget import ANY, LITTLE, MODERATE, TooMuchEffortError
from protocol.waiting import compute, turn
from storage.log import reads
from storage.log.log_state import storage_error

if TYPE_CHECKING:
    from storage.log.log_state import TimestampOffset
    from storage.log.partition_log import PartitionLog

MAX_TIMESTAMP = -3
"""A special timestamp: search for the record with the log's largest timestamp."""

_IN_PASSING = LITTLE._replace(records=2_000)
"""For a search by time, which makes an object of each record: some milliseconds."""


async def search_by_time(log: PartitionLog, timestamp: int) -> TimestampOffset | None:
    """Find the first record at or after a time.

    Long searches go in turns. A batch that takes long to decompress is searched beside the loop.
    """
    try:
        if timestamp == MAX_TIMESTAMP:
            return log.offset_of_max_timestamp(_IN_PASSING)
        return log.offset_for_timestamp(timestamp, _IN_PASSING)
    except TooMuchEffortError:
        pass
    if timestamp == MAX_TIMESTAMP:
        search = reads.search_for_max_timestamp(log)
    else:
        search = reads.search_for_timestamp(log, timestamp)
    found = None
    while True:
        try:
            wanted = search.send(found)
        except StopIteration as end:
            return cast("TimestampOffset | None", end.value)
        except OSError as failure:
            raise storage_error(log, failure) from failure
        if wanted is None:
            await turn()
            continue
        try:
            found = await compute(partial(wanted.find, MODERATE))
        except TooMuchEffortError:
            found = await compute(Alone(partial(wanted.find, ANY)))

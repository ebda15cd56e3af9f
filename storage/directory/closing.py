"""Ending many logs together: a disk syncs them together sooner than one by one."""

import logging
from collections.abc import Sequence

from storage.background import RunAll, Work
from storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)


def close_all(logs: Sequence[PartitionLog], run_all: RunAll) -> bool:
    """Writes what each log has left to write, then syncs them. Whether all went well."""
    clean = True
    closing: list[tuple[PartitionLog, Work]] = []
    for log in logs:
        try:
            work = log.begin_close()
        except Exception as failure:
            clean = _not_clean(log, failure)
            continue
        if work is not None:
            closing.append((log, work))
    failures = run_all([work for _log, work in closing])
    for (log, _work), failed in zip(closing, failures, strict=True):
        log.end_close(failed)
        if failed is not None:
            clean = _not_clean(log, failed)
    return clean and all(log.failure is None for log in logs)


def _not_clean(log: PartitionLog, failure: Exception) -> bool:
    logger.error("%s-%d didn't close cleanly", log.topic, log.partition, exc_info=failure)
    return False

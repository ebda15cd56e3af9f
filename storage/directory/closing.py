"""Ending many logs together: a disk syncs them together sooner than one by one."""

import logging
from collections.abc import Sequence
from functools import partial

from storage.background import RunAll
from storage.files import Files
from storage.log.partition_log import PartitionLog
from storage.log.syncing import LastSync

logger = logging.getLogger(__name__)


def close_all(files: Files, logs: Sequence[PartitionLog], run_all: RunAll) -> bool:
    """Writes what each log has left to write, then syncs them. Whether all went well."""
    clean = True
    closing: list[tuple[PartitionLog, LastSync]] = []
    for log in logs:
        try:
            last_sync = log.begin_close()
        except Exception as failure:
            clean = _not_clean(log, failure)
            continue
        if last_sync is not None:
            closing.append((log, last_sync))
    failures = _sync(files, [last_sync for _log, last_sync in closing], run_all)
    for (log, _last_sync), failed in zip(closing, failures, strict=True):
        log.end_close(failed)
        if failed is not None:
            clean = _not_clean(log, failed)
    return clean and all(log.failure is None for log in logs)


def _sync(files: Files, closing: Sequence[LastSync], run_all: RunAll) -> list[Exception | None]:
    """What each failed with; a directory that new logs have in common is synced once for them all."""
    parents = [*dict.fromkeys(each.parent for each in closing if each.parent is not None)]
    of_parents = [partial(files.sync_directory, parent) for parent in parents]
    failures = run_all([*of_parents, *(each.work for each in closing)])
    failed = dict(zip(parents, failures, strict=False))
    return [
        failure if failure is not None or each.parent is None else failed[each.parent]
        for each, failure in zip(closing, failures[len(parents) :], strict=True)
    ]


def _not_clean(log: PartitionLog, failure: Exception) -> bool:
    logger.error("%s-%d didn't close cleanly", log.topic, log.partition, exc_info=failure)
    return False

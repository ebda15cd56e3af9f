"""Who waits for a log's flush, and telling them: each is told once, whatever another one does with it."""

import errno
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from storage.background import Then

if TYPE_CHECKING:
    from storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)


def add(log: "PartitionLog", offset: int, then: Then) -> None:
    log.flush_waiters.append((offset, then))


def tell_flushed(log: "PartitionLog") -> None:
    """Tells those that waited for an offset below the recovery point, or at it."""
    if not log.flush_waiters:
        return
    point = log.recovery_point
    due = [then for offset, then in log.flush_waiters if offset <= point]
    log.flush_waiters = [waiter for waiter in log.flush_waiters if waiter[0] > point]
    _tell(due, None)


def tell_lost(log: "PartitionLog", failure: Exception, *, above: int = -1) -> None:
    """Tells those that wait for an offset above the given one that it is never going to be synced."""
    lost = [then for offset, then in log.flush_waiters if offset > above]
    log.flush_waiters = [waiter for waiter in log.flush_waiters if waiter[0] <= above]
    _tell(lost, failure)


def closed_error(log: "PartitionLog") -> OSError:
    return OSError(errno.EBADF, f"{log.directory} is closed")


def _tell(waiters: Iterable[Then], failure: Exception | None) -> None:
    for then in waiters:
        try:
            then(failure)
        except Exception:
            logger.exception("Somebody who waited for a flush can't be told")

"""What a client is told of a failure of the disk."""

import logging
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from protocol.errors import Error, KafkaError
from storage.files import TornWriteError
from storage.log import flush_waiters

if TYPE_CHECKING:
    from storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

_P = ParamSpec("_P")
_R = TypeVar("_R")


def storage_error(log: "PartitionLog", failure: OSError) -> KafkaError:
    """KAFKA_STORAGE_ERROR; a failure that left the files in disorder ends all appending to the log.

    Each kind of failure of a log is logged once: clients try again many times a second.
    """
    if isinstance(failure, TornWriteError):
        give_up(log, failure)
        return KafkaError(Error.KAFKA_STORAGE_ERROR, str(failure))
    if not log.closed:
        log.report(failure)
    if failure.errno not in log.logged_failures:
        log.logged_failures = (*log.logged_failures, failure.errno)
        logger.error("%s: %s", log.directory, failure)
    return KafkaError(Error.KAFKA_STORAGE_ERROR, str(failure))


def give_up(log: "PartitionLog", failure: OSError) -> None:
    """The log takes nothing more: what is written and what is believed to be may differ (as in Kafka)."""
    logger.error("%s is not appended to any more: %s", log.directory, failure)
    if log.failure is None:
        log.failure = failure
    log.ready = False
    log.report(failure)
    flush_waiters.tell_lost(log, failure)


def told_to_clients(
    function: Callable[Concatenate["PartitionLog", _P], _R],
) -> Callable[Concatenate["PartitionLog", _P], _R]:
    """Makes `OSError` in the function a `KafkaError` (KAFKA_STORAGE_ERROR)."""

    @wraps(function)
    def guarded(log: "PartitionLog", /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(log, *args, **kwargs)
        except OSError as failure:
            raise storage_error(log, failure) from failure

    return guarded

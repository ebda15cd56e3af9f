"""What a client is told of a failure of the disk."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from protocol.errors import Error, KafkaError
from storage.files import TornWriteError
from storage.log.log_state import LogState

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Log = TypeVar("_Log", bound=LogState)


def storage_error(log: LogState, failure: OSError) -> KafkaError:
    """KAFKA_STORAGE_ERROR; a failure that left the files in disorder ends all appending to the log."""
    if isinstance(failure, TornWriteError):
        log.give_up(failure)
        return KafkaError(Error.KAFKA_STORAGE_ERROR, str(failure))
    if not log.closed:
        log.report(failure)
    log.say_once(failure)
    return KafkaError(Error.KAFKA_STORAGE_ERROR, str(failure))


def told_to_clients(function: Callable[Concatenate[_Log, _P], _R]) -> Callable[Concatenate[_Log, _P], _R]:
    """Makes `OSError` in the function a `KafkaError` (KAFKA_STORAGE_ERROR)."""

    @wraps(function)
    def guarded(log: _Log, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(log, *args, **kwargs)
        except OSError as failure:
            raise storage_error(log, failure) from failure

    return guarded


class MisplacedSegmentError(KafkaError):
    """A segment's file begins with a whole batch of another place in the log: it was renamed, or put back from a copy
    of another one. Kafka serves it, or cuts all of it."""

    def __init__(self, path: str, offset: int) -> None:
        super().__init__(Error.CORRUPT_MESSAGE, f"{path} begins with offset {offset}: it is another's file")

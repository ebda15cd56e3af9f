"""Who looks on while requests are served: a line for each in the log, metrics.

An observer is told of a request before its handler is, and what came of it once that is known. Metrics look on at each
request, and have a handler of their own around that of the route. Where nobody looks on a route has its handler as it
is, and a request costs what it did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from protocol.waiting import Later

if TYPE_CHECKING:
    from broker.network.context import RequestContext

Handle = Callable[["RequestContext", Any], Any]

End = Callable[[Any, Exception | None], None]
"""Called once: with the response, which is None where the client wants none (acks=0), or with what the request failed
with, `HungUpError` where its client didn't wait for the answer."""

Observer = Callable[["RequestContext", Any], End]

Counted = Callable[[str, int, Handle], Handle]
"""Of an API, a version of it and its handler: the same handler, whose requests are counted."""


class HungUpError(Exception):
    """The client didn't wait for the answer."""


def observed(handle: Handle, observer: Observer) -> Handle:
    """The handler, with an observer that is told of each request and its end."""

    def call(context: RequestContext, request: Any) -> Any:
        end = observer(context, request)
        try:
            response = handle(context, request)
        except Exception as error:
            end(None, error)
            raise
        if isinstance(response, LATERS):
            return ObservedLater(response, end)
        end(response, None)
        return response

    return call


class ObservedLater:
    """A `Later`, for the dispatcher's side of it."""

    __slots__ = ("_end", "_later", "when_answered")

    def __init__(self, later: Later[Any] | ObservedLater, end: End) -> None:
        self._later = later
        self._end = end
        self.when_answered: Callable[[Callable[[], object]], None] = later.when_answered

    def result(self) -> Any:
        try:
            response = self._later.result()
        except Exception as error:
            self._end(None, error)
            raise
        self._end(response, None)
        return response

    def abandon(self, on_failure: Callable[[BaseException], object] | None = None) -> None:
        self._end(None, HungUpError())
        self._later.abandon(on_failure)


LATERS = (Later, ObservedLater)
"""What a handler returns where the response comes later."""

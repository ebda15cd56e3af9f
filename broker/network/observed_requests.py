"""Observers of requests: the request log and metrics.

An observer hears of a request before its handler does, and of its outcome once that is known. Metrics observe every
request, with a handler that wraps the route's. Without observers, nothing wraps the route's handler, and a request
costs nothing extra.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from protocol.waiting import Later

if TYPE_CHECKING:
    from broker.network.context import RequestContext

Handle = Callable[["RequestContext", Any], Any]

End = Callable[[Any, Exception | None], None]
"""Called once: with the response, which is None if the client wants none (acks=0), or with the error of the request.
That is `HungUpError` if the client didn't wait for the answer."""

Observer = Callable[["RequestContext", Any], End]

Counted = Callable[[str, int, Handle], Handle]
"""Takes an API, its version and its handler, and returns a handler that counts requests, too."""


class HungUpError(Exception):
    """The client didn't wait for the answer."""


def observed(handle: Handle, observer: Observer) -> Handle:
    """The handler, with an observer that hears of each request and its end."""

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
    """A `Later` that also reports its end, for the dispatcher."""

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
"""The classes that a handler returns if the response comes later."""

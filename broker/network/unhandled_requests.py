"""Requests that aren't handled yet: what they are is still being found out, or they have come too early."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from broker.network import request_log
from broker.network.routes import PRODUCE_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.early_requests import EarlyRequests
    from broker.network.answers import Answer, PendingAnswer
    from broker.network.connection import Connection
    from broker.network.context import RequestContext
    from broker.network.later import Later
    from broker.network.routes import Route


class Handles(Protocol):
    """The dispatcher, for a request that comes back to it."""

    monotonic_s: Callable[[], float]

    def handle(
        self, route: Route, context: RequestContext, request: Any, frame_bytes: int
    ) -> Answer | PendingAnswer: ...

    def handle_in_time(
        self, route: Route, context: RequestContext, request: Any, frame_bytes: int
    ) -> Answer | PendingAnswer:
        """As `handle`, once what the request needs is here."""
        ...

    def handle_unanswered(self, request: DecodingRequest | EarlyRequest, connection: Connection) -> None:
        """Its client has hung up."""
        ...


class DecodingRequest:
    """A request that is decoded in steps. What a client has sent whole is handled even where it hangs up then."""

    __slots__ = ("_context", "_dispatcher", "_frame_bytes", "_later", "_route")

    def __init__(
        self,
        dispatcher: Handles,
        route: Route,
        context: RequestContext,
        later: Later[tuple[Any, int]],
        frame_bytes: int,
    ) -> None:
        self._dispatcher = dispatcher
        self._route = route
        self._context = context
        self._later = later
        self._frame_bytes = frame_bytes

    def when_answered(self, then: Callable[[], None]) -> None:
        self._later.when_answered(then)

    def take(self) -> Answer | PendingAnswer:
        request, _ = self._later.result()
        return self._dispatcher.handle_in_time(self._route, self._context, request, self._frame_bytes)

    def abandon(self) -> None:
        self._later.when_answered(partial(self._dispatcher.handle_unanswered, self, self._context.connection))


class EarlyRequest:
    """A request that waits for what this node is getting ready for. Where its client hangs up it is never handled, as
    if it had been refused, but for a Produce."""

    __slots__ = (
        "_began_s",
        "_context",
        "_dispatcher",
        "_early",
        "_frame_bytes",
        "_later",
        "_request",
        "_route",
    )

    def __init__(
        self,
        dispatcher: Handles,
        early: EarlyRequests,
        route: Route,
        context: RequestContext,
        request: Any,
        later: Later[bool],
        frame_bytes: int,
    ) -> None:
        self._dispatcher = dispatcher
        self._early = early
        self._route = route
        self._context = context
        self._request = request
        self._later = later
        self._frame_bytes = frame_bytes
        self._began_s = dispatcher.monotonic_s()

    def when_answered(self, then: Callable[[], None]) -> None:
        self._later.when_answered(then)

    def take(self) -> Answer | PendingAnswer:
        in_vain = self._later.result()
        context, dispatcher = self._context, self._dispatcher
        if request_log.enabled():
            request_log.waited(context, dispatcher.monotonic_s() - self._began_s, in_vain=in_vain)
        return dispatcher.handle(self._route, context, self._request, self._frame_bytes)

    def abandon(self) -> None:
        if self._context.api_key != PRODUCE_KEY:
            self._later.abandon()
            return
        handle = partial(self._dispatcher.handle_unanswered, self, self._context.connection)
        self._later.when_answered(partial(self._early.soon, handle))

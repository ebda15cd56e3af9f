"""HTTP/1.1 on the node's own loop, for tools and people: metrics, health, and the like.

    server = HttpServer(bound, {"/health": health}, turns, scheduler)
    await server.listen()

A route is a coroutine that the node drives (`protocol.waiting`): it gets the request and returns an `HttpAnswer`. A
connection has one request in work at a time. h11 implements the protocol (RFC 9112); it comes with the extra `metrics`,
and only a node with such a listener imports this module.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

import h11

from protocol.errors import stops_the_broker
from protocol.waiting import Later

if TYPE_CHECKING:
    from broker.environment.network import Bound
    from broker.environment.scheduler import Scheduled, Scheduler
    from broker.network.turns import Turns
    from protocol.waiting import Waiting

log = logging.getLogger("barnabas.http")

MOST_CONNECTIONS = 64
"""Most connections at one listener. Any more are closed before they have sent anything."""

MOST_HEAD_BYTES = 16 * 1024
"""The longest request line with its headers."""

MOST_BODY_BYTES = 64 * 1024
"""The longest body of a request. A longer one closes its connection."""

REQUEST_S = 10.0
"""How long a whole request may take, from its first byte on, or from the moment its connection is made."""

KEEP_ALIVE_S = 75.0
"""How long a connection may be idle between two requests: Prometheus asks every 15 or 60 seconds."""

SEND_S = 30.0
"""How long a client may take to receive a whole answer."""

_BUFFER_BYTES = 4096


class HttpRequest(NamedTuple):
    """One request, as routes see it."""

    method: str
    path: str
    query: str
    """The part behind the question mark."""
    headers: Mapping[str, str]
    """The headers, by their names in lower case."""
    body: bytes = b""


class HttpAnswer(NamedTuple):
    """One answer."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


Route = Callable[[HttpRequest], "Waiting[HttpAnswer]"]


class HttpServer:
    """One address, and the connections to it."""

    def __init__(
        self,
        bound: Bound,
        routes: Mapping[str, Route],
        turns: Turns,
        scheduler: Scheduler,
        failed: Callable[[BaseException], None],
        methods: Sequence[str] = ("GET", "HEAD"),
    ) -> None:
        """`routes`: by path. `failed` gets broken invariants. `methods`: those that are served."""
        self._methods = methods
        self._bound = bound
        self._routes = routes
        self._turns = turns
        self.scheduler = scheduler
        self._failed = failed
        self.connections: set[HttpConnection] = set()

    @property
    def port(self) -> int:
        """The bound port."""
        return self._bound.port

    async def listen(self) -> None:
        """Serve connections from now on. Raises OSError."""
        await self._bound.serve(lambda: HttpConnection(self))

    def close(self) -> None:
        """Serve nothing any more, and abort all connections."""
        self._bound.close()
        for connection in [*self.connections]:
            connection.abort()

    def answer(self, request: HttpRequest) -> HttpAnswer | Later[HttpAnswer]:
        """The route's answer, now or later. A failed route answers with status 500."""
        route = self._routes.get(request.path)
        if route is None:
            known = ", ".join(sorted(self._routes))
            return HttpAnswer(f"There is no {request.path} here; there is {known}.\n".encode(), status=404)
        if request.method not in self._methods:
            served = ", ".join(self._methods)
            return HttpAnswer(f"This serves {served}.\n".encode(), status=405, headers=(("Allow", served),))
        try:
            return self._turns.answer(route(request))
        except Exception as error:
            return self.failure(request, error)

    def failure(self, request: HttpRequest, error: BaseException) -> HttpAnswer:
        """Log that a route failed. Returns the answer for the client."""
        log.error("%s failed", request.path, exc_info=error)
        if stops_the_broker(error):
            self._failed(error)
        return HttpAnswer(b"It failed; the log says why.\n", status=500)


class HttpConnection(asyncio.BufferedProtocol):
    """One connection. It reads a request, has it answered, sends the answer, and begins again."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD_BYTES)
        self._buffer = bytearray(_BUFFER_BYTES)
        self._transport: asyncio.Transport | None = None
        self._timer: Scheduled | None = None
        self._request: HttpRequest | None = None
        self._body = bytearray()
        self._later: Later[HttpAnswer] | None = None
        self._is_paused = False
        self._is_sending = False
        """True while an answer is on its way. The next request has to wait until the client has received it."""

    # --- the transport's side -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's doesn't derive from it
        if len(self._server.connections) >= MOST_CONNECTIONS:
            self._transport.abort()
            return
        self._server.connections.add(self)
        self._within(REQUEST_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._transport = None
        self._stop_timer()
        if self._later is not None:
            self._later.abandon(lambda error: None)
            self._later = None

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._receive(bytes(self._buffer[:nbytes]))

    def eof_received(self) -> bool:
        self._receive(b"")
        return self._transport is not None  # the answer still leaves

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        if self._is_sending:
            self._begin_next()
            self._continue()

    # --- one request after the other ------------------------------------------------------------------------

    def _receive(self, data: bytes) -> None:
        try:
            self._http.receive_data(data)
        except h11.RemoteProtocolError as error:
            self._refuse(error)
        else:
            self._continue()

    def _continue(self) -> None:
        try:
            self._go_on()
        except h11.RemoteProtocolError as error:
            self._refuse(error)

    def _go_on(self) -> None:
        """Handle what has come, up to the end of a request. Raises RemoteProtocolError."""
        while self._transport is not None:
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                self._within(REQUEST_S)
                self._request = _request(event)
                self._body.clear()
            elif isinstance(event, h11.Data):
                self._body += event.data
                if len(self._body) > MOST_BODY_BYTES:
                    self.abort()
            elif isinstance(event, h11.EndOfMessage):
                self._stop_timer()
                self._have_answered()
            elif isinstance(event, h11.ConnectionClosed):
                self._transport.close()
                return
            elif event is h11.PAUSED:  # the next request is here, but the answer comes first
                self._transport.pause_reading()  # else a client that never reads could fill the memory
                return
            else:  # NEED_DATA
                return

    def _have_answered(self) -> None:
        assert self._request is not None
        request = self._request._replace(body=bytes(self._body))
        answer = self._server.answer(request)
        if isinstance(answer, Later):
            self._later = answer
            answer.when_answered(partial(self._answered_later, request, answer))
        else:
            self._send(request, answer)

    def _answered_later(self, request: HttpRequest, later: Later[HttpAnswer]) -> None:
        """Called in the middle of other work, so the answer is sent in a turn of its own."""
        self._server.scheduler.call_soon(partial(self._send_later, request, later))

    def _send_later(self, request: HttpRequest, later: Later[HttpAnswer]) -> None:
        if self._later is not later:
            return
        self._later = None
        try:
            answer = later.result()
        except Exception as error:
            answer = self._server.failure(request, error)
        self._send(request, answer)
        self._continue()  # the next request may be here

    def _send(self, request: HttpRequest, answer: HttpAnswer) -> None:
        transport = self._transport
        assert transport is not None
        self._request = None
        self._within(SEND_S)
        transport.write(self._encoded(answer, with_body=request.method != "HEAD"))
        if self._http.our_state is h11.MUST_CLOSE or self._http.their_state is h11.CLOSED:
            transport.close()
            return
        self._is_sending = True
        if not self._is_paused:
            self._begin_next()

    def _begin_next(self) -> None:
        """Wait for the next request: the client has received the answer, or nearly all of it."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._is_sending = False
        self._http.start_next_cycle()
        self._within(KEEP_ALIVE_S)
        transport.resume_reading()

    def _encoded(self, answer: HttpAnswer, *, with_body: bool) -> bytes:
        headers = [
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            *answer.headers,
        ]
        http = self._http
        head = http.send(h11.Response(status_code=answer.status, headers=headers)) or b""
        body = http.send(h11.Data(data=answer.body)) if with_body else b""
        end = http.send(h11.EndOfMessage()) or b""
        return b"".join((head, body or b"", end))

    def _refuse(self, error: h11.RemoteProtocolError) -> None:
        """Refuse a request that isn't HTTP, or that is too long."""
        transport = self._transport
        if transport is None:
            return
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            status = error.error_status_hint or 400
            refusal = HttpAnswer(f"{error}\n".encode(), status=status, headers=(("Connection", "close"),))
            transport.write(self._encoded(refusal, with_body=True))
            self._within(SEND_S)
            transport.close()
        else:
            self.abort()

    # --- its end --------------------------------------------------------------------------------------------

    def _within(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self._server.scheduler.call_later(seconds, self.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def abort(self) -> None:
        """Abort the connection: its time is over, or the server closes."""
        if self._transport is not None:
            self._transport.abort()


def _request(event: h11.Request) -> HttpRequest:
    path, _, query = event.target.decode("latin-1").partition("?")
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
    return HttpRequest(event.method.decode("latin-1"), path, query, headers)

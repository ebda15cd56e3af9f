"""The console's HTTP: its page, the page's requests, and the stream of changes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from cli.client.offsets import Partition
from cli.console.guard import HEADERS, Guard, cookie_name
from cli.console.pieces import document_of_batch, walk
from cli.console.questions import LARGEST_INT32, WrongQuestionError, number_of, partition_of, text_of
from cli.console.records import MOST_RECORDS, documents_of, history_of_group, page_of_records
from cli.console.sections import Sections, as_json
from cli.console.views import Shown
from cli.errors import UNREACHABLE, USAGE, CommandError
from cli.inspecting.batch_bytes import as_documents, fields_of_batch
from cli.inspecting.decoding import OFFSETS
from cli.places import place
from coordinator.java.maps import partition_of_key

log = logging.getLogger("barnabas.console")

STATIC: Final = Path(__file__).parent / "static"
TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
MOST_PAGES: Final = 32
"""The most pages that get changes at the same time."""
MOST_BODY_BYTES: Final = 64 * 1024
MOST_WANTED: Final = 16
"""The most sections that a page may ask for."""
RIBBON_BATCHES: Final = 600
RIBBON_OFFSETS: Final = 400
"""If a request names no offset, the ribbon begins this many offsets before the end."""
MOST_HEX_BYTES: Final = 16 * 1024
FIRST_OF_A_LIST: Final = 400
HEARTBEAT_S: Final = 15.0
AT_MOST_EVERY_S: Final = 0.05
GROUP_HISTORY_OFFSETS: Final = 20_000

STATUSES: Final = {UNREACHABLE: 502, USAGE: 400}

Handler = Callable[[Request], Awaitable[Response]]


class Console:
    """The application that shows a running Kafka, or a folder."""

    def __init__(self, shown: Shown, sections: Sections, guard: Guard, about: Mapping[str, Any]) -> None:
        self._shown = shown
        self._sections = sections
        self._guard = guard
        self._about = about
        self._files = {
            f"/{path.relative_to(STATIC).as_posix()}": (path.read_bytes(), TYPES[path.suffix])
            for path in STATIC.rglob("*")
            if path.suffix in TYPES
        }
        self.is_ending = False
        routes = [
            Route("/api/about", self._about_it),
            Route("/api/live", self._live),
            *(
                Route(f"/api/{name}", self._asked(ask))
                for name, ask in {
                    "topic": self._topic,
                    "broker": self._broker,
                    "groups": lambda _: self._shown.groups(),
                    "group": lambda request: self._shown.group(text_of(request.query_params, "group")),
                    "group-history": self._group_history,
                    "transactions": lambda _: self._shown.transactions(),
                    "explain": lambda request: self._shown.explanation(request.query_params.getlist("topic")),
                    "rights": lambda _: self._shown.rights(),
                    "clients": lambda _: self._shown.clients(),
                    "client": lambda request: self._shown.client(
                        text_of(request.query_params, "client"), text_of(request.query_params, "listener")
                    ),
                    "ribbon": self._ribbon,
                    "records": self._records,
                    "batch": self._batch,
                }.items()
            ),
            *(
                Route(f"/api/{name}", self._done(do), methods=["POST"])
                for name, do in {
                    "abort": self._shown.abort,
                    "reset": self._shown.reset,
                    "delete-records": self._shown.delete_records,
                }.items()
            ),
            Route("/{path:path}", self._file),
        ]
        self.app: ASGIApp = _Guarded(Starlette(routes=routes), guard)

    # --- The page

    async def _file(self, request: Request) -> Response:
        path = request.url.path
        token = request.query_params.get("token")
        if token is not None and self._guard.is_token(token):
            answer = RedirectResponse(path, 303)
            answer.set_cookie(
                cookie_name(request.headers.get("host", "")), token, httponly=True, samesite="strict"
            )
            return answer
        found = self._files.get("/index.html" if path == "/" else path)
        if found is None:
            return PlainTextResponse("there is no such page\n", 404)
        return Response(
            found[0], media_type=None, headers={"content-type": found[1], "cache-control": "no-cache"}
        )

    async def _about_it(self, _: Request) -> Response:
        return JSONResponse({**self._about, "now": _now_ms()})

    # --- What changes

    async def _live(self, request: Request) -> Response:
        wanted = [name for name in request.query_params.get("want", "").split(",") if name]
        if len(wanted) > MOST_WANTED:
            return PlainTextResponse(f"at most {MOST_WANTED} sections\n", 400)
        if self._sections.pages >= MOST_PAGES:
            return PlainTextResponse(f"{MOST_PAGES} pages are open; that is the limit\n", 503)
        headers = {"content-type": "text/event-stream", "x-accel-buffering": "no"}
        return StreamingResponse(self._events(wanted), headers=headers)

    async def _events(self, wanted: list[str]) -> AsyncIterator[str]:
        number, event = self._sections.enter(wanted)
        names = [*wanted, "problem:cluster", "problem:transactions", "problem:log"]
        told: dict[str, int] = dict.fromkeys(names, 0)
        try:
            yield _event("now", _now_ms())
            while not self.is_ending:
                event.clear()
                for name in names:
                    text, told[name] = self._news(name, told[name])
                    if text:
                        yield text
                try:
                    await asyncio.wait_for(event.wait(), HEARTBEAT_S)
                except TimeoutError:
                    yield _event("now", _now_ms())
                await asyncio.sleep(AT_MOST_EVERY_S)
        finally:
            self._sections.leave(number)

    def _news(self, name: str, told: int) -> tuple[str, int]:
        """Return a section's news, and its new number."""
        growing = self._sections.lists.get(name)
        if growing is not None:
            number, documents = growing.since(told, FIRST_OF_A_LIST)
            return (_event("list", {"name": name, "documents": documents}) if documents else ""), number
        number, value = self._sections.value(name)
        if number == told or not number:
            return "", number
        return f'event: value\ndata: {{"name":{as_json(name)},"value":{value}}}\n\n', number

    # --- One-time requests

    def _asked(self, ask: Callable[[Request], Any]) -> Handler:
        async def handle(request: Request) -> Response:
            return await _answered(ask, request)

        return handle

    def _done(self, do: Callable[..., dict[str, Any]]) -> Handler:
        async def handle(request: Request) -> Response:
            body = await _body(request)
            if body is None:
                return JSONResponse({"error": "the body must be a JSON object of moderate size"}, 400)
            execute = body.get("execute", False)
            if not isinstance(execute, bool):
                return JSONResponse({"error": "execute must be true or false"}, 400)
            return await _answered(lambda given: do(given, execute=execute), body)

        return handle

    def _topic(self, request: Request) -> dict[str, Any]:
        return self._shown.topic(text_of(request.query_params, "topic"))

    def _broker(self, request: Request) -> dict[str, Any]:
        return self._shown.broker(number_of(request.query_params, "node", most=LARGEST_INT32))

    def _group_history(self, request: Request) -> list[dict[str, Any]]:
        name = text_of(request.query_params, "group")
        count = self._shown.partitions_of(OFFSETS)
        if not count:
            return []
        partition = (OFFSETS, partition_of_key(name, count))
        begin = self._shown.offset_at(partition, place(f"-{GROUP_HISTORY_OFFSETS}", "from", _now_ms()))
        return history_of_group(self._shown.piece, partition, name, begin)

    def _ribbon(self, request: Request) -> dict[str, Any]:
        partition = partition_of(request.query_params)
        start = self._begin(request, partition, f"-{RIBBON_OFFSETS}")
        seen = walk(self._shown.piece, partition, start, RIBBON_BATCHES)
        return {
            "start": seen.start,
            "stable": seen.stable,
            "end": seen.end,
            "from": start,
            "next": seen.next,
            "batches": [document_of_batch(each) for each in seen.batches],
        }

    def _records(self, request: Request) -> dict[str, Any]:
        partition = partition_of(request.query_params)
        start = self._begin(request, partition, "-50")
        most = number_of(request.query_params, "most", MOST_RECORDS)
        committed = request.query_params.get("committed") == "1"
        key = request.query_params.get("key") or None
        return page_of_records(self._shown.piece, partition, start, most, key=key, committed=committed)

    def _begin(self, request: Request, partition: Partition, default: str) -> int:
        text = request.query_params.get("from") or default
        return self._shown.offset_at(partition, place(text, "from", _now_ms()))

    def _batch(self, request: Request) -> dict[str, Any]:
        partition = partition_of(request.query_params)
        offset = number_of(request.query_params, "offset")
        seen = walk(self._shown.piece, partition, offset, 1)
        if seen.batches and seen.batches[0].fate:  # later batches show what became of it
            seen = walk(self._shown.piece, partition, offset, RIBBON_BATCHES)
        if not seen.batches:
            raise CommandError(f"{partition[0]}-{partition[1]} has no batch there")
        batch = seen.batches[0]
        data = bytes(batch.data)
        return {
            **document_of_batch(batch),
            "fields": as_documents(fields_of_batch(data)),
            "hex": data[:MOST_HEX_BYTES].hex(),
            "records": [*islice(documents_of(partition[0], batch), MOST_RECORDS)],
        }


class _Guarded:
    """Checks every request with the guard, and adds the guard's headers to every answer."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        request = Request(scope)
        refused = self._guard.refuses(request.method, request.headers, request.cookies)
        may_enter = (
            refused is not None
            and refused[0] == 401
            and self._guard.is_token(request.query_params.get("token", ""))
        )

        async def sent(message: Any) -> None:
            if message["type"] == "http.response.start":
                there = {name for name, _ in message["headers"]}
                message["headers"] += [
                    (name.encode(), value.encode())
                    for name, value in HEADERS.items()
                    if name.encode() not in there
                ]
            await send(message)

        if refused is not None and not may_enter:
            await PlainTextResponse(f"{refused[1]}\n", refused[0])(scope, receive, sent)
            return
        await self._app(scope, receive, sent)


async def _answered(ask: Callable[[Any], Any], given: Any) -> Response:
    try:
        return Response(as_json(await run_in_threadpool(ask, given)), media_type="application/json")
    except WrongQuestionError as error:
        return JSONResponse({"error": str(error)}, 400)
    except CommandError as error:
        return JSONResponse({"error": str(error)}, STATUSES.get(error.status, 409))
    except Exception as error:  # a fault of ours
        log.exception("the console failed")
        return JSONResponse({"error": f"the console failed: {error!r} (its log says where)"}, 500)


async def _body(request: Request) -> dict[str, Any] | None:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MOST_BODY_BYTES:
            return None
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(data)
        if isinstance(found, dict):
            return found
    return None


def _event(kind: str, value: object) -> str:
    return f"event: {kind}\ndata: {as_json(value)}\n\n"


def _now_ms() -> int:
    return round(time.time() * 1000)

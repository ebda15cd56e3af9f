"""HTTP at a node: input is bounded, and a client that misbehaves loses its connection and nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.http import http_server
from broker.http.http_server import HttpAnswer, HttpRequest, HttpServer
from broker.server import Server
from protocol.errors import BrokenInvariantError
from protocol.waiting import Later
from tests.support.scrape import HttpConnection, get
from tests.support.whole_server import started

GET = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


async def watched(folder: Path) -> tuple[Server, HttpServer]:
    node = await started(folder, "barnabas.metrics.listener=127.0.0.1:0")
    assert node.metrics is not None
    return node, node.metrics._server


async def test_an_existing_path_is_answered_and_a_missing_one_lists_them(tmp_path: Path) -> None:
    _, server = await watched(tmp_path)
    reply = await get(server.port, "/health?verbose")
    assert (reply.status, reply.body) == (200, b"ok\n")
    reply = await get(server.port, "/helth")
    assert reply.status == 404
    assert reply.body == b"There is no /helth here; there is /clients, /health, /metrics, /ready.\n"


async def test_requests_that_change_something_are_refused(tmp_path: Path) -> None:
    _, server = await watched(tmp_path)
    reply = await get(server.port, "/health", "Content-Length: 0", method="POST")
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")


async def test_a_head_has_the_headers_of_the_answer_and_no_body(tmp_path: Path) -> None:
    _, server = await watched(tmp_path)
    reply = await get(server.port, "/health", method="HEAD")
    assert (reply.status, reply.headers["content-length"]) == (200, "3")


async def test_requests_of_one_connection_are_answered_in_their_order(tmp_path: Path) -> None:
    _, server = await watched(tmp_path)
    connection = await HttpConnection.to(server.port)
    connection.send(GET + b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n" + GET)
    assert [(await connection.reply()).status for _ in range(3)] == [200, 404, 200]
    await connection.close()


async def test_a_route_that_waits_is_answered_once_it_knows(tmp_path: Path) -> None:
    _, server = await watched(tmp_path)
    known: Later[HttpAnswer] = Later()

    async def route(request: HttpRequest) -> HttpAnswer:
        return await known

    server._routes = {"/later": route}
    connection = await HttpConnection.to(server.port)
    connection.send(b"GET /later HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
    first = asyncio.ensure_future(connection.reply())
    while not any(each._later for each in server.connections):
        await asyncio.sleep(0)
    known.reply(HttpAnswer(b"now"))
    assert (await first).body == b"now"
    assert (await connection.reply()).body == b"now"
    await connection.close()


async def test_a_request_whose_client_hangs_up_is_abandoned(tmp_path: Path) -> None:
    _, server = await watched(tmp_path)
    known: Later[HttpAnswer] = Later()
    given_up = asyncio.Event()
    known.on_abandon = given_up.set

    async def route(request: HttpRequest) -> HttpAnswer:
        return await known

    server._routes = {"/later": route}
    connection = await HttpConnection.to(server.port)
    connection.send(b"GET /later HTTP/1.1\r\nHost: x\r\n\r\n")
    while not any(each._later for each in server.connections):
        await asyncio.sleep(0)
    connection.writer.transport.abort()
    await given_up.wait()
    assert not server.connections


@pytest.mark.limit("broker.http.http_server.MOST_HEAD_BYTES")
@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\n\r\n", 400),  # without Host
        (
            b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 2 * http_server.MOST_HEAD_BYTES + b"\r\n\r\n",
            431,
        ),
    ],
    ids=["TLS", "no host", "long head"],
)
async def test_nonsense_closes_its_connection(tmp_path: Path, sent: bytes, status: int) -> None:
    _, server = await watched(tmp_path)
    connection = await HttpConnection.to(server.port)
    connection.send(sent)
    reply = await connection.reply()
    assert (reply.status, reply.headers["connection"]) == (status, "close")
    assert await connection.is_closed()
    await connection.close()
    assert (await get(server.port, "/health")).status == 200


@pytest.mark.limit("broker.http.http_server.MOST_BODY_BYTES")
async def test_a_body_that_is_too_long_closes_its_connection(tmp_path: Path) -> None:
    _, server = await watched(tmp_path)
    connection = await HttpConnection.to(server.port)
    connection.send(b"POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n")
    connection.send(bytes(http_server.MOST_BODY_BYTES + 1))
    assert await connection.is_closed()
    await connection.close()


async def test_a_silent_client_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, server = await watched(tmp_path)
    monkeypatch.setattr(http_server, "REQUEST_S", 0.0)
    for said in (b"", b"GET /hea"):
        connection = await HttpConnection.to(server.port)
        connection.send(said)
        assert await connection.is_closed()
        await connection.close()


async def test_a_client_that_takes_no_answer_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, server = await watched(tmp_path)
    monkeypatch.setattr(http_server, "SEND_S", 0.0)

    async def large(request: HttpRequest) -> HttpAnswer:
        return HttpAnswer(bytes(50_000_000))

    server._routes = {"/large": large}
    connection = await HttpConnection.to(server.port)
    connection.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
    while not server.connections:
        await asyncio.sleep(0)
    while server.connections:
        await asyncio.sleep(0)
    await connection.close()


@pytest.mark.limit("broker.http.http_server.MOST_CONNECTIONS")
async def test_a_client_that_keeps_asking_and_takes_no_answer_is_read_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its further requests stay with the client, and nothing is answered to them."""
    monkeypatch.setattr(http_server, "SEND_S", 3600)
    _, server = await watched(tmp_path)
    answered = 0

    async def route(request: HttpRequest) -> HttpAnswer:
        nonlocal answered
        answered += 1
        return HttpAnswer(bytes(100_000))

    server._routes = {"/health": route}
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1)
    writer.write(GET * 20_000)
    before = -1
    while answered != before or not answered:
        before = answered
        for _ in range(50):
            await asyncio.sleep(0)
    (connection,) = server.connections
    assert answered < 200
    assert len(connection._http.trailing_data[0]) < 1024 * 1024
    taken = 0
    while taken < 250 * 100_000:  # it is served again while it takes its answers
        taken += len(await reader.read(1024 * 1024))
    assert answered >= 250
    writer.transport.abort()


async def test_one_connection_too_many_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, server = await watched(tmp_path)
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 2)
    kept = [await HttpConnection.to(server.port) for _ in range(2)]
    while len(server.connections) < 2:
        await asyncio.sleep(0)
    late = await HttpConnection.to(server.port)
    assert await late.is_closed()
    kept[0].send(GET)
    assert (await kept[0].reply()).status == 200
    for each in (*kept, late):
        await each.close()


async def test_a_route_that_fails_is_a_500_and_a_broken_invariant_stops_the_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node, server = await watched(tmp_path)
    failure: Exception = ValueError("bad")

    async def fails(request: HttpRequest) -> HttpAnswer:
        raise failure

    server._routes = {"/fails": fails, "/health": server._routes["/health"]}
    assert (await get(server.port, "/fails")).status == 500
    assert "/fails failed" in caplog.text
    assert node.failure is None
    failure = BrokenInvariantError("wrong")
    assert (await get(server.port, "/fails")).status == 500
    assert node.failure is failure
    reply = await get(server.port, "/health")
    assert (reply.status, reply.body) == (503, b"stopping: wrong\n")
    node.faults.failure = None
    node.faults.stopped.clear()

"""A connection's frames and answers, with a transport and a dispatcher that a test looks into."""

import asyncio
import logging
import socket
from typing import Any

import pytest

from broker.environment.scheduler import LONGEST_HOLD_S, LoopScheduler
from broker.network.answers import WRITTEN_CHUNKS, CloseConnectionError
from broker.network.connection import INITIAL_BUFFER_BYTES, Connection
from broker.network.memory import Memory
from protocol.errors import CodecError
from protocol.waiting import Later

MAX_FRAME_BYTES = 1_000_000
PIECES = 700_000  # more of them than uvloop takes at once, with those behind the large one


class FakeTransport:
    def __init__(self) -> None:
        self.written = bytearray()
        self.writes = 0
        self.most_chunks = 0
        self.closing = False
        self.reading = True
        self.aborted = False
        self.protocol: Connection | None = None
        self.unread_limit = 1 << 62

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1234)

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def write(self, data: bytes) -> None:
        self.writes += 1
        self.written += data
        if self.protocol is not None and len(self.written) > self.unread_limit:
            self.protocol.pause_writing()

    def writelines(self, chunks: list[bytes]) -> None:
        self.most_chunks = max(self.most_chunks, len(chunks))
        self.write(b"".join(chunks))

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class FakeListener:
    name = "PLAINTEXT"

    def __init__(self) -> None:
        self.connections: set[Connection] = set()
        self.refusal: str | None = None

    def admit(self, connection: Connection) -> str | None:
        self.connections.add(connection)
        return self.refusal

    def forget(self, connection: Connection) -> None:
        self.connections.discard(connection)


class Waiting:
    """A pending answer, which the test gives."""

    def __init__(self) -> None:
        self._later: Later[list[bytes]] = Later()
        self._cancelled = False
        self._later.on_abandon = self._cancel
        self.when_answered = self._later.when_answered
        self.take = self._later.result
        self.abandon = self._later.abandon
        self.set_result = self._later.reply
        self.set_exception = self._later.fail

    def _cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled


class FakeDispatcher:
    """Answers each frame with itself. If a frame begins with a mark, does what the mark says."""

    def __init__(self) -> None:
        self.served: list[bytes] = []
        self.waiting: list[Waiting] = []
        self.failures: list[BaseException] = []
        self.now_s = 1.0
        self.takes_s = 0.0
        self.holds: list[tuple[bytes, float]] = []
        self.scheduler: Any = None  # the running loop's, if no other is set

    def soon(self, then: Any) -> None:
        (self.scheduler or LoopScheduler()).call_soon(then)

    def monotonic_s(self) -> float:
        return self.now_s

    def held(self, connection: Connection, frame: memoryview, took_s: float) -> None:
        if took_s > LONGEST_HOLD_S:
            self.holds.append((bytes(frame), took_s))

    def serve(self, connection: Connection, frame: memoryview) -> Any:
        self.now_s += self.takes_s
        data = bytes(frame)
        self.served.append(data)
        if data.startswith((b"wait", b"\0\0wait", b"\0\0many wait")):
            self.waiting.append(Waiting())
            return self.waiting[-1]
        if data.startswith(b"large"):
            return [bytes(500_000)]
        if data.startswith(b"pieces"):
            return [b"p"] * PIECES + [b"l" * 1_000_000] + [b"p"] * PIECES
        if data.startswith((b"silent", b"\0\0silent")):
            return None
        if data.startswith(b"nonsense"):
            raise CodecError("nonsense")
        if data.startswith(b"close"):
            raise CloseConnectionError("told to")
        if data.startswith(b"fault"):
            raise ZeroDivisionError
        return [b"<", data, b">"]

    def is_of_many(self, frame: memoryview) -> bool:
        return bytes(frame[2:]).startswith(b"many")

    def failed(self, connection: Connection, error: BaseException) -> None:
        self.failures.append(error)


class Client:
    """Feeds a connection as the loop would: each time as many bytes as its buffer takes."""

    def __init__(self) -> None:
        self.transport = FakeTransport()
        self.listener = FakeListener()
        self.dispatcher = FakeDispatcher()
        self.connection = Connection(
            self.listener,  # type: ignore[arg-type]
            self.dispatcher,  # type: ignore[arg-type]
            LoopScheduler(),
            Memory.of(LoopScheduler(), MAX_FRAME_BYTES, -1),
        )

    def connect(self) -> "Client":
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]
        return self

    def send(self, data: bytes, at_once: int = 1 << 30) -> None:
        while data and not self.transport.closing:
            buffer = self.connection.get_buffer(-1)
            size = min(len(buffer), len(data), at_once)
            buffer[:size] = data[:size]
            self.connection.buffer_updated(size)
            data = data[size:]


def frame(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


async def test_a_frame_is_served_once_it_is_whole() -> None:
    client = Client().connect()
    client.send(frame(b"one")[:-1])
    assert client.dispatcher.served == []
    client.send(b"e")
    assert client.transport.written == b"<one>"


@pytest.mark.parametrize("at_once", [1, 2, 3, 5, 7, 1000])
async def test_frames_are_cut_alike_however_they_arrive(at_once: int) -> None:
    client = Client().connect()
    client.send(frame(b"one") + frame(b"") + frame(b"x" * 700) + frame(b"last"), at_once)
    assert client.dispatcher.served == [b"one", b"", b"x" * 700, b"last"]


async def test_answers_that_are_ready_together_leave_in_one_write() -> None:
    client = Client().connect()
    client.send(frame(b"a") + frame(b"b") + frame(b"c"))
    assert client.transport.written == b"<a><b><c>"
    assert client.transport.writes == 1


async def test_frames_larger_than_the_buffer_are_served_whole() -> None:
    client = Client().connect()
    large = bytes(range(256)) * 3000
    client.send(frame(b"small") + frame(large) + frame(b"after") + frame(large))
    assert client.dispatcher.served == [b"small", large, b"after", large]


async def test_an_announced_length_allocates_nothing() -> None:
    client = Client().connect()
    client.send(MAX_FRAME_BYTES.to_bytes(4, "big") + b"a little")
    assert len(client.connection._buffer) == INITIAL_BUFFER_BYTES


@pytest.mark.parametrize("size", [-1, -(2**31), MAX_FRAME_BYTES + 1, 2**31 - 1])
async def test_an_impossible_size_closes_as_soon_as_its_four_bytes_are_in(size: int) -> None:
    client = Client().connect()
    client.send(size.to_bytes(4, "big", signed=True))
    assert client.transport.closing


async def test_the_largest_frame_is_fine() -> None:
    client = Client().connect()
    client.send(frame(b"x" * MAX_FRAME_BYTES))
    assert len(client.dispatcher.served[0]) == MAX_FRAME_BYTES


async def test_the_next_frame_waits_for_the_answer_before_it() -> None:
    client = Client().connect()
    client.send(frame(b"wait") + frame(b"next"))
    assert client.dispatcher.served == [b"wait"]
    client.dispatcher.waiting[0].set_result([b"answer"])
    await asyncio.sleep(0)
    assert client.transport.written == b"answer<next>"
    assert client.transport.writes == 1


async def test_a_request_in_work_keeps_its_bytes_while_more_arrive() -> None:
    client = Client().connect()
    kept: list[memoryview] = []
    serve = client.dispatcher.serve

    def keep(connection: Connection, data: memoryview) -> Any:
        kept.append(data)
        return serve(connection, data)

    client.dispatcher.serve = keep  # type: ignore[method-assign]
    client.send(frame(b"wait" + b"k" * 40_000))
    client.send(frame(b"more" + b"m" * 60_000), at_once=9_000)
    assert bytes(kept[0]) == b"wait" + b"k" * 40_000
    client.dispatcher.waiting[0].set_result([b""])
    await asyncio.sleep(0)
    assert client.dispatcher.served[1] == b"more" + b"m" * 60_000


async def test_a_client_that_sends_on_while_its_answer_waits_is_not_read_without_end() -> None:
    client = Client().connect()
    client.send(frame(b"wait"))
    sent = 0
    while client.transport.reading:
        client.send(b"\x00\x00\x00\x01x" * 100)
        sent += 500
    assert sent <= 2 * INITIAL_BUFFER_BYTES
    client.dispatcher.waiting[0].set_result([b""])
    await asyncio.sleep(0)
    assert client.transport.reading


async def test_a_client_that_does_not_read_its_answers_is_served_no_further() -> None:
    client = Client().connect()
    client.connection.pause_writing()
    client.send(frame(b"a"))
    assert client.dispatcher.served == []
    client.connection.resume_writing()
    assert client.transport.written == b"<a>"


async def test_pipelined_requests_with_large_answers_stop_when_the_client_does_not_read() -> None:
    client = Client().connect()
    client.transport.protocol = client.connection
    client.transport.unread_limit = 2_000_000
    client.send(frame(b"large") * 100)
    assert len(client.dispatcher.served) < 10
    client.transport.written.clear()
    client.connection.resume_writing()
    assert 5 < len(client.dispatcher.served) < 20


async def test_an_abort_does_not_wait_for_a_client_that_does_not_read() -> None:
    client = Client().connect()
    client.connection.close("told to")
    client.connection.abort("idle")
    assert client.transport.aborted


async def test_an_answer_of_a_million_pieces_leaves_in_few() -> None:
    client = Client().connect()
    client.send(frame(b"pieces"))
    assert client.transport.written == b"p" * PIECES + b"l" * 1_000_000 + b"p" * PIECES
    assert client.transport.most_chunks <= WRITTEN_CHUNKS


def test_an_answer_of_a_million_pieces_arrives_whole_over_uvloop() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def answered() -> bytes:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        served = Client().connection
        await loop.connect_accepted_socket(lambda: served, ours)
        reader, writer = await asyncio.open_connection(sock=theirs)
        writer.write(frame(b"pieces"))
        try:
            return await reader.readexactly(2 * PIECES + 1_000_000)
        finally:
            writer.close()
            await writer.wait_closed()

    assert uvloop.run(answered()) == b"p" * PIECES + b"l" * 1_000_000 + b"p" * PIECES


@pytest.mark.parametrize(
    ("reason", "level"),
    [
        (OSError(22, "Invalid argument"), logging.WARNING),
        (MemoryError("no room"), logging.WARNING),
        (ConnectionResetError(104, "Connection reset by peer"), logging.DEBUG),
        (None, None),
    ],
)
async def test_the_cause_of_a_lost_connection_is_logged(
    reason: Exception | None, level: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client().connect()
    with caplog.at_level(logging.DEBUG, "barnabas.connection"):
        client.connection.connection_lost(reason)
    lines = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert lines == (
        [] if level is None else [(level, f"the connection of 127.0.0.1:1234 is lost: {reason}")]
    )


async def test_a_fault_after_answers_lets_them_leave() -> None:
    client = Client().connect()
    client.send(frame(b"good") + frame(b"fault"))
    assert client.transport.written == b"<good>"
    assert not client.transport.aborted


async def test_nothing_is_written_where_nothing_is_answered() -> None:
    client = Client().connect()
    client.send(frame(b"silent") + frame(b"b"))
    assert client.transport.written == b"<b>"


@pytest.mark.parametrize("data", [b"nonsense", b"close"])
async def test_a_nonsense_request_closes_after_the_answers_before_it(data: bytes) -> None:
    client = Client().connect()
    client.send(frame(b"good") + frame(data) + frame(b"never"))
    assert client.transport.written == b"<good>"
    assert client.transport.closing
    assert client.dispatcher.failures == []
    assert b"never" not in client.dispatcher.served


async def test_a_fault_of_ours_closes_and_is_reported() -> None:
    client = Client().connect()
    client.send(frame(b"fault"))
    assert client.transport.closing
    assert [type(failure) for failure in client.dispatcher.failures] == [ZeroDivisionError]


async def test_a_wait_that_fails_closes_and_is_reported() -> None:
    client = Client().connect()
    client.send(frame(b"wait"))
    client.dispatcher.waiting[0].set_exception(ZeroDivisionError())
    await asyncio.sleep(0)
    assert client.transport.closing
    assert len(client.dispatcher.failures) == 1


async def test_a_hang_up_cancels_waiting_requests() -> None:
    client = Client().connect()
    client.send(frame(b"wait"))
    client.connection.connection_lost(None)
    assert client.dispatcher.waiting[0].cancelled()
    assert client.listener.connections == set()


async def test_a_connection_too_many_is_closed_at_once() -> None:
    client = Client()
    client.listener.refusal = "too many"
    client.connect()
    assert client.transport.closing
    client.connection.buffer_updated(0)
    assert client.dispatcher.served == []

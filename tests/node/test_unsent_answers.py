"""Answers that lie in files are sent as their client reads them, in order, whatever goes wrong."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import random
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from broker.environment.scheduler import LoopScheduler
from broker.network import unsent
from broker.network.answers import Answer
from broker.network.connection import WRITE_HIGH_WATER_BYTES, Connection
from broker.network.memory import PASSAGE_BYTES, Memory
from broker.network.unsent import PIECE_BYTES
from protocol.errors import CodecError
from storage.disk_files import DiskFiles
from storage.files import File, FileRange
from tests.node.test_connection import MAX_FRAME_BYTES, FakeListener, frame

FILE_BYTES = 12_000_000
CONTENT = random.Random(1).randbytes(FILE_BYTES)
PATIENCE_S = 240.0
SMALL_BUFFER_BYTES = 64 * 1024

RUNS: list[Callable[[Coroutine[Any, Any, Any]], Any]] = [asyncio.run, uvloop.run]


class FromFile:
    """Answers `<from>-<to>` with that part of the file, and other frames with themselves."""

    def __init__(self, path: Path) -> None:
        self.files = DiskFiles()
        self.file = File(str(path))
        self.files.create(self.file)
        self.files.append(self.file, CONTENT, 0)
        self.served = 0
        self.failures: list[BaseException] = []
        self.monotonic_s = time.monotonic

    def serve(self, connection: Connection, asked: memoryview) -> Answer:
        self.served += 1
        data = bytes(asked)
        if data == b"nonsense":
            raise CodecError("nonsense")
        if data == b"fault":
            raise ZeroDivisionError
        start, dash, end = data.partition(b"-")
        if not dash:
            return [data]
        return [b"<", FileRange(self.files, self.file, int(start), int(end) - int(start)), b">"]

    def soon(self, then: Callable[[], object]) -> None:
        LoopScheduler().call_soon(then)

    def held(self, connection: Connection, frame: memoryview, took_s: float) -> None: ...

    def is_of_many(self, frame: memoryview) -> bool:
        return False

    def failed(self, connection: Connection, error: BaseException) -> None:
        self.failures.append(error)


class HeldTransport:
    """A transport that keeps everything that it is given."""

    def __init__(self, of: socket.socket) -> None:
        self._socket = of
        self.held = bytearray()

    def get_extra_info(self, name: str) -> Any:
        return self._socket if name == "socket" else None

    def get_write_buffer_size(self) -> int:
        return len(self.held)

    def write(self, data: bytes) -> None:
        self.held += data


class TakingTransport:
    """A transport that takes everything that it is given."""

    def __init__(self, of: socket.socket | None, taken: bytearray) -> None:
        self._socket = of
        self._taken = taken

    def get_extra_info(self, name: str) -> Any:
        return self._socket if name == "socket" else None

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        self._taken += data


Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter, Connection]


@asynccontextmanager
async def connected(source: FromFile) -> AsyncIterator[Peer]:
    """Yield a client whose socket holds little, and the broker's side of its connection."""
    loop = asyncio.get_running_loop()
    made: list[Connection] = []

    def connection() -> Connection:
        made.append(
            Connection(
                FakeListener(), source, LoopScheduler(), Memory.of(LoopScheduler(), MAX_FRAME_BYTES, -1)
            )
        )
        return made[0]

    server = await loop.create_server(connection, "127.0.0.1", 0)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER_BYTES)
    client.setblocking(False)
    await loop.sock_connect(client, server.sockets[0].getsockname())
    reader, writer = await asyncio.open_connection(sock=client, limit=SMALL_BUFFER_BYTES)
    while not made:
        await asyncio.sleep(0)
    with closing(server), closing(writer):
        yield reader, writer, made[0]
    while made[0].transport is not None:
        await asyncio.sleep(0)
    assert source.files.open_files_count() <= 1


async def exactly(reader: asyncio.StreamReader, size: int) -> bytes:
    return await asyncio.wait_for(reader.readexactly(size), PATIENCE_S)


async def blocked(connection: Connection) -> None:
    """Wait until the socket takes no more."""
    transport = connection.transport
    assert transport is not None
    while not transport.get_write_buffer_size():
        await asyncio.sleep(0)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("known_socket", [True, False])
@pytest.mark.parametrize("per_turn", [unsent.PER_TURN_BYTES, 50_000])
def test_answers_arrive_whole_and_in_order(
    run: Callable[..., Any],
    known_socket: bool,
    per_turn: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unsent, "PER_TURN_BYTES", per_turn)
    if not known_socket:
        init = unsent.Unsent.__init__

        def without_socket(self: unsent.Unsent, transport: asyncio.Transport, passage: memoryview) -> None:
            init(self, transport, passage)
            self._socket = -1

        monkeypatch.setattr(unsent.Unsent, "__init__", without_socket)

    async def told() -> None:
        async with connected(FromFile(tmp_path / "file")) as (reader, writer, _):
            large = b"0-%d" % FILE_BYTES
            writer.write(
                frame(b"first") + frame(large) + frame(b"then") + frame(b"7-100007") + frame(b"last")
            )
            expected = b"first<" + CONTENT + b">then<" + CONTENT[7:100007] + b">last"
            assert await exactly(reader, len(expected)) == expected

    run(told())


@pytest.mark.parametrize("run", RUNS)
def test_a_client_that_does_not_read_costs_a_piece_and_is_served_no_further(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    async def told() -> None:
        source = FromFile(tmp_path / "file")
        async with connected(source) as (reader, writer, connection):
            large = frame(b"0-%d" % FILE_BYTES)
            writer.write(large * 3)
            await blocked(connection)
            for _ in range(100):
                await asyncio.sleep(0)
            assert connection.transport is not None
            assert connection.transport.get_write_buffer_size() <= PIECE_BYTES
            assert source.served == 1
            for _ in range(3):
                assert await exactly(reader, FILE_BYTES + 2) == b"<" + CONTENT + b">"
            writer.write(frame(b"after"))
            assert await exactly(reader, 5) == b"after"
            assert connection.transport.get_write_buffer_limits()[1] == WRITE_HIGH_WATER_BYTES  # type: ignore[attr-defined]

    run(told())


@pytest.mark.fault("read_into")
@pytest.mark.parametrize("run", RUNS)
def test_a_disk_that_fails_midway_ends_that_connection_and_says_why(
    run: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def told() -> None:
        source = FromFile(tmp_path / "file")
        async with connected(source) as (reader, writer, connection):
            writer.write(frame(b"0-%d" % FILE_BYTES))
            await blocked(connection)

            def refuse(operation: str, path: str, size: int) -> None:
                if operation == "read_into":
                    raise OSError(errno.EIO, "the disk is bad", path)

            source.files.set_fault_hook(refuse)
            got = await asyncio.wait_for(_up_to_the_end(reader), PATIENCE_S)
            assert len(got) < FILE_BYTES
        assert source.failures == []

    run(told())
    assert "its answer can't be read to the end: [Errno 5] the disk is bad" in caplog.text


@pytest.mark.parametrize("run", RUNS)
def test_lack_of_memory_to_send_ends_the_connection_and_no_other_bytes_follow(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: object) -> int:
        raise MemoryError

    async def told() -> None:
        async with connected(FromFile(tmp_path / "file")) as (reader, writer, connection):
            writer.write(frame(b"0-%d" % FILE_BYTES) + frame(b"then"))
            await blocked(connection)
            monkeypatch.setattr(unsent.Unsent, "_give", no_memory)
            received = await asyncio.wait_for(_up_to_the_end(reader), PATIENCE_S)
            assert (b"<" + CONTENT).startswith(received)
            assert len(received) < FILE_BYTES

    run(told())


@pytest.mark.parametrize("code", [errno.ETIMEDOUT, errno.EHOSTUNREACH])
def test_a_client_lost_by_the_network_is_not_logged_as_a_fault_of_the_disk(
    code: int, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)

    async def told() -> None:
        source = FromFile(tmp_path / "file")

        def refuse(descriptor: int, data: memoryview) -> int:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(unsent, "os", SimpleNamespace(write=refuse))
        async with connected(source) as (reader, writer, _):
            writer.write(frame(b"0-%d" % FILE_BYTES))
            await asyncio.wait_for(_up_to_the_end(reader), PATIENCE_S)

    asyncio.run(told())
    assert "is lost: [Errno" in caplog.text
    assert "can't be read to the end" not in caplog.text


@pytest.mark.parametrize("run", RUNS)
def test_an_answer_that_the_socket_takes_slowly_is_read_in_small_parts(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    """Bytes that the socket doesn't take have to be read again."""

    async def told() -> None:
        source = FromFile(tmp_path / "file")
        read_bytes = 0

        def note(operation: str, path: str, size: int) -> None:
            nonlocal read_bytes
            read_bytes += size if operation == "read_into" else 0

        async with connected(source) as (reader, writer, connection):
            assert connection.transport is not None
            accepted = connection.transport.get_extra_info("socket")
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER_BYTES)
            source.files.set_fault_hook(note)
            writer.write(frame(b"0-%d" % FILE_BYTES))
            assert await exactly(reader, FILE_BYTES + 2) == b"<" + CONTENT + b">"
            assert read_bytes < 4 * FILE_BYTES

    run(told())


def test_a_socket_that_takes_all_again_is_given_more_and_more(tmp_path: Path) -> None:
    source = FromFile(tmp_path / "file")
    sizes: list[int] = []
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                here.send(bytes(PIECE_BYTES))
        transport = HeldTransport(here)
        passage = memoryview(bytearray(PASSAGE_BYTES))
        answer = unsent.Unsent(transport, passage)  # type: ignore[arg-type]
        answer.add([FileRange(source.files, source.file, 0, FILE_BYTES)])
        assert answer.go_on() is unsent.Sending.FULL
        assert bytes(transport.held) == CONTENT[: len(transport.held)]
        transport.held.clear()
        there.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                there.recv(1 << 20)
        source.files.set_fault_hook(lambda operation, path, size: sizes.append(size))  # type: ignore[func-returns-value]
        assert answer.go_on() is unsent.Sending.FULL
    assert sizes[:3] == [2 * PIECE_BYTES, 4 * PIECE_BYTES, 8 * PIECE_BYTES]


@pytest.mark.parametrize("known_socket", [True, False])
def test_a_client_that_takes_all_at_once_gets_a_part_before_others_have_their_turn(
    known_socket: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = FromFile(tmp_path / "file")
    here, there = socket.socketpair()
    with here, there:
        taken = bytearray()
        transport = TakingTransport(here if known_socket else None, taken)
        monkeypatch.setattr(os, "write", lambda _socket, data: transport.write(bytes(data)) or len(data))
        answer = unsent.Unsent(transport, memoryview(bytearray(PASSAGE_BYTES)))  # type: ignore[arg-type]
        answer.add([b"<", FileRange(source.files, source.file, 0, FILE_BYTES), b">"])
        turns = 0
        while (sending := answer.go_on()) is unsent.Sending.TURN_IS_OVER:
            turns += 1
            given = len(taken) - (turns - 1) * unsent.PER_TURN_BYTES
            assert unsent.PER_TURN_BYTES <= given < unsent.PER_TURN_BYTES + turns * PASSAGE_BYTES
    assert sending is unsent.Sending.DONE
    assert turns == FILE_BYTES // unsent.PER_TURN_BYTES
    assert bytes(taken) == b"<" + CONTENT + b">"


@pytest.mark.parametrize("run", RUNS)
def test_a_client_that_hangs_up_midway_leaves_nothing(run: Callable[..., Any], tmp_path: Path) -> None:
    async def told() -> None:
        source = FromFile(tmp_path / "file")
        async with connected(source) as (_reader, writer, connection):
            writer.write(frame(b"0-%d" % FILE_BYTES))
            await blocked(connection)
            assert source.file.held is not None
            writer.transport.abort()
            while connection.transport is not None:
                await asyncio.sleep(0)
        assert source.file.held is None

    run(told())


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("bad", [b"nonsense", b"fault"])
def test_a_bad_request_closes_after_the_answer_before_it(
    run: Callable[..., Any], bad: bytes, tmp_path: Path
) -> None:
    async def told() -> None:
        async with connected(FromFile(tmp_path / "file")) as (reader, writer, _):
            writer.write(frame(b"0-%d" % FILE_BYTES) + frame(bad) + frame(b"never served"))
            got = await asyncio.wait_for(_up_to_the_end(reader), PATIENCE_S)
            assert got == b"<" + CONTENT + b">"

    run(told())


@pytest.mark.parametrize("run", RUNS)
def test_a_client_that_sends_no_more_still_gets_its_answer(run: Callable[..., Any], tmp_path: Path) -> None:
    async def told() -> None:
        async with connected(FromFile(tmp_path / "file")) as (reader, writer, connection):
            writer.write(frame(b"0-%d" % FILE_BYTES))
            await blocked(connection)
            writer.write_eof()
            got = await asyncio.wait_for(_up_to_the_end(reader), PATIENCE_S)
            assert got == b"<" + CONTENT + b">"

    run(told())


async def _up_to_the_end(reader: asyncio.StreamReader) -> bytes:
    got = bytearray()
    try:
        while data := await reader.read(1 << 20):
            got += data
    except ConnectionError:
        pass
    return bytes(got)

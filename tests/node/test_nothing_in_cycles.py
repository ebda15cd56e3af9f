"""A client's requests are freed with the answer or with the client. Nothing of them stays in a reference cycle of
ours."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import struct
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.environment.scheduler import LoopScheduler
from broker.handlers import HANDLERS
from broker.network.connection import INITIAL_BUFFER_BYTES, Connection
from broker.network.dispatch import LONG_FRAME_BYTES
from broker.network.memory import Memory
from broker.network.turns import PER_TURN
from broker.server import Server
from protocol.apis import APIS
from protocol.errors import Error
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig
from protocol.records.batch import build_batch
from protocol.wire.schema import Message
from storage.background import Lane
from tests.node.admin_requests import create
from tests.node.computing import SHORT, produce
from tests.node.test_connection import MAX_FRAME_BYTES, FakeDispatcher, FakeListener, frame
from tests.node.test_encrypted_answers import context
from tests.node.test_unsent_answers import RUNS
from tests.node.transactional import Producer, coordinating, delete
from tests.support.cycles import nothing_in_a_cycle
from tests.support.disk import files
from tests.support.large_requests import large_requests
from tests.support.partition_logs import HeldBackground
from tests.support.straight import Straight
from tests.support.topics import topics_of
from tests.support.whole_server import started
from tests.support.wire import Client, Outcome, request_frame
from tests.support.wire import frame as framed

HANDLED_IN_TURNS = PER_TURN + 1
DECODED_IN_TURNS = LONG_FRAME_BYTES // 4


async def is_idle(node: Server) -> None:
    """Wait until everything under way has ended, except for timers."""
    for _ in range(3):
        for lane in Lane:
            await node.background.passed(lane)
        while node.turns._waiting:
            await asyncio.sleep(0)
        await asyncio.sleep(0)


async def answered(node: Server, request: Message, version: int) -> None:
    client = Client(Straight(node))
    sent = client.send(request, version)
    while client.receive(sent, within_s=0) is Outcome.SILENCE:
        await asyncio.sleep(0)
    client.close()


async def hung_up_on(node: Server, request: Message, version: int) -> None:
    client = Client(Straight(node))
    client.send(request, version)
    client.close()


async def nonsense(node: Server, request: Message, version: int) -> None:
    client = Client(Straight(node))
    whole = request_frame(request, version)
    client.send_bytes(framed(whole[4:-1]))
    client.close()


async def broken_off(node: Server, request: Message, version: int) -> None:
    client = Client(Straight(node))
    client.send_bytes(request_frame(request, version)[:-1])
    client.close()


ENDS = (answered, hung_up_on, nonsense, broken_off)


@pytest.mark.parametrize("name", [APIS[key].name for key in HANDLERS])
async def test_a_request_leaves_no_cycle(node: Server, name: str) -> None:
    with nothing_in_a_cycle() as look:
        for end in ENDS:
            for large in large_requests(1, only={name}):
                await end(node, large.message, large.version)
            await is_idle(node)
            look()


@pytest.mark.parametrize("name", [APIS[key].name for key in HANDLERS])
async def test_a_request_that_takes_turns_leaves_no_cycle(node: Server, name: str) -> None:
    with nothing_in_a_cycle() as look:
        for end in (answered, hung_up_on):
            for large in large_requests(HANDLED_IN_TURNS, only={name}):
                if not large.path.endswith("repeated"):
                    await end(node, large.message, large.version)
            await is_idle(node)
            look()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    "name", ["AddPartitionsToTxn", "DeleteTopics", "Metadata", "OffsetCommit", "Produce"]
)
async def test_a_request_decoded_in_turns_leaves_no_cycle(
    node: Server, name: str, end: Callable[..., Any]
) -> None:
    with nothing_in_a_cycle():
        large = next(large_requests(DECODED_IN_TURNS, only={name}))
        assert len(request_frame(large.message, large.version)) > LONG_FRAME_BYTES
        await end(node, large.message, large.version)
        await is_idle(node)


@pytest.mark.parametrize("end", [answered, hung_up_on])
@pytest.mark.parametrize("another_at", [None, 5, PER_TURN + 5])
async def test_a_transactional_produce_of_many_partitions_leaves_no_cycle(
    tmp_path: Path, another_at: int | None, end: Callable[..., Any]
) -> None:
    """The request is refused if it has batches of two producers."""
    count = PER_TURN + 50
    node = await coordinating(tmp_path, partitions=count)
    producer = Producer(node).begin()
    await is_idle(node)
    batches = [
        build_batch(
            [(node.clock.now_ms(), None, b"x", ())],
            producer_id=producer.producer_id + (index == another_at),
            producer_epoch=producer.epoch,
            base_sequence=0,
            transactional=True,
        )
        for index in range(count)
    ]
    request = produce(*enumerate(batches))
    request.transactional_id = producer.transactional_id
    with nothing_in_a_cycle():
        await end(node, request, 12)
        await is_idle(node)


@pytest.mark.parametrize("count", [1, PER_TURN + 50])
@pytest.mark.parametrize("begins", [False, True])
async def test_a_produce_waiting_for_the_disk_leaves_no_cycle_if_its_client_hangs_up(
    tmp_path: Path, count: int, begins: bool
) -> None:
    """The client hangs up before the request begins to wait, or while it waits."""
    node = await started(tmp_path)
    flush = CreatableTopicConfig(name="flush.messages", value="1")
    topic = CreatableTopic(name="t", num_partitions=count, replication_factor=1, configs=[flush])
    topics_of(node).create([topic])
    background = HeldBackground()
    for index in range(count):
        node.partitions.get("t", index).log.background = background
    await is_idle(node)
    with nothing_in_a_cycle():
        client = Client(Straight(node))
        client.send(produce(*((index, SHORT) for index in range(count))), 9)
        if begins:
            await is_idle(node)
        client.close()
        await is_idle(node)
        background.run_all()
        await is_idle(node)


@pytest.mark.parametrize("written", [None, 10])
async def test_a_produce_without_room_on_the_disk_leaves_no_cycle(node: Server, written: int | None) -> None:
    """The disk has no room for all of it, or for part of it."""
    create(node, ("t", 1))

    def is_full(operation: str, path: str, _size: int) -> int | None:
        if operation == "append" and "/t-0/" in path:
            if written is None:
                raise OSError(errno.ENOSPC, "no room")
            return written
        return None

    with nothing_in_a_cycle():
        files.set_fault_hook(is_full)
        try:
            for _ in range(3):
                client = Client(Straight(node))
                answer = await client.answer(produce((0, SHORT)), 9)
                assert answer.responses[0].partition_responses[0].error_code == Error.KAFKA_STORAGE_ERROR
                client.close()
                await is_idle(node)
        finally:
            files.set_fault_hook(None)


async def test_a_deleted_topic_leaves_no_cycle(node: Server) -> None:
    with nothing_in_a_cycle():
        create(node, ("t", 3))
        client = Client(Straight(node))
        await client.answer(produce((0, SHORT), (2, SHORT)), 9)
        client.close()
        delete(node, "t")
        await is_idle(node)


@pytest.mark.parametrize("encrypted", [pytest.param(False, id="plain"), pytest.param(True, id="encrypted")])
@pytest.mark.parametrize("resets", [pytest.param(False, id="ended"), pytest.param(True, id="reset")])
@pytest.mark.parametrize("run", RUNS)
def test_no_connection_keeps_its_buffer_when_its_client_is_gone(
    run: Callable[..., Any], resets: bool, encrypted: bool
) -> None:
    """The connection lets go of its buffer, whatever the loop's transport still holds."""

    async def served() -> None:
        loop = asyncio.get_running_loop()
        scheduler = LoopScheduler()
        listener = FakeListener()
        made: list[Connection] = []

        def connection() -> Connection:
            memory = Memory.of(scheduler, MAX_FRAME_BYTES, -1)
            made.append(Connection(listener, FakeDispatcher(), scheduler, memory))  # type: ignore[arg-type]
            return made[-1]

        server = await loop.create_server(
            connection, "127.0.0.1", 0, ssl=context(ssl.PROTOCOL_TLS_SERVER) if encrypted else None
        )
        _, writer = await asyncio.open_connection(
            *server.sockets[0].getsockname(),
            ssl=context(ssl.PROTOCOL_TLS_CLIENT) if encrypted else None,
            server_hostname="" if encrypted else None,
        )
        writer.write(frame(bytes(4 * INITIAL_BUFFER_BYTES))[:-1])
        while not (made and len(made[0]._buffer) > 4 * INITIAL_BUFFER_BYTES and made[0].is_receiving):
            await asyncio.sleep(0)
        buffer = weakref.ref(made[0]._view)
        if resets:
            client = writer.get_extra_info("socket")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        else:
            writer.close()
        while listener.connections:
            await asyncio.sleep(0)
        assert buffer() is None
        server.close()

    run(served())

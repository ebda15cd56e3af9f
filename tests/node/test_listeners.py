"""Where a broker listens, which addresses it tells, and which settings say so."""

import asyncio
import contextlib
import errno
import io
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from broker import starting as opening
from broker.config.broker_config import BrokerConfig
from broker.config.definitions import StartError
from broker.disks.log_dirs import LogDirs
from broker.environment.environment import Environment
from broker.environment.network import SocketNetwork
from broker.handlers import describe_cluster, find_coordinator, metadata
from broker.network.endpoints import bind_all
from broker.process import run
from broker.process.command_line import parse_command_line
from broker.server import Server
from protocol.errors import Error
from protocol.messages.metadata import DescribeClusterRequest, FindCoordinatorRequest, MetadataRequest
from protocol.messages.topics import CreatableTopic
from tests.support.ports import free_ports
from tests.support.topics import topics_of
from tests.support.whole_server import configured, handled, started

TWO_LISTENERS = (
    "listeners=A://127.0.0.1:0,B://127.0.0.1:0",
    "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "advertised.listeners=B://told:1",
    "inter.broker.listener.name=B",
)


class Context:
    def __init__(self, listener_name: str, api_version: int) -> None:
        self.listener_name = listener_name
        self.api_version = api_version


def context(listener_name: str, api_version: int) -> Any:
    return Context(listener_name, api_version)


async def test_an_unadvertised_listener_is_announced_to_nobody(tmp_path: Path) -> None:
    node = await started(tmp_path, *TWO_LISTENERS)
    topics_of(node).create([CreatableTopic(name="a", num_partitions=1, replication_factor=1)])
    registered = node.metadata.image.brokers[node.node_id].record
    assert [(each.name, each.host, each.port) for each in registered.end_points] == [("B", "told", 1)]
    assert node.bootstrap == "told:1"

    told = handled(node, metadata, context("B", 12), MetadataRequest(topics=None))
    assert [(each.host, each.port) for each in told.brokers] == [("told", 1)]
    assert told.topics[0].partitions[0].leader_id == node.node_id

    untold = handled(node, metadata, context("A", 12), MetadataRequest(topics=None))
    [partition] = untold.topics[0].partitions
    assert untold.brokers == []
    assert (partition.error_code, partition.leader_id) == (Error.LISTENER_NOT_FOUND, -1)
    assert partition.offline_replicas == [node.node_id]
    old = handled(node, metadata, context("A", 5), MetadataRequest(topics=None))
    assert old.topics[0].partitions[0].error_code == Error.LEADER_NOT_AVAILABLE

    request = DescribeClusterRequest(endpoint_type=1)
    described = handled(node, describe_cluster, context("A", 1), request)
    assert (described.brokers, described.controller_id) == ([], -1)
    described = handled(node, describe_cluster, context("B", 1), request)
    assert ([each.port for each in described.brokers], described.controller_id) == ([1], node.node_id)
    group = FindCoordinatorRequest(key="g", key_type=0)
    found = handled(node, find_coordinator, context("A", 3), group)
    assert found.error_code == Error.COORDINATOR_NOT_AVAILABLE


async def test_accepted_connections_are_kept_alive(node: Server) -> None:
    listener = node.listeners["PLAINTEXT"]
    _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    while not listener.connections:
        await asyncio.sleep(0)
    [connection] = listener.connections
    assert connection.transport is not None
    accepted = connection.transport.get_extra_info("socket")
    assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    writer.close()


async def test_the_backlog_is_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    listen = socket.socket.listen
    monkeypatch.setattr(
        socket.socket, "listen", lambda self, backlog: (asked.append(backlog), listen(self, backlog))[1]
    )
    await started(tmp_path, "socket.listen.backlog.size=7")
    assert set(asked) == {7}


async def test_clients_that_connect_while_the_folders_are_opened_are_served_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [port] = free_ports(1)
    connected: list[socket.socket] = []
    open_log_dirs = opening.open_log_dirs

    def open_meanwhile(*arguments: Any) -> LogDirs:
        connected.append(socket.create_connection(("127.0.0.1", port)))
        return open_log_dirs(*arguments)

    monkeypatch.setattr(opening, "open_log_dirs", open_meanwhile)
    await started(tmp_path, port=port)
    reader, writer = await asyncio.open_connection(sock=connected[0])
    writer.write((0).to_bytes(4, "big"))  # no request: served by being hung up on
    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()


async def test_a_port_that_two_start_on_at_once_is_refused_to_the_second(tmp_path: Path) -> None:
    first = bind_all(configured(tmp_path / "one").listeners, SocketNetwork(), 50)  # not serving yet
    [endpoint] = first
    with pytest.raises(StartError, match="can't listen"):
        await started(tmp_path / "two", port=endpoint.port)
    assert not (tmp_path / "two").exists()
    first.close()


async def test_clients_are_refused_until_the_node_listens_again(tmp_path: Path) -> None:
    endpoints = bind_all(configured(tmp_path).listeners, SocketNetwork(), 50)
    [endpoint] = endpoints
    where = "127.0.0.1", endpoint.port
    endpoints.refuse()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(where)
    endpoints.listen()
    waiting = socket.create_connection(where)
    await endpoint.bound.serve(Greeting)
    assert await asyncio.to_thread(waiting.recv, 5) == b"hello"
    waiting.close()
    endpoints.close()


async def test_a_port_taken_meanwhile_is_reported(tmp_path: Path) -> None:
    endpoints = bind_all(configured(tmp_path).listeners, SocketNetwork(), 50)
    [endpoint] = endpoints
    endpoints.refuse()
    other = bind_all(configured(tmp_path, port=endpoint.port).listeners, SocketNetwork(), 50)
    with pytest.raises(
        StartError, match=f"can't listen on 127.0.0.1:{endpoint.port}: .*--port takes another"
    ):
        endpoints.listen()
    other.close()
    endpoints.close()


class Greeting(asyncio.BufferedProtocol):
    def connection_made(self, transport: Any) -> None:
        transport.write(b"hello")
        transport.close()


async def test_periodic_tasks_have_the_settings_intervals(tmp_path: Path) -> None:
    node = await started(
        tmp_path,
        "replica.high.watermark.checkpoint.interval.ms=111000",
        "log.initial.task.delay.ms=222000",
        "log.flush.scheduler.interval.ms=333000",
    )
    now_s = asyncio.get_running_loop().time()
    due_s = {name: timer.when() - now_s for name, timer in node.housekeeping._timers.items()}
    assert due_s["high watermarks"] == pytest.approx(111, abs=10)
    assert due_s["retention"] == pytest.approx(222, abs=10)
    assert due_s["flush"] == pytest.approx(333, abs=10)


class FullOutput(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "full")


async def test_an_output_that_cannot_be_written_does_not_end_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Server] = []
    start = run.start

    async def start_and_tell(config: BrokerConfig, environment: Environment) -> Server:
        node = await start(config, environment)
        served.append(node)
        return node

    monkeypatch.setattr(run, "start", start_and_tell)
    monkeypatch.setattr(sys, "stdout", FullOutput())
    options = parse_command_line(["--data", str(tmp_path), "--port", "0"], {})
    running = asyncio.ensure_future(run._run(options, None))
    while not served or not served[0].listeners["PLAINTEXT"].accepts:
        await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not running.done()
    served[0].stopped.set()
    assert await running == 0
    assert (tmp_path / ".kafka_cleanshutdown").exists()


async def test_whatever_ends_a_run_stops_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: object) -> None:
        raise RuntimeError("in the middle")

    monkeypatch.setattr(run, "_serve", fails)
    options = parse_command_line(["--data", str(tmp_path), "--port", "0"], {})
    with contextlib.suppress(RuntimeError):
        await run._run(options, None)
    assert (tmp_path / ".kafka_cleanshutdown").exists()

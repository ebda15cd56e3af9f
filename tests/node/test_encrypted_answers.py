"""Answers that lie in files over an encrypted connection: not a byte bypasses the encryption."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.environment.scheduler import LoopScheduler
from broker.network.connection import Connection
from broker.network.memory import Memory
from tests.node.test_connection import MAX_FRAME_BYTES, FakeListener, frame
from tests.node.test_unsent_answers import CONTENT, FILE_BYTES, RUNS, FromFile, exactly

WITHOUT_CERTIFICATES = "AECDH-AES256-SHA:@SECLEVEL=0"
"""A suite without certificates. TLS 1.3 has none."""


def context(purpose: int) -> ssl.SSLContext:
    made = ssl.SSLContext(purpose)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    made.maximum_version = ssl.TLSVersion.TLSv1_2
    made.set_ciphers(WITHOUT_CERTIFICATES)
    return made


@pytest.mark.parametrize("run", RUNS)
def test_no_file_goes_to_a_socket_past_its_encryption(run: Callable[..., Any], tmp_path: Path) -> None:
    async def told() -> None:
        source = FromFile(tmp_path / "file")
        sent: list[str] = []
        source.files.set_fault_hook(
            lambda name, path, _size: sent.append(path) if name == "read_into" else None
        )  # type: ignore[func-returns-value]
        made: list[Connection] = []

        def connection() -> Connection:
            scheduler = LoopScheduler()
            made.append(
                Connection(FakeListener(), source, scheduler, Memory.of(scheduler, MAX_FRAME_BYTES, -1))
            )
            return made[0]

        server = await asyncio.get_running_loop().create_server(
            connection, "127.0.0.1", 0, ssl=context(ssl.PROTOCOL_TLS_SERVER)
        )
        host, port = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(
            host, port, ssl=context(ssl.PROTOCOL_TLS_CLIENT), server_hostname=""
        )
        try:
            writer.write(frame(b"0-%d" % FILE_BYTES) + frame(b"then"))
            expected = b"<" + CONTENT + b">then"
            assert await exactly(reader, len(expected)) == expected
            assert sent == []
        finally:
            server.close()
            for transport in (writer.transport, made[0].transport):
                if transport is not None:
                    transport.abort()

    run(told())

"""Requests to a metrics listener over HTTP, byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families


class HttpReply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class HttpConnection:
    """One connection, on which anything may be sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, port: int) -> HttpConnection:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def reply(self, *, has_body: bool = True) -> HttpReply:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        lines = (line.split(": ", 1) for line in head[1:] if line)
        headers = {name.lower(): value for name, value in lines}
        body = await self._reader.readexactly(int(headers["content-length"])) if has_body else b""
        return HttpReply(int(head[0].split()[1]), headers, body)

    async def is_closed(self) -> bool:
        """Wait for its end, which may be an abrupt one."""
        try:
            return await self._reader.read() == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


async def get(port: int, path: str, *headers: str, method: str = "GET") -> HttpReply:
    """Send one request on a connection of its own."""
    connection = await HttpConnection.to(port)
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]
    connection.send("\r\n".join(lines).encode())
    try:
        return await connection.reply(has_body=method != "HEAD")
    finally:
        await connection.close()


Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def series_in(text: str) -> Series:
    """Return the values of a scrape by name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def scraped(port: int) -> Series:
    reply = await get(port, "/metrics")
    assert reply.status == 200, reply
    return series_in(reply.body.decode())


def value(series: Series, name: str, **labels: str) -> float:
    """Return the value of the one series with exactly these labels."""
    return series[name, frozenset(labels.items())]

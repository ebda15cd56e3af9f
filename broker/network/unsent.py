"""What of a connection's answers the socket hasn't taken yet.

Ranges of files stay in their files until the socket takes their bytes: they are read into memory that all connections
of a node have in common, and what the socket doesn't take of it is read again once it does. So a client that doesn't
read what it asked for costs a piece, not the answer. (Kafka: `FileRecords.writeTo`, by `sendfile`; on one machine that
hands over a page at a time, which costs client and broker more than the copy.) Where no socket is at hand, as in a
network of a test, or it takes what is encrypted alone, they are read a piece at a time.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Iterable
from enum import Enum, auto

from broker.network.answers import Chunk
from storage.files import FileRange

PIECE_BYTES = 16 * 1024
"""Of a file: what one transport holds of it at a time, by which it learns that its socket takes more."""
PER_TURN_BYTES = 4 * 1024 * 1024
"""What one connection is given before others have their turn."""


def _socket_of(transport: asyncio.Transport) -> int:
    """-1 where there is none."""
    known = transport.get_extra_info("socket")
    return -1 if known is None else int(known.fileno())


def _in_memory(chunks: Iterable[Chunk]) -> int:
    return sum([len(chunk) for chunk in chunks if not isinstance(chunk, FileRange)])


class Sending(Enum):
    """How far the answers have come."""

    DONE = auto()  # all is with the transport
    FULL = auto()  # the transport holds what the socket didn't take
    TURN_IS_OVER = auto()  # the socket may take more


class Unsent:
    """The answers of one connection, in order. Nobody else writes to the transport while there are any."""

    __slots__ = (
        "_at",
        "_chunks",
        "_held_bytes",
        "_passage",
        "_socket",
        "_taken_bytes",
        "_transport",
        "told_from_bytes",
    )

    def __init__(self, transport: asyncio.Transport, passage: memoryview) -> None:
        """`passage`: memory that a file's bytes go through to the socket. Nothing is in it between two calls."""
        self._transport = transport
        self._passage = passage
        self._taken_bytes = len(
            passage
        )  # at once, by a socket that was full then: it won't take much more next time
        self._chunks: deque[Chunk] = deque()
        self._held_bytes = -1  # until somebody asks: nearly all answers are taken at once
        self._at = 0  # so much of the first one has gone
        # a transport that encrypts has a socket too, which would take a file as it is
        is_encrypted = transport.get_extra_info("sslcontext") is not None
        self._socket = -1 if is_encrypted else _socket_of(transport)
        self.told_from_bytes = 1 if is_encrypted else 0
        """The high water by which a transport that is FULL says so, and says as soon as all is taken. Asyncio's TLS is
        above it with as many bytes already, and would be with none; all others are with more."""

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Behind all others."""
        self._chunks += chunks
        if self._held_bytes >= 0:
            self._held_bytes += _in_memory(chunks)

    @property
    def held_bytes(self) -> int:
        """What of them is in memory, but for what the transport has."""
        if self._held_bytes < 0:
            self._held_bytes = _in_memory(self._chunks)
        return self._held_bytes

    def go_on(self) -> Sending:
        """Give as much as is taken. Raises `OSError`: of the file, or as `ConnectionError` of the socket."""
        transport, chunks = self._transport, self._chunks
        given = 0
        while not transport.get_write_buffer_size():
            if not chunks:
                return Sending.DONE
            if given >= PER_TURN_BYTES:
                return Sending.TURN_IS_OVER
            chunk = chunks[0]
            if not isinstance(chunk, FileRange):
                given += self._write_before_range()
                continue
            given += self._give(chunk)
            if self._at == len(chunk):
                chunks.popleft()
                self._at = 0
        return Sending.FULL

    def _write_before_range(self) -> int:
        """What is in memory, up to the next range."""
        plain: list[bytes | bytearray | memoryview] = []
        chunks = self._chunks
        while chunks and not isinstance(chunk := chunks[0], FileRange):
            plain.append(chunk)
            chunks.popleft()
        joined = b"".join(plain)
        if self._held_bytes >= 0:
            self._held_bytes -= len(joined)
        self._transport.write(joined)
        return len(joined)

    def _give(self, chunk: FileRange) -> int:
        at = self._at
        if self._socket < 0:
            piece = chunk.read(at, PIECE_BYTES)
            count = len(piece)
            self._transport.write(piece)
        else:
            count = self._pass_on(chunk, at)
        self._at = at + count
        return count

    def _pass_on(self, chunk: FileRange, at: int) -> int:
        """From the file to the socket, and behind what it takes at once a piece to the transport, which tells when it
        takes more."""
        there = self._passage[: chunk.read_into(at, self._passage[: 2 * self._taken_bytes])]
        taken = self._taken_at_once(there)
        if taken == len(there):
            self._taken_bytes = max(self._taken_bytes, taken)
            return taken
        self._taken_bytes = max(taken, PIECE_BYTES)
        piece = bytes(there[taken : taken + PIECE_BYTES])
        self._transport.write(piece)
        return taken + len(piece)

    def _taken_at_once(self, there: memoryview) -> int:
        try:
            return os.write(self._socket, there)
        except BlockingIOError:
            return 0
        except ConnectionError:
            raise
        except OSError as error:  # the network takes the peer for lost by some that Python has no name for
            raise ConnectionError(error.errno, error.strerror) from error

"""The answers of a connection that the socket hasn't taken yet.

Ranges of files stay in their files until the socket takes their bytes. They are read into memory that all connections
of a node share; bytes that the socket doesn't take are read again once it does. So a client that doesn't read its
answer costs the memory of a piece, not of the answer. (Kafka uses `sendfile` in `FileRecords.writeTo`; on one machine
that hands over a page at a time, which costs client and broker more than the copy.) Without a socket, as in the network
of a test, or with encryption, ranges are read a piece at a time.
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
"""The piece of a file that a transport holds at a time. Once it is gone, the transport knows that its socket takes
more."""
PER_TURN_BYTES = 4 * 1024 * 1024
"""The bytes that one connection sends before others have their turn."""


def _socket_of(transport: asyncio.Transport) -> int:
    """The file descriptor of the socket, or -1 if there is none."""
    known = transport.get_extra_info("socket")
    return -1 if known is None else int(known.fileno())


def _in_memory(chunks: Iterable[Chunk]) -> int:
    return sum([len(chunk) for chunk in chunks if not isinstance(chunk, FileRange)])


class Sending(Enum):
    """How far sending has come."""

    DONE = auto()  # the transport has all
    FULL = auto()  # the transport holds bytes that the socket didn't take
    TURN_IS_OVER = auto()  # the socket may take more


class Unsent:
    """The answers of one connection, in order. Nothing else writes to the transport while there are any."""

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
        """`passage`: memory through which a file's bytes go to the socket. It is free between two calls."""
        self._transport = transport
        self._passage = passage
        self._taken_bytes = len(
            passage
        )  # what the socket last took until it was full: it won't take much more next time
        self._chunks: deque[Chunk] = deque()
        self._held_bytes = -1  # not counted before it is asked for: nearly all answers are taken at once
        self._at = 0  # how much of the first chunk has gone
        # A transport that encrypts has a socket, too, but that would send a file unencrypted.
        is_encrypted = transport.get_extra_info("sslcontext") is not None
        self._socket = -1 if is_encrypted else _socket_of(transport)
        self.told_from_bytes = 1 if is_encrypted else 0
        """The high-water mark with which a FULL transport reports that it is full, and later that all is taken.

        Asyncio's TLS counts as full when it holds this many bytes, so with 0 it always would be. Other transports count
        as full when they hold more."""

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Append chunks."""
        self._chunks += chunks
        if self._held_bytes >= 0:
            self._held_bytes += _in_memory(chunks)

    @property
    def held_bytes(self) -> int:
        """The bytes of them in memory, without those that the transport has."""
        if self._held_bytes < 0:
            self._held_bytes = _in_memory(self._chunks)
        return self._held_bytes

    def go_on(self) -> Sending:
        """Send as much as the socket takes. Raises OSError for the file, ConnectionError for the socket."""
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
        """Write the chunks in memory, up to the next range. Returns their size in bytes."""
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
        """Send from the file to the socket. If that is full, give the next piece to the transport, which reports when
        the socket takes more."""
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
        except OSError as error:  # some errors that mean a lost peer have no class of their own in Python
            raise ConnectionError(error.errno, error.strerror) from error

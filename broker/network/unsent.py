"""What of a connection's answers the socket hasn't taken yet.

Ranges of files stay in their files until the socket takes their bytes, which then go from the page cache to it
(`sendfile`, as Kafka's `FileRecords.writeTo`): a client that doesn't read what it asked for costs a piece, not the
answer. Where no socket is at hand, as in a network of a test, or it takes what is encrypted alone, or the file system
can't do that, they are read a piece at a time.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Iterable
from enum import Enum, auto

from broker.network.answers import Chunk
from storage.file_range import FileRange

PIECE_BYTES = 16 * 1024
"""Of a file: what one transport holds of it at a time, by which it learns that its socket takes more."""
PER_TURN_BYTES = 4 * 1024 * 1024
"""What one connection is given before others have their turn."""


_NO_SENDFILE = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
"""What a file system answers that can't give a file's bytes to a socket (asyncio's `loop.sendfile` reads them then)."""
_OF_THE_SOCKET = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN})
"""What the network takes a peer for lost by, and Python has no `ConnectionError` for."""


def _socket_of(transport: asyncio.Transport) -> int:
    """-1 where there is none."""
    known = transport.get_extra_info("socket")
    return -1 if known is None else int(known.fileno())


class Sending(Enum):
    """How far the answers have come."""

    DONE = auto()  # all is with the transport
    FULL = auto()  # the transport holds what the socket didn't take
    TURN_IS_OVER = auto()  # the socket may take more


class Unsent:
    """The answers of one connection, in order. Nobody else writes to the transport while there are any."""

    __slots__ = ("_at", "_chunks", "_socket", "_transport", "told_from_bytes")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._chunks: deque[Chunk] = deque()
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
        self._transport.write(joined)
        return len(joined)

    def _give(self, chunk: FileRange) -> int:
        at = self._at
        count = 0
        if self._socket >= 0:
            count = self._send(chunk, at)
        if not count:
            piece = chunk.read(at, PIECE_BYTES)
            count = len(piece)
            self._transport.write(piece)
        self._at = at + count
        return count

    def _send(self, chunk: FileRange, at: int) -> int:
        """What goes from the file to the socket at once; 0 where it has to be read."""
        try:
            return chunk.send(at, PER_TURN_BYTES, self._socket)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno in _OF_THE_SOCKET:
                raise ConnectionError(error.errno, error.strerror) from error
            if error.errno not in _NO_SENDFILE:
                raise
            return 0

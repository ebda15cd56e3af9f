"""What a connection is given to send, and why it may have to close instead; what is handed on as it came."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, cast

from storage.files import FileRange

Chunk = bytes | bytearray | memoryview | FileRange

Answer = list[Chunk] | None
"""An answer's chunks; None where nothing is answered (acks=0)."""

WRITTEN_CHUNKS = (
    1024  # what one system call takes (IOV_MAX); uvloop breaks off a connection that is given 2^20 and more
)


class CloseConnectionError(Exception):
    """The connection has to close and this is why: what the client sent can't be answered."""


class ForwardedRequest(NamedTuple):
    """As it came, from its header on."""

    data: bytes
    body_at: int

    @property
    def body(self) -> memoryview:
        """Behind its header."""
        return memoryview(self.data)[self.body_at :]


class NotAdmittedError(Exception):
    """What a client asked of a broker isn't for brokers to hand on."""


class PendingAnswer(Protocol):
    """The answer to a request that comes later."""

    def when_answered(self, then: Callable[[], None]) -> None:
        """`then` is called once `take` has the answer, by whoever makes it."""
        ...

    def take(self) -> Answer | PendingAnswer:
        """The answer, or what there is to wait for next. Raises what the request failed with."""
        ...

    def abandon(self) -> None:
        """The client has hung up."""
        ...


class Requests(Protocol):
    """Who serves the frames (`broker.network.dispatch`)."""

    monotonic_s: Callable[[], float]

    def soon(self, then: Callable[[], object], /) -> None:
        """`then` is called once what is at hand is done."""
        ...

    def serve(self, connection: Any, frame: memoryview) -> Answer | PendingAnswer:
        """Raises CodecError, CloseConnectionError where the connection has to close."""
        ...

    def held(self, connection: Any, frame: memoryview, took_s: float) -> None:
        """Serving the frame took so long, which may be too long."""
        ...

    def is_of_many(self, frame: memoryview) -> bool:
        """Whether the Produce in the frame has many topics and partitions."""
        ...

    def failed(self, connection: Any, error: BaseException) -> None:
        """Serving a request ended with an error of ours."""
        ...


# --- The bytes of frames: what the size in front of one may be where it is none, and chunks of answers --------

MAX_CONTROL_REQUEST_BYTES = 8 * 1024 * 1024
"""A few bytes of a request become an object of some hundred; only Produce's records stay bytes. Kafka has no such
limit."""

MOST_PRODUCED = 30_000
"""Topics and partitions of a Produce that is longer than 64 KiB."""

JOINED_ANSWER_BYTES = 256 * 1024  # below this, one copy is cheaper than a vector of buffers


HTTP_STARTS = frozenset((b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI"))
"""The first four bytes of a line of HTTP."""


def hint(size: int) -> str:
    """What else the four bytes of a size may be: the beginning of TLS's hello, or of a line of HTTP."""
    start = size.to_bytes(4, "big", signed=True)
    if start[:2] == b"\x16\x03":
        return " (this looks like TLS, and the listener is plaintext)"
    if start in HTTP_STARTS:
        return " (this looks like HTTP)"
    return ""


def joined(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Fewer chunks of the same bytes: neighbours are joined, but for what is in a file or large by itself."""
    fewer: list[Chunk] = []
    small = bytearray()
    for chunk in chunks:
        stays = isinstance(chunk, FileRange) or len(chunk) > JOINED_ANSWER_BYTES
        if small and (stays or len(small) + len(chunk) > JOINED_ANSWER_BYTES):
            fewer.append(small)
            small = bytearray()
        if stays:
            fewer.append(chunk)
        else:
            small += cast("bytes", chunk)
    if small:
        fewer.append(small)
    return fewer

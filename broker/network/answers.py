"""The answers that a connection sends, the errors that close it instead, and requests that are forwarded undecoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, cast

from storage.files import FileRange

Chunk = bytes | bytearray | memoryview | FileRange

Answer = list[Chunk] | None
"""An answer's chunks; None if there is no answer (acks=0)."""

WRITTEN_CHUNKS = (
    1024  # one system call takes as many (IOV_MAX); uvloop breaks a connection that gets 2^20 or more
)


class CloseConnectionError(Exception):
    """The connection has to close: the client's request can't be answered. The message says why."""


class ForwardedRequest(NamedTuple):
    """A request as it came, from its header on."""

    data: bytes
    body_at: int

    @property
    def body(self) -> memoryview:
        """The part behind the header."""
        return memoryview(self.data)[self.body_at :]


class NotAdmittedError(Exception):
    """Brokers may not forward a request of this API."""


class PendingAnswer(Protocol):
    """The answer to a request that comes later."""

    def when_answered(self, then: Callable[[], None]) -> None:
        """Have `then` called once `take` has the answer. The code that makes the answer calls it."""
        ...

    def take(self) -> Answer | PendingAnswer:
        """The answer, or another one to wait for. Raises the error with which the request failed."""
        ...

    def abandon(self) -> None:
        """The client has hung up."""
        ...


class Requests(Protocol):
    """Serves the frames of connections (`broker.network.dispatch`)."""

    monotonic_s: Callable[[], float]

    def soon(self, then: Callable[[], object], /) -> None:
        """Call `then` once the present step is done."""
        ...

    def serve(self, connection: Any, frame: memoryview) -> Answer | PendingAnswer:
        """Serve a frame. Raises CodecError or CloseConnectionError if the connection has to close."""
        ...

    def held(self, connection: Any, frame: memoryview, took_s: float) -> None:
        """Report how long serving the frame took, which may be too long."""
        ...

    def is_of_many(self, frame: memoryview) -> bool:
        """True if the Produce in the frame has many topics and partitions."""
        ...

    def failed(self, connection: Any, error: BaseException) -> None:
        """Report that serving a request failed with an error of the broker."""
        ...


# --- The bytes of frames: wrong sizes in front of them, and chunks of answers -----------------------------------

MAX_CONTROL_REQUEST_BYTES = 8 * 1024 * 1024
"""The longest request other than Produce. A few of its bytes become an object of some hundred; only Produce's records
stay bytes. Kafka has no such limit."""

MOST_PRODUCED = 30_000
"""Most topics and partitions of a Produce that is longer than 64 KiB."""

JOINED_ANSWER_BYTES = 256 * 1024  # below this, one copy is cheaper than a vector of buffers


HTTP_STARTS = frozenset((b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI"))
"""The first four bytes of an HTTP request."""


def hint(size: int) -> str:
    """What the four bytes of a wrong size look like: the beginning of TLS's hello, or of an HTTP request."""
    start = size.to_bytes(4, "big", signed=True)
    if start[:2] == b"\x16\x03":
        return " (this looks like TLS, and the listener is plaintext)"
    if start in HTTP_STARTS:
        return " (this looks like HTTP)"
    return ""


def joined(chunks: Sequence[Chunk]) -> list[Chunk]:
    """The same bytes in fewer chunks: neighbours are joined, except for ranges of files and large chunks."""
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

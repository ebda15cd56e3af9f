"""What a connection is given to send, and why it may have to close instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from storage.files import FileRange

Chunk = bytes | bytearray | memoryview | FileRange

Answer = list[Chunk] | None
"""An answer's chunks; None where nothing is answered (acks=0)."""

WRITTEN_CHUNKS = (
    1024  # what one system call takes (IOV_MAX); uvloop breaks off a connection that is given 2^20 and more
)


class CloseConnectionError(Exception):
    """The connection has to close and this is why: what the client sent can't be answered."""


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

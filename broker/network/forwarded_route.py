"""The route of a request that goes to the controller as it came, and of its answer, which the client gets as it is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from broker.network.routes import SIZE_AND_CORRELATION_ID, Route
from protocol.waiting import turn

_CORRELATION_ID_BYTES = 4


class ForwardedRequest(NamedTuple):
    """As it came, from its header on."""

    data: bytes
    body_at: int


class ForwardedRoute(Route):
    """Nothing is decoded, or encoded."""

    __slots__ = ()

    def __init__(
        self, api_version: int, forward: Callable[[Any, ForwardedRequest], Any], response: type[Any]
    ) -> None:
        """`response` is what `forward` answers with: it has `data`, the answer from its header on."""
        self.api_version = api_version
        self.decode = _whole
        self.encode = _as_it_is
        self.handle = forward
        self.needs(None)  # of this node
        self.response = response
        self.entries = None
        self.has_lists = False
        self.structs = ()
        self.shape = None
        self.short_bytes = sys.maxsize
        self.head = SIZE_AND_CORRELATION_ID

    async def decode_in_steps(self, frame: memoryview, pos: int) -> tuple[ForwardedRequest, int]:
        await turn()
        return _whole(frame, pos, len(frame))


def _whole(frame: memoryview, pos: int, end: int) -> tuple[ForwardedRequest, int]:
    """The receive buffer is used again."""
    return ForwardedRequest(bytes(frame[:end]), pos), end


def _as_it_is(response: Any, chunks: list[Any]) -> None:
    chunks.append(memoryview(response.data)[_CORRELATION_ID_BYTES:])

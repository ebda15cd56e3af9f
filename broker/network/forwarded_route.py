"""The route of a request that goes to the controller as it came, and of its answer, which the client gets as it is."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from broker.network.turns import RequestSteps

_HEAD = struct.Struct(">ii")  # size, correlation id
_CORRELATION_ID_BYTES = 4


class ForwardedRequest(NamedTuple):
    """As it came, from its header on."""

    data: bytes
    body_at: int


class ForwardedRoute:
    """As `routes.Route`."""

    __slots__ = (
        "api_version",
        "entries",
        "handle",
        "has_lists",
        "head",
        "may_hold_files",
        "response",
        "shape",
        "short_bytes",
    )

    def __init__(
        self, api_version: int, forward: Callable[[Any, ForwardedRequest], Any], response: type[Any]
    ) -> None:
        """`response` is what `forward` answers with: it has `data`, the answer from its header on."""
        self.api_version = api_version
        self.handle = forward
        self.response = response
        self.entries = None
        self.has_lists = False
        self.shape = None
        self.may_hold_files = False
        self.short_bytes = sys.maxsize
        self.head = _HEAD

    def decode(self, frame: memoryview, pos: int, end: int) -> tuple[ForwardedRequest, int]:
        """All of it: the receive buffer is used again."""
        return ForwardedRequest(bytes(frame[:end]), pos), end

    def decode_in_steps(self, frame: memoryview, pos: int) -> RequestSteps[tuple[ForwardedRequest, int]]:
        yield None
        return self.decode(frame, pos, len(frame))

    def encode(self, response: Any, chunks: list[Any]) -> None:
        chunks.append(memoryview(response.data)[_CORRELATION_ID_BYTES:])

    def is_short(self, response: Any) -> bool:
        return True

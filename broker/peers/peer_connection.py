"""A connection to another node: frames go out, answers come in, and its end is told once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from broker.peers.answer_frames import AnswerFrames


class PeerConnection(asyncio.BufferedProtocol):
    """`made` is told that it stands, `answered` each answer's frame, `ended` why it is over; nothing comes after that,
    and nothing after `close`."""

    def __init__(
        self,
        made: Callable[[], None],
        answered: Callable[[memoryview], None],
        ended: Callable[[str], None],
    ) -> None:
        self._made = made
        self._answered = answered
        self._ended = ended
        self._frames = AnswerFrames()
        self._transport: asyncio.Transport | None = None
        self._is_over = False

    def send(self, frame: bytes) -> None:
        """A whole frame, its size in front. It goes nowhere once this is over."""
        if not self._is_over:
            assert self._transport is not None
            self._transport.write(frame)

    def close(self) -> None:
        """Nobody is told. Nothing is asked of the transport from now on: uvloop's raises what a closed one can't do."""
        self._is_over = True
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    # --- asyncio's side -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        if self._is_over:
            made.abort()
        else:
            self._transport = made
            self._made()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.room()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            frame = self._frames.came(nbytes)
        except ValueError as error:
            self._end(str(error))
            return
        if frame is not None and not self._is_over:
            self._answered(frame)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("it closed the connection" if exc is None else str(exc))

    def _end(self, reason: str) -> None:
        if self._is_over:
            return
        self.close()
        self._ended(reason)

"""Carries out the complete requests of a client that is gone, although they get no answer.

A producer with acks=0 waits for nothing, and may end as soon as it has sent. Requests that have come whole count. As in
Kafka (`Selector.close` with `CloseMode.GRACEFUL`) the requests of a broken connection are carried out one after the
other, up to the first one that has an answer. Its answer can't be sent, and later requests are dropped. Requests other
than Produce always have an answer, so they are dropped too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker.environment.scheduler import IN_A_ROW_S
from broker.network.answers import Answer, CloseConnectionError, PendingAnswer
from protocol.errors import CodecError

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduled
    from broker.network.answers import Requests

_SIZE = struct.Struct(">i")
_PRODUCE = bytes(2)  # as the api key


class LeftBehind:
    """The requests that one connection has left behind. `over` is called once they are carried out or given up."""

    __slots__ = ("_call_soon", "_connection", "_frames", "_next_turn", "_over", "_pending", "_requests")

    def __init__(
        self,
        connection: Any,
        requests: Requests,
        call_soon: Callable[..., Scheduled],
        over: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._requests = requests
        self._call_soon = call_soon
        self._over = over
        self._frames: memoryview = memoryview(b"")
        self._pending: PendingAnswer | None = None
        self._next_turn: Scheduled | None = None

    def carry_out(self, pending: PendingAnswer | None, frames: memoryview) -> None:
        """Carry out the requests in `frames`, after `pending`, the request in work.

        `pending` is abandoned if `frames` doesn't begin with a whole request."""
        self._frames = frames
        self._pending = pending
        if pending is None:
            self._go_on()
        elif not self._whole():
            self.give_up()
        else:
            pending.when_answered(self._answer_is_there)

    def give_up(self) -> None:
        """Carry out nothing more."""
        self._frames = memoryview(b"")
        if self._next_turn is not None:
            self._next_turn.cancel()
            self._next_turn = None
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.abandon()
        self._over()

    def _whole(self) -> int:
        """The size of the next request; 0 if it isn't whole or isn't a Produce."""
        frames = self._frames
        if len(frames) < 4:
            return 0
        size: int = _SIZE.unpack_from(frames)[0]
        return size if 0 < size <= len(frames) - 4 and frames[4:6] == _PRODUCE else 0

    def _go_on(self) -> None:
        self._next_turn = None
        monotonic_s = self._requests.monotonic_s
        turn_began_s = began_s = monotonic_s()
        while size := self._whole():
            if began_s - turn_began_s > IN_A_ROW_S:
                self._next_turn = self._call_soon(self._go_on)
                return
            frame, self._frames = self._frames[4 : 4 + size], self._frames[4 + size :]
            try:
                answer = self._requests.serve(self._connection, frame)
            except Exception as error:
                self._fail(error)
                return
            finally:
                now_s = monotonic_s()
                self._requests.held(self._connection, frame, now_s - began_s)
                began_s = now_s
            if answer is not None:
                self._take(answer)
                return
        self.give_up()

    def _take(self, answer: Answer | PendingAnswer) -> None:
        if answer is None:
            self._go_on()
        elif isinstance(answer, list):
            self.give_up()
        else:
            self._pending = answer
            if self._whole():
                answer.when_answered(self._answer_is_there)
            else:
                self.give_up()

    def _answer_is_there(self) -> None:
        self._call_soon(self._answered)

    def _answered(self) -> None:
        pending, self._pending = self._pending, None
        if pending is None:  # given up meanwhile
            return
        try:
            answer = pending.take()
        except Exception as error:
            self._fail(error)
            return
        self._take(answer)

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, CodecError | CloseConnectionError):
            self._requests.failed(self._connection, error)
        self.give_up()

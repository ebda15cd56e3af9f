"""The way to the controller, whoever it is by now: a request goes to it again until it is answered, or its time is up.

Source: `NodeToControllerChannelManager`, `NodeToControllerRequestThread`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from broker.peers.peer import OnePeer, PeerReply, PeerSettings
from protocol.errors import Error, KafkaError
from protocol.wire.schema import error_codes

if TYPE_CHECKING:
    from broker.controller.observer import LeaderEndpoint
    from broker.environment.network import Network
    from broker.environment.scheduler import Scheduled, Scheduler
    from protocol.wire.schema import Message

CONTROLLER_RETRY_MS = 50
"""How soon it is tried again, without growth."""


class ToController(Protocol):
    """A way to the controller, one request at a time: `ControllerChannel`, or `OwnController` in the same process."""

    trouble: str
    """What has kept the request that is under way from being answered so far; empty where nothing is known of it."""

    @property
    def is_busy(self) -> bool: ...

    def ask(self, request: Message, reply: PeerReply, *, timeout_ms: int | None) -> None: ...

    def stop(self) -> None: ...


class ControllerChannel:
    """One request at a time. Channels of different purposes are connections of their own: a request that takes long
    holds up none of another kind."""

    def __init__(
        self,
        controller: Callable[[], LeaderEndpoint | None],
        settings: PeerSettings,
        network: Network,
        scheduler: Scheduler,
        *,
        why_unknown: Callable[[], str] = lambda: "",
    ) -> None:
        """`controller` says who it is, as far as that is known; `why_unknown` what keeps it from being known.
        Each answer is waited for as long as `request_timeout_ms` says."""
        self._controller = controller
        self._why_unknown = why_unknown
        self.trouble = ""
        self._scheduler = scheduler
        self._asked = OnePeer(settings, network, scheduler)
        self._request: Message | None = None
        self._reply: PeerReply | None = None
        self._deadline: Scheduled | None = None
        self._again: Scheduled | None = None

    @property
    def is_busy(self) -> bool:
        return self._reply is not None

    def ask(self, request: Message, reply: PeerReply, *, timeout_ms: int | None) -> None:
        """`reply` is given the answer, whatever error it has, but for NOT_CONTROLLER anywhere in it: then it is asked
        again, of whoever it is by then. KafkaError: UNSUPPORTED_VERSION, and REQUEST_TIMED_OUT where there is no answer
        in time, whose message is the trouble there was; `timeout_ms` None: it is asked for as long as it takes."""
        assert self._reply is None, "one request at a time"
        self._request, self._reply = request, reply
        self.trouble = ""
        if timeout_ms is not None:
            self._deadline = self._scheduler.call_later(timeout_ms / 1000, self._gave_up)
        self._send()

    def stop(self) -> None:
        """Nobody is told of anything any more."""
        self._forget()
        self._asked.stop()

    def _send(self) -> None:
        self._again = None
        request = self._request
        assert request is not None
        controller = self._controller()
        if controller is None or not controller.host:
            self.trouble = self._why_unknown() or "no controller has said yet where it is"
            self._retry()
            return
        self._asked.at(controller.host, controller.port).ask(request, self._answered)

    def _retry(self) -> None:
        self._again = self._scheduler.call_later(CONTROLLER_RETRY_MS / 1000, self._send)

    def _answered(self, answer: Message | KafkaError) -> None:
        if isinstance(answer, KafkaError):
            is_final = answer.error is Error.UNSUPPORTED_VERSION
            trouble = answer.message or answer.error.name
        else:
            is_final = Error.NOT_CONTROLLER not in error_codes(answer)
            trouble = "whoever was asked is the controller no more"
        if is_final:
            self._forget()(answer)
        else:
            self.trouble = trouble
            self._retry()

    def _gave_up(self) -> None:
        self._forget()(KafkaError(Error.REQUEST_TIMED_OUT, self.trouble or None))

    def _forget(self) -> PeerReply:
        """Whom to tell."""
        reply, self._request, self._reply = self._reply, None, None
        for timer in (self._deadline, self._again):
            if timer is not None:
                timer.cancel()
        self._deadline = self._again = None
        if self._asked.peer is not None:
            self._asked.peer.forget()
        return reply or (lambda answer: None)

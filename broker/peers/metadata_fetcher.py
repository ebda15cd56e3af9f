"""The metadata log as it comes from the controller: an observer's requests, one after the other, to whoever leads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker.controller.observer import AfterAnswer
from broker.peers.peer import OnePeer, PeerSettings
from protocol.errors import KafkaError

if TYPE_CHECKING:
    from broker.controller.observer import Observer
    from broker.environment.network import Network
    from broker.environment.scheduler import Scheduled, Scheduler
    from broker.network.endpoints import Address
    from protocol.wire.schema import Message

BACK_OFF_MS = 20
"""`controller.quorum.retry.backoff.ms`."""
REQUEST_TIMEOUT_MS = 2_000
"""`controller.quorum.request.timeout.ms`."""


class MetadataFetcher:
    """Asks the leader where it is known, else the addresses in turn that the quorum may be found at."""

    def __init__(
        self,
        observer: Observer,
        bootstrap: Sequence[Address],
        *,
        settings: PeerSettings,
        network: Network,
        scheduler: Scheduler,
        failed: Callable[[Exception], None],
    ) -> None:
        """`failed` is told why it goes on no more: a broken invariant, or the disk."""
        self._observer = observer
        self._bootstrap = [*bootstrap]
        self._next = 0
        self._scheduler = scheduler
        self._failed = failed
        self._asked = OnePeer(settings, network, scheduler)
        self._timer: Scheduled | None = None
        self._is_stopped = False
        self._unreachable = ""  # by the last request
        observer.resume = self._go_on
        observer.failed = self._fail

    def start(self) -> None:
        """The first request goes."""
        self._ask()

    def stop(self) -> None:
        """Nothing is asked any more."""
        self._is_stopped = True
        self._observer.stop()
        if self._timer is not None:
            self._timer.cancel()
        self._asked.stop()

    @property
    def trouble(self) -> str:
        """What keeps the metadata from coming, with the address that was asked last; empty where nothing does, or
        nobody has been asked yet."""
        if self._unreachable or not self._observer.complaint:
            return self._unreachable
        host, port = self._address()
        return f"{host}:{port}: {self._observer.complaint}"

    def _ask(self) -> None:
        if not self._is_stopped:
            peer = self._asked.at(*self._address())
            peer.ask(self._observer.request(), self._answered, timeout_ms=REQUEST_TIMEOUT_MS)

    def _address(self) -> Address:
        leader = self._observer.leader
        if leader is not None and leader.host and not self._observer.is_leader_lost:
            return leader.host, leader.port
        return self._bootstrap[self._next % len(self._bootstrap)]

    def _answered(self, answer: Message | KafkaError) -> None:
        self._unreachable = ""
        if isinstance(answer, KafkaError):
            self._unreachable = answer.message or answer.error.name
            self._observer.lost()
            self._next += 1
        try:
            then = self._observer.answered(answer)  # type: ignore[arg-type]
        except Exception as error:
            self._fail(error)
            return
        self._go_on(then)

    def _fail(self, error: Exception) -> None:
        self.stop()
        self._failed(error)

    def _go_on(self, then: AfterAnswer) -> None:
        if self._is_stopped:
            return
        if then is AfterAnswer.ASK:
            self._ask()
        elif then is AfterAnswer.BACK_OFF:
            self._timer = self._scheduler.call_later(BACK_OFF_MS / 1000, self._ask)

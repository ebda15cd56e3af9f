"""What is fetched of one leader's partitions: a connection of its own, and one request behind the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.replicas.replica_fetcher import FETCH_VERSION, LIST_OFFSETS_VERSION
from protocol.messages.fetch import FetchRequest
from protocol.waiting import step

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduled, Scheduler
    from broker.peers.peer import Peer
    from broker.replicas.replica_fetcher import ReplicaFetcher
    from protocol.errors import KafkaError
    from protocol.waiting import Waiting
    from protocol.wire.schema import Message


class ReplicaFetching:
    """Of one fetcher, through a peer that asks for no versions."""

    def __init__(
        self,
        fetcher: ReplicaFetcher,
        peer: Peer,
        scheduler: Scheduler,
        failed: Callable[[Exception], None],
    ) -> None:
        """`failed` is told why it goes on no more: a broken invariant. What the disk refuses costs a partition."""
        self._fetcher = fetcher
        self._peer = peer
        self._scheduler = scheduler
        self._failed = failed
        self._timer: Scheduled | None = None
        self._request: Message | None = None
        self._is_stopped = False
        fetcher.wake = self.wake

    def wake(self) -> None:
        """There may be something to ask: another partition is followed, or a new epoch."""
        if self._is_stopped or self._request is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            request = self._fetcher.request()
            wait_s = self._fetcher.wait_s() if request is None else None
        except MemoryError:
            request, wait_s = None, self._fetcher.backoff_s
        except Exception as error:
            self.stop()
            self._failed(error)
            return
        if request is None:
            self._wake_in(wait_s)
            return
        self._request = request
        version = FETCH_VERSION if isinstance(request, FetchRequest) else LIST_OFFSETS_VERSION
        try:
            self._peer.ask(request, self._answered, version=version)
        except MemoryError:
            self._request = None
            self._peer.forget()
            self._wake_in(self._fetcher.backoff_s)

    def stop(self) -> None:
        """Nothing is fetched any more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._peer.stop()

    def _wake_in(self, wait_s: float | None) -> None:
        if wait_s is not None:
            self._timer = self._scheduler.call_later(wait_s, self._wake_by_timer)

    def _wake_by_timer(self) -> None:
        self._timer = None
        self.wake()

    def _answered(self, answer: Message | KafkaError, steps: Waiting[None] | None = None) -> None:
        """As much of it as one turn takes, the rest in the next ones; nothing is asked before all of it is there."""
        self._timer = None
        try:
            if steps is None:
                steps = self._fetcher.answered(self._request, answer)  # type: ignore[arg-type]
            if step(steps):
                self._request = None
                self.wake()
            elif not self._is_stopped:
                self._timer = self._scheduler.call_soon(self._answered, answer, steps)
        except MemoryError:
            self._request = None
            self._wake_in(self._fetcher.backoff_s)  # what wasn't taken is asked for again
        except Exception as error:
            self.stop()
            self._failed(error)

"""Fetches of the metadata log that wait until there is more of it, or more of it is committed (`KafkaRaftClient`)."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from broker.environment.scheduler import TURN_S
from broker.network.later import Later
from protocol.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from broker.controller.quorum_requests import Fetched, QuorumRequests
    from broker.environment.scheduler import Clock, Scheduled, Scheduler

MOST_WAIT_MS = 30_000
"""Whatever is asked for: Kafka's observers ask for 500, and Kafka waits as long as is asked for."""


class _Waiting(NamedTuple):
    request: FetchRequest
    tells_endpoints: bool
    timer: Scheduled


class DelayedMetadataFetches:
    """Each that waits is its connection's only request, and goes with it, so that they are bounded."""

    def __init__(self, quorum: QuorumRequests, clock: Clock, scheduler: Scheduler) -> None:
        self._quorum = quorum
        self._clock = clock
        self._scheduler = scheduler
        self._waiting: dict[Later[FetchResponse], _Waiting] = {}
        self._to_look_at: deque[Later[FetchResponse]] = deque()
        self._turn: Scheduled | None = None
        self._has_more = False  # since it is looked

    def fetch(self, request: FetchRequest, *, tells_endpoints: bool) -> FetchResponse | Later[FetchResponse]:
        """The answer, at the latest after `max_wait_ms`; with where the leader is, if it `tells_endpoints`."""
        fetched = self._fetch(request, tells_endpoints)
        if not fetched.may_wait:
            return fetched.response
        later: Later[FetchResponse] = Later()
        wait_s = min(request.max_wait_ms, MOST_WAIT_MS) / 1000
        timer = self._scheduler.call_later(wait_s, self._answer_at_last, later)
        self._waiting[later] = _Waiting(request, tells_endpoints, timer)
        later.on_abandon = partial(self._forget, later)
        return later

    def progress(self) -> None:
        """The log has grown, or more of it is committed: in a later turn they are looked at."""
        if not self._waiting:
            return
        if self._turn is None:
            self._to_look_at.extend(self._waiting)
            self._turn = self._scheduler.call_soon(self._look)
        else:
            self._has_more = True

    def stop(self) -> None:
        """Nobody is answered any more."""
        for waiting in self._waiting.values():
            waiting.timer.cancel()
        self._waiting.clear()
        self._to_look_at.clear()
        self._has_more = False
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def _look(self) -> None:
        """In turns: what each is answered is read for it, 8 MiB at most."""
        self._turn = None
        until_s = self._clock.monotonic_s() + TURN_S
        while self._to_look_at:
            if self._clock.monotonic_s() > until_s:
                self._turn = self._scheduler.call_soon(self._look)
                return
            later = self._to_look_at.popleft()
            waiting = self._waiting.get(later)
            if waiting is None:
                continue
            self._answer(later, waiting, at_last=False)
        if self._has_more:
            self._has_more = False
            self.progress()

    def _answer_at_last(self, later: Later[FetchResponse]) -> None:
        waiting = self._waiting.get(later)
        if waiting is not None:
            self._answer(later, waiting, at_last=True)

    def _answer(self, later: Later[FetchResponse], waiting: _Waiting, *, at_last: bool) -> None:
        try:
            fetched = self._fetch(waiting.request, waiting.tells_endpoints)
        except Exception as error:
            self._forget(later)
            later.fail(error)
            return
        if at_last or not fetched.may_wait:
            self._forget(later)
            later.reply(fetched.response)

    def _fetch(self, request: FetchRequest, tells_endpoints: bool) -> Fetched:
        fetched = self._quorum.fetch(request, self._clock.now_ms())
        if not tells_endpoints:
            fetched.response.node_endpoints = []
        return fetched

    def _forget(self, later: Later[FetchResponse]) -> None:
        waiting = self._waiting.pop(later, None)
        if waiting is not None:
            waiting.timer.cancel()

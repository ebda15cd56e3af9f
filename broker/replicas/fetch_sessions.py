"""Incremental fetch sessions (KIP-227; Kafka: `FetchSession`, `FetchSessionCache`).

A session remembers what a consumer fetches, so that a request names only what changed and an answer lists only what
is news. Its state changes in exactly two places: `begin` takes over what the request says, `finish` what the answer
tells. A request with a wrong epoch changes nothing.

Of many partitions both go in turns of the loop. What a request says is put together beside the session, and taken over
in one turn, the last: a client that hangs up before has changed nothing. What an answer tells is taken over as it is
told; who hangs up during that begins anew, with a full request, since it doesn't know what it missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from broker.network.turns import PER_TURN, portions
from broker.replicas.fetch_targets import (
    FetchTarget,
    Key,
    Wanted,
    by_topic,
    drop_forgotten,
    parts_of,
    take_wanted,
)
from protocol.errors import Error
from protocol.waiting import turn

if TYPE_CHECKING:
    from protocol.messages.fetch import ForgottenTopic, PartitionData

SHARDS = (
    8  # FetchSession.NUM_CACHE_SHARDS: slots are divided among them, so fewer than 8 slots make no session
)
EVICTION_MS = 120_000  # FetchSession: min.incremental.fetch.session.eviction.ms
MAX_SESSION_ID = 2**31 - 1
MAX_SESSION_EPOCH = 2**31 - 1

MOST_SESSION_PARTITIONS = 250_000
"""Of all sessions together, whether there are such partitions or not: 60 to 140 MB, by the
length of names where each partition is of another topic."""

NO_SESSION = 0
INITIAL_SESSION_EPOCH = 0
FINAL_SESSION_EPOCH = -1

Answered = list[tuple["FetchTarget", "PartitionData"]]


class Session:
    """A fetch session: its partitions in the order in which they are read."""

    __slots__ = ("by_id", "created_ms", "epoch", "last_used_ms", "session_id", "targets")

    def __init__(self, session_id: int, by_id: bool, targets: dict[Key, FetchTarget], now_ms: int) -> None:
        self.session_id = session_id
        self.by_id = by_id
        self.targets = targets
        self.epoch = 1
        self.created_ms = now_ms
        self.last_used_ms = now_ms


class FetchPlan:
    """What one request fetches, and what becomes of its session."""

    __slots__ = ("by_id", "error", "of_new_session", "session", "targets")

    def __init__(
        self,
        targets: list[FetchTarget],
        *,
        by_id: bool,
        of_new_session: dict[Key, FetchTarget] | None = None,
        session: Session | None = None,
        error: Error = Error.NONE,
    ) -> None:
        self.targets = targets
        self.by_id = by_id
        self.of_new_session = of_new_session
        """The same targets, where a session is to be made of them."""
        self.session = session
        self.error = error


class FetchSessions:
    """The sessions of a broker, bounded by `max.incremental.fetch.session.cache.slots` and by their partitions."""

    def __init__(self, slots: int, random_id: Callable[[int, int], int]) -> None:
        """`random_id(low, high)` draws an int of [low, high)."""
        self._slots_per_shard = slots // SHARDS
        self._shards: list[dict[int, Session]] = [{} for _ in range(SHARDS)]
        self._range = MAX_SESSION_ID // SHARDS + 1  # of ids of a shard: each id has one
        self._random_id = random_id
        self._next_shard = 0
        self._partitions = 0
        """Of all sessions."""

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    def begin(
        self,
        *,
        session_id: int,
        session_epoch: int,
        by_id: bool,
        wanted: Wanted,
        forgotten: Sequence[ForgottenTopic],
        now_ms: int,
    ) -> FetchPlan:
        """Take over what a request says. An error of the plan is the whole answer."""
        if session_epoch in (INITIAL_SESSION_EPOCH, FINAL_SESSION_EPOCH):
            if session_id != NO_SESSION:
                self._remove(session_id)
            targets: dict[Key, FetchTarget] = {}
            may_be_kept = take_wanted(targets, wanted) and session_epoch == INITIAL_SESSION_EPOCH
            return FetchPlan(
                [*targets.values()], by_id=by_id, of_new_session=targets if may_be_kept else None
            )
        session = self._get(session_id)
        if session is None or session.epoch != session_epoch or session.by_id != by_id:
            return FetchPlan([], by_id=by_id, error=_refusal(session, session_epoch))
        targets = session.targets
        fits = True
        if wanted or forgotten:
            self._partitions -= len(targets)
            try:
                fits = take_wanted(targets, wanted)
                if forgotten:
                    drop_forgotten(targets, by_topic(forgotten, by_id))
            finally:
                self._partitions += len(targets)
        return self._go_on(session, fits, now_ms)

    async def begin_in_turns(
        self,
        *,
        session_id: int,
        session_epoch: int,
        by_id: bool,
        wanted: Wanted,
        forgotten: Sequence[ForgottenTopic],
        now_ms: int,
    ) -> FetchPlan:
        """As `begin`, of a request that names many partitions."""
        is_full = session_epoch in (INITIAL_SESSION_EPOCH, FINAL_SESSION_EPOCH)
        session = None
        targets: dict[Key, FetchTarget] = {}
        if is_full:
            self._remove(session_id)
        else:
            session = self._get(session_id)
            if session is None or session.epoch != session_epoch or session.by_id != by_id:
                return FetchPlan([], by_id=by_id, error=_refusal(session, session_epoch))
            targets = session.targets.copy()
        fits = True
        for some in parts_of(wanted):
            fits = take_wanted(targets, some, of_session=not is_full) and fits
            await turn()
        if session is not None:
            for gone in parts_of(by_topic(forgotten, by_id)):
                drop_forgotten(targets, gone)
                await turn()
        if session is None:
            may_be_kept = fits and session_epoch == INITIAL_SESSION_EPOCH
            return FetchPlan(
                [*targets.values()], by_id=by_id, of_new_session=targets if may_be_kept else None
            )
        now = self._get(session_id)
        if now is not session or now.epoch != session_epoch:  # another request was here meanwhile
            error = Error.FETCH_SESSION_ID_NOT_FOUND if now is not session else _refusal(now, session_epoch)
            return FetchPlan([], by_id=by_id, error=error)
        self._partitions += len(targets) - len(session.targets)
        session.targets = targets
        return self._go_on(session, fits, now_ms)

    def _go_on(self, session: Session, fits: bool, now_ms: int) -> FetchPlan:
        """With a session that has taken over what a request says."""
        targets = session.targets
        if not targets:
            self._remove(session.session_id)
            return FetchPlan([], by_id=session.by_id)
        session.epoch = 1 if session.epoch == MAX_SESSION_EPOCH else session.epoch + 1
        session.last_used_ms = now_ms
        if not fits or (
            self._partitions > MOST_SESSION_PARTITIONS
            and not self._make_room(0, len(targets), now_ms, session)
        ):
            self._remove(session.session_id)
            return FetchPlan([], by_id=session.by_id, error=Error.FETCH_SESSION_ID_NOT_FOUND)
        return FetchPlan([*targets.values()], by_id=session.by_id, session=session)

    def finish(self, plan: FetchPlan, answers: Answered, now_ms: int) -> tuple[int, Answered]:
        """The session id to answer with, and the partitions that the answer lists."""
        if plan.session is not None:
            return plan.session.session_id, _news(plan.session, answers)
        if plan.of_new_session is None:
            return NO_SESSION, answers
        for target, answer in answers:
            target.tell(answer)
        return self._create(plan.of_new_session, plan.by_id, now_ms), answers

    async def finish_in_turns(self, plan: FetchPlan, answers: Answered, now_ms: int) -> tuple[int, Answered]:
        """As `finish`, of many partitions."""
        session = plan.session
        if session is not None:
            news: Answered = []
            for some in portions(answers):
                news += _news(session, some)
                if len(some) == PER_TURN:
                    await turn()
            return session.session_id, news
        if plan.of_new_session is None:
            return NO_SESSION, answers
        for some in portions(answers):
            for target, answer in some:
                target.tell(answer)
            if len(some) == PER_TURN:
                await turn()
        return self._create(plan.of_new_session, plan.by_id, now_ms), answers

    def _get(self, session_id: int) -> Session | None:
        return self._shards[session_id // self._range].get(session_id) if session_id > 0 else None

    def _remove(self, session_id: int) -> None:
        session = self._get(session_id)
        if session is not None:
            del self._shards[session_id // self._range][session_id]
            self._partitions -= len(session.targets)

    def _create(self, targets: dict[Key, FetchTarget], by_id: bool, now_ms: int) -> int:
        number = self._next_shard
        self._next_shard = (number + 1) % SHARDS
        shard = self._shards[number]
        size = len(targets)
        evicted = None
        wanted = size
        if len(shard) >= self._slots_per_shard:
            evicted = next(_evictable([*shard.values()], size, now_ms), None)
            if evicted is None:
                return NO_SESSION
            wanted -= len(evicted.targets)
        if self._partitions + wanted > MOST_SESSION_PARTITIONS and not self._make_room(
            wanted, size, now_ms, evicted
        ):
            return NO_SESSION
        if evicted is not None:
            self._remove(evicted.session_id)
        low = max(1, number * self._range)
        session_id = self._random_id(low, low + self._range - 1)
        while session_id in shard:
            session_id = self._random_id(low, low + self._range - 1)
        shard[session_id] = Session(session_id, by_id, targets, now_ms)
        self._partitions += size
        return session_id

    def _make_room(self, wanted: int, size: int, now_ms: int, kept: Session | None = None) -> bool:
        """For so many more partitions of a session of this size: by the rules for a shard that is full, over all of
        them. None has to go where that isn't enough."""
        sessions = [each for shard in self._shards for each in shard.values() if each is not kept]
        excess = self._partitions + wanted - MOST_SESSION_PARTITIONS
        evicted = []
        for session in _evictable(sessions, size, now_ms):
            evicted.append(session)
            excess -= len(session.targets)
            if excess <= 0:
                break
        if excess > 0:
            return False
        for session in evicted:
            self._remove(session.session_id)
        return True


def _refusal(session: Session | None, session_epoch: int) -> Error:
    """What is wrong with a request of a session, which is there with another epoch or names topics otherwise."""
    if session is None:
        return Error.FETCH_SESSION_ID_NOT_FOUND
    if session.epoch != session_epoch:
        return Error.INVALID_FETCH_SESSION_EPOCH
    return Error.FETCH_SESSION_TOPIC_ID_ERROR


def _news(session: Session, answers: Sequence[tuple[FetchTarget, PartitionData]]) -> Answered:
    """Tell the session; what of it the answer lists."""
    news = []
    targets = session.targets
    for target, answer in answers:
        if not target.tell(answer):
            continue
        news.append((target, answer))
        if answer.records and (key := target.key) in targets:
            targets[key] = targets.pop(key)  # read last next time, so that none starves behind a busy one
    return news


def _evictable(sessions: list[Session], new_size: int, now_ms: int) -> Iterator[Session]:
    """Who may go, one after the other, where there is no room: the longest unused while they are stale, then old ones
    with no more partitions than the new one, the smallest first."""
    stale = [each for each in sessions if now_ms - each.last_used_ms > EVICTION_MS]
    yield from sorted(stale, key=lambda each: each.last_used_ms)
    old = [
        each
        for each in sessions
        if now_ms - each.last_used_ms <= EVICTION_MS
        and now_ms - each.created_ms > EVICTION_MS
        and len(each.targets) <= new_size
    ]
    yield from sorted(old, key=lambda each: (len(each.targets), each.session_id))

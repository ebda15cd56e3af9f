"""The partitions in a Fetch, and incremental fetch sessions (KIP-227; Kafka: `FetchSession`,
`FetchSessionCache`).

A session remembers what a consumer fetches. So a request names only changes, and an answer lists only news. A
session's state changes in exactly two places: `begin` applies the request, `finish` applies the answer. A
request with a wrong epoch changes nothing.

With many partitions, both work in turns of the loop. `begin` prepares the changes beside the session, and
applies them all in the last turn: if the client hangs up earlier, nothing has changed. `finish` applies the
answer piece by piece. A client that hangs up meanwhile starts afresh with a full request, since it doesn't
know what it missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from broker.controller.image import MAX_NAME_LENGTH
from broker.network.turns import PER_TURN, portions
from broker.replicas.replica_selector import NO_REPLICA
from protocol.errors import Error
from protocol.waiting import turn

if TYPE_CHECKING:
    from protocol.messages.fetch import FetchPartition, ForgottenTopic, PartitionData

SHARDS = 8  # FetchSession.NUM_CACHE_SHARDS: they share the slots, so fewer than 8 slots allow no session
EVICTION_MS = 120_000  # FetchSession: min.incremental.fetch.session.eviction.ms
MAX_SESSION_ID = 2**31 - 1
MAX_SESSION_EPOCH = 2**31 - 1

MOST_SESSION_PARTITIONS = 250_000
"""The most partitions of all sessions together, existing ones or not. They take 60 to 140 MB, depending on
the length of names, if each partition belongs to another topic."""

NO_SESSION = 0
INITIAL_SESSION_EPOCH = 0
FINAL_SESSION_EPOCH = -1

Answered = list[tuple["FetchTarget", "PartitionData"]]


# --- the partitions in a request ----------------------------------------------------------------------------

# The partition as the request names it: (topic name, index) or (topic id, index).
Key = tuple[str | bytes, int]

T = TypeVar("T")
ByTopic = Sequence[tuple[str | bytes, Sequence[T]]]
"""Items of a request, grouped by topic."""

Wanted = ByTopic["FetchPartition"]


class FetchTarget:
    """One fetched partition: what the client wants, and what the last answer said."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "log_start_offset",
        "partition_max_bytes",
        "told_high_watermark",
        "told_log_start_offset",
        "topic",
        "topic_name",
    )

    def __init__(self, topic: str | bytes, wanted: FetchPartition) -> None:
        self.topic = topic
        self.topic_name = topic if isinstance(topic, str) else ""  # for a topic id, set once it is known
        self.index = wanted.partition
        self.told_high_watermark = -1
        self.told_log_start_offset = -1
        self.fetch_offset = wanted.fetch_offset
        self.partition_max_bytes = wanted.partition_max_bytes
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.log_start_offset = wanted.log_start_offset  # of a follower that fetches

    @property
    def key(self) -> Key:
        return (self.topic, self.index)

    def update(self, wanted: FetchPartition) -> None:
        self.fetch_offset = wanted.fetch_offset
        self.partition_max_bytes = wanted.partition_max_bytes
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.log_start_offset = wanted.log_start_offset

    def updated(self, wanted: FetchPartition) -> FetchTarget:
        """Return a copy of this target that wants what the request says now."""
        target = FetchTarget(self.topic, wanted)
        target.topic_name = self.topic_name
        target.told_high_watermark = self.told_high_watermark
        target.told_log_start_offset = self.told_log_start_offset
        return target

    def is_news(self, answer: PartitionData) -> bool:
        """True if the client doesn't know yet what the answer says, or has to act on it (Kafka:
        `CachedPartition.maybeUpdateResponseData`).

        Everything that ends a fetch's wait has to be news. Otherwise the reader would ask for the same at
        once, and never learn why.
        """
        return (
            bool(answer.records)
            or answer.diverging_epoch is not None
            or answer.preferred_read_replica != NO_REPLICA
            or answer.high_watermark != self.told_high_watermark
            or answer.log_start_offset != self.told_log_start_offset
            or answer.error_code != 0
        )

    def tell(self, answer: PartitionData) -> bool:
        """Remember what the answer says. Returns True if it is news. After an error, the next answer is news
        again."""
        news = self.is_news(answer)
        self.told_high_watermark = -1 if answer.error_code != 0 else answer.high_watermark
        self.told_log_start_offset = answer.log_start_offset
        return news


def take_wanted(targets: dict[Key, FetchTarget], wanted: Wanted, *, of_session: bool = False) -> bool:
    """Apply the wanted partitions. If one is listed twice, the last entry counts, in the place of the first.

    With `of_session`, the existing targets belong to a session that must not change yet. Returns True if a
    session may hold the targets.
    """
    fits = True
    for topic, partitions in wanted:
        for partition in partitions:
            key = (topic, partition.partition)
            known = targets.get(key)
            if known is None:
                targets[key] = FetchTarget(topic, partition)
                fits = fits and len(topic) <= MAX_NAME_LENGTH  # no topic has a longer name
            elif of_session:
                targets[key] = known.updated(partition)
            else:
                known.update(partition)
    return fits


def drop_forgotten(targets: dict[Key, FetchTarget], forgotten: ByTopic[int]) -> None:
    for topic, indexes in forgotten:
        for index in indexes:
            targets.pop((topic, index), None)


def _are_many(wanted: Wanted, forgotten: Sequence[ForgottenTopic]) -> bool:
    """True if the request names more than one turn can handle."""
    named = len(wanted) + len(forgotten)
    for _, partitions in wanted:
        named += len(partitions)
    for gone in forgotten:
        named += len(gone.partitions)
    return named > PER_TURN


def parts_of(named: ByTopic[T]) -> Iterator[ByTopic[T]]:
    """Return the items in parts that one turn can handle."""
    some: list[tuple[str | bytes, Sequence[T]]] = []
    room = PER_TURN
    for topic, partitions in named:
        for part in portions(partitions):
            some.append((topic, part))
            room -= 1 + len(part)
            if room <= 0:
                yield some
                some, room = [], PER_TURN
    yield some


# --- sessions


class Session:
    """A fetch session. Its partitions are in the order of reading."""

    __slots__ = ("by_id", "counted", "created_ms", "epoch", "last_used_ms", "session_id", "targets")

    def __init__(self, session_id: int, by_id: bool, targets: dict[Key, FetchTarget], now_ms: int) -> None:
        self.session_id = session_id
        self.by_id = by_id
        self.targets = targets
        self.counted = len(targets)  # counted among the partitions of all sessions
        self.epoch = 1
        self.created_ms = now_ms
        self.last_used_ms = now_ms


class FetchPlan:
    """What a request fetches, and the session it belongs to."""

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
        """The same targets, if a session should be created for them."""
        self.session = session
        self.error = error


class FetchSessions:
    """The sessions of a broker. `max.incremental.fetch.session.cache.slots` and the number of partitions
    limit them."""

    def __init__(self, slots: int, random_id: Callable[[int, int], int]) -> None:
        """`random_id(low, high)` draws an int of [low, high)."""
        self._slots_per_shard = slots // SHARDS
        self._shards: list[dict[int, Session]] = [{} for _ in range(SHARDS)]
        self._range = MAX_SESSION_ID // SHARDS + 1  # how many ids each shard has
        self._random_id = random_id
        self._next_shard = 0
        self._partitions = 0
        """The partitions of all sessions."""

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    async def begin(
        self,
        *,
        session_id: int,
        session_epoch: int,
        by_id: bool,
        wanted: Wanted,
        forgotten: Sequence[ForgottenTopic],
        now_ms: Callable[[], int],
    ) -> FetchPlan:
        """Apply a request. If the plan has an error, that is the whole answer."""
        is_full = session_epoch in (INITIAL_SESSION_EPOCH, FINAL_SESSION_EPOCH)
        has_one = len(wanted) == 1 and len(wanted[0][1]) == 1 and not forgotten  # as most requests do
        is_long = not has_one and _are_many(wanted, forgotten)
        session = None
        targets: dict[Key, FetchTarget] = {}
        if is_full:
            if session_id != NO_SESSION:
                self._remove(session_id)
        else:
            session = self._get(session_id)
            if session is None or session.epoch != session_epoch or session.by_id != by_id:
                return FetchPlan([], by_id=by_id, error=_refusal(session, session_epoch))
            targets = session.targets.copy() if is_long else session.targets
        fits = True
        for some in parts_of(wanted) if is_long else (wanted,):
            fits = take_wanted(targets, some, of_session=is_long and not is_full) and fits
            if is_long:
                await turn()
        if session is None:
            may_be_kept = fits and session_epoch == INITIAL_SESSION_EPOCH
            return FetchPlan(
                [*targets.values()], by_id=by_id, of_new_session=targets if may_be_kept else None
            )
        if forgotten:
            gone = [(each.topic_id if by_id else each.topic, each.partitions) for each in forgotten]
            for part in parts_of(gone) if is_long else (gone,):
                drop_forgotten(targets, part)
                if is_long:
                    await turn()
        if is_long:
            now = self._get(session_id)
            if now is not session or now.epoch != session_epoch:  # another request came meanwhile
                error = (
                    Error.FETCH_SESSION_ID_NOT_FOUND if now is not session else _refusal(now, session_epoch)
                )
                return FetchPlan([], by_id=by_id, error=error)
            session.targets = targets
        return self._go_on(session, fits, now_ms())

    def _go_on(self, session: Session, fits: bool, now_ms: int) -> FetchPlan:
        """Continue a session that has applied a request."""
        targets = session.targets
        self._partitions += len(targets) - session.counted
        session.counted = len(targets)
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

    async def finish(
        self, plan: FetchPlan, answers: Answered, now_ms: Callable[[], int]
    ) -> tuple[int, Answered]:
        """Return the session id for the answer, and the partitions that the answer lists."""
        session = plan.session
        if session is None and plan.of_new_session is None:
            return NO_SESSION, answers
        news: Answered = []
        for some in portions(answers):
            for target, answer in some:
                if not target.tell(answer) or session is None:
                    continue
                news.append((target, answer))
                if answer.records and (key := target.key) in session.targets:
                    # read last next time, so that a busy partition doesn't starve others
                    session.targets[key] = session.targets.pop(key)
            if len(some) == PER_TURN:
                await turn()
        if session is not None:
            return session.session_id, news
        assert plan.of_new_session is not None
        return self._create(plan.of_new_session, plan.by_id, now_ms()), answers

    def _get(self, session_id: int) -> Session | None:
        return self._shards[session_id // self._range].get(session_id) if session_id > 0 else None

    def _remove(self, session_id: int) -> None:
        session = self._get(session_id)
        if session is not None:
            del self._shards[session_id // self._range][session_id]
            self._partitions -= session.counted

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
            wanted -= evicted.counted
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
        """Make room for so many more partitions of a session of this size. Evicts as a full shard would, but
        over all shards. Evicts nothing if that wouldn't be enough."""
        sessions = [each for shard in self._shards for each in shard.values() if each is not kept]
        excess = self._partitions + wanted - MOST_SESSION_PARTITIONS
        evicted = []
        for session in _evictable(sessions, size, now_ms):
            evicted.append(session)
            excess -= session.counted
            if excess <= 0:
                break
        if excess > 0:
            return False
        for session in evicted:
            self._remove(session.session_id)
        return True


def _refusal(session: Session | None, session_epoch: int) -> Error:
    """Return what is wrong with a request: its session is missing, has another epoch, or names topics the
    other way."""
    if session is None:
        return Error.FETCH_SESSION_ID_NOT_FOUND
    if session.epoch != session_epoch:
        return Error.INVALID_FETCH_SESSION_EPOCH
    return Error.FETCH_SESSION_TOPIC_ID_ERROR


def _evictable(sessions: list[Session], new_size: int, now_ms: int) -> Iterator[Session]:
    """Return the sessions that may be evicted, in order: stale ones, longest unused first; then old ones with
    no more partitions than the new one, smallest first."""
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

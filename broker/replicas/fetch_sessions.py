"""Incremental fetch sessions (KIP-227; Kafka: `FetchSession`, `FetchSessionCache`).

A session remembers what a consumer fetches, so that a request names only what changed and an answer lists only what
is news. Its state changes in exactly two places: `begin` takes over what the request says, `finish` what the answer
tells. A request with a wrong epoch changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from protocol.errors import Error

if TYPE_CHECKING:
    from protocol.messages.fetch import FetchPartition, ForgottenTopic, PartitionData

SHARDS = (
    8  # FetchSession.NUM_CACHE_SHARDS: slots are divided among them, so fewer than 8 slots make no session
)
EVICTION_MS = 120_000  # FetchSession: min.incremental.fetch.session.eviction.ms
MAX_SESSION_ID = 2**31 - 1
MAX_SESSION_EPOCH = 2**31 - 1

NO_SESSION = 0
INITIAL_SESSION_EPOCH = 0
FINAL_SESSION_EPOCH = -1

# A partition is known by what the request names it by: (topic name, index) or (topic id, index).
Key = tuple[str | bytes, int]


class FetchTarget:
    """One partition that is fetched: what the client wants, and what it was last told of it."""

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
        self.topic_name = topic if isinstance(topic, str) else ""  # of a topic id once it is known
        self.index = wanted.partition
        self.told_high_watermark = -1
        self.told_log_start_offset = -1
        self.update(wanted)

    @property
    def key(self) -> Key:
        return (self.topic, self.index)

    def update(self, wanted: FetchPartition) -> None:
        self.fetch_offset = wanted.fetch_offset
        self.partition_max_bytes = wanted.partition_max_bytes
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.log_start_offset = wanted.log_start_offset  # of a follower that fetches

    def is_news(self, answer: PartitionData) -> bool:
        """Whether the client doesn't know yet what the answer says."""
        return (
            bool(answer.records)
            or answer.diverging_epoch is not None
            or answer.high_watermark != self.told_high_watermark
            or answer.log_start_offset != self.told_log_start_offset
            or answer.error_code != 0
        )

    def tell(self, answer: PartitionData) -> bool:
        """Remember what the answer says; whether it is news. After an error a partition is news once more."""
        news = self.is_news(answer)
        self.told_high_watermark = -1 if answer.error_code != 0 else answer.high_watermark
        self.told_log_start_offset = answer.log_start_offset
        return news


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

    __slots__ = ("by_id", "create", "error", "session", "targets")

    def __init__(
        self,
        targets: list[FetchTarget],
        *,
        by_id: bool,
        create: bool = False,
        session: Session | None = None,
        error: Error = Error.NONE,
    ) -> None:
        self.targets = targets
        self.by_id = by_id
        self.create = create
        self.session = session
        self.error = error


class FetchSessions:
    """The sessions of a broker, bounded by `max.incremental.fetch.session.cache.slots`."""

    def __init__(self, slots: int, random_id: Callable[[int, int], int]) -> None:
        """`random_id(low, high)` draws an int of [low, high)."""
        self._slots_per_shard = slots // SHARDS
        self._shards: list[dict[int, Session]] = [{} for _ in range(SHARDS)]
        self._range = MAX_SESSION_ID // SHARDS
        self._random_id = random_id
        self._next_shard = 0

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    def begin(
        self,
        *,
        session_id: int,
        session_epoch: int,
        by_id: bool,
        wanted: Iterable[tuple[str | bytes, Sequence[FetchPartition]]],
        forgotten: Iterable[ForgottenTopic],
        now_ms: int,
    ) -> FetchPlan:
        """Take over what a request says. An error of the plan is the whole answer."""
        if session_epoch in (INITIAL_SESSION_EPOCH, FINAL_SESSION_EPOCH):
            if session_id != NO_SESSION:
                self._remove(session_id)
            targets = [*_targets(wanted).values()]
            return FetchPlan(targets, by_id=by_id, create=session_epoch == INITIAL_SESSION_EPOCH)
        session = self._get(session_id)
        if session is None:
            return FetchPlan([], by_id=by_id, error=Error.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != session_epoch:
            return FetchPlan([], by_id=by_id, error=Error.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            return FetchPlan([], by_id=by_id, error=Error.FETCH_SESSION_TOPIC_ID_ERROR)
        self._update(session, wanted, forgotten)
        if not session.targets:
            self._remove(session_id)
            return FetchPlan([], by_id=by_id)
        session.epoch = 1 if session.epoch == MAX_SESSION_EPOCH else session.epoch + 1
        session.last_used_ms = now_ms
        return FetchPlan([*session.targets.values()], by_id=by_id, session=session)

    def finish(
        self, plan: FetchPlan, answers: list[tuple[FetchTarget, PartitionData]], now_ms: int
    ) -> tuple[int, list[tuple[FetchTarget, PartitionData]]]:
        """The session id to answer with, and the partitions that the answer lists."""
        session = plan.session
        if session is not None:
            news = []
            for target, answer in answers:
                if not target.tell(answer):
                    continue
                news.append((target, answer))
                if answer.records and target.key in session.targets:
                    # Read last next time, so that none starves behind a busy one.
                    session.targets[target.key] = session.targets.pop(target.key)
            return session.session_id, news
        if not plan.create:
            return NO_SESSION, answers
        for target, answer in answers:
            target.tell(answer)
        return self._create(plan, now_ms), answers

    def _update(
        self,
        session: Session,
        wanted: Iterable[tuple[str | bytes, Sequence[FetchPartition]]],
        forgotten: Iterable[ForgottenTopic],
    ) -> None:
        for topic, partitions in wanted:
            for partition in partitions:
                known = session.targets.get((topic, partition.partition))
                if known is None:
                    session.targets[topic, partition.partition] = FetchTarget(topic, partition)
                else:
                    known.update(partition)
        for gone in forgotten:
            for index in gone.partitions:
                session.targets.pop((gone.topic_id if session.by_id else gone.topic, index), None)

    def _shard_of(self, session_id: int) -> dict[int, Session]:
        return self._shards[min(session_id // self._range, SHARDS - 1)]

    def _get(self, session_id: int) -> Session | None:
        return self._shard_of(session_id).get(session_id) if session_id > 0 else None

    def _remove(self, session_id: int) -> None:
        if session_id > 0:
            self._shard_of(session_id).pop(session_id, None)

    def _create(self, plan: FetchPlan, now_ms: int) -> int:
        number = self._next_shard
        self._next_shard = (number + 1) % SHARDS
        shard = self._shards[number]
        if len(shard) >= self._slots_per_shard and not _evict_one(shard, len(plan.targets), now_ms):
            return NO_SESSION
        low = max(1, number * self._range)
        session_id = self._random_id(low, low + self._range - 1)
        while session_id in shard:
            session_id = self._random_id(low, low + self._range - 1)
        targets = {target.key: target for target in plan.targets}
        shard[session_id] = Session(session_id, plan.by_id, targets, now_ms)
        return session_id


def _targets(wanted: Iterable[tuple[str | bytes, Sequence[FetchPartition]]]) -> dict[Key, FetchTarget]:
    """Partitions by key; of one listed twice the last entry counts, at the place of the first."""
    targets: dict[Key, FetchTarget] = {}
    for topic, partitions in wanted:
        for partition in partitions:
            targets[topic, partition.partition] = FetchTarget(topic, partition)
    return targets


def _evict_one(shard: dict[int, Session], new_size: int, now_ms: int) -> bool:
    """Make room: the longest unused if it is stale, else an old one with no more partitions than the new one."""
    if not shard:
        return False
    stalest = min(shard.values(), key=lambda session: session.last_used_ms)
    if now_ms - stalest.last_used_ms > EVICTION_MS:
        del shard[stalest.session_id]
        return True
    old = [session for session in shard.values() if now_ms - session.created_ms > EVICTION_MS]
    if not old:
        return False
    smallest = min(old, key=lambda session: (len(session.targets), session.session_id))
    if len(smallest.targets) > new_size:
        return False
    del shard[smallest.session_id]
    return True

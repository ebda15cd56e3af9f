"""The share partitions of this broker: those of the partitions that it leads (Kafka:
`SharePartitionManager`).

A share partition is created when a fetch first wants it. It is dropped once this broker doesn't lead the
partition any more, the share coordinator knows better, or no member of the group has a session left. Then its
durable state is read again when needed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, TypeVar

from broker.config.group_config import group_number, group_values
from broker.controller.broker_records import has_dead_letter_queues
from broker.controller.image import GROUP_RESOURCE
from broker.network.turns import Lines, in_line
from broker.replicas.leader import Leader
from broker.replicas.replica import WaitingFetches
from broker.replicas.searches_by_time import search_by_time
from broker.shares.dead_letters import TOPIC_NAME, DeadLetterQueues
from broker.shares.share_session_cache import SessionKey, ShareKey, ShareSession, ShareSessionCache
from coordinator.share_partition.ports import ShareSettings, bury_nothing
from coordinator.share_partition.share_partition import SharePartition
from protocol.errors import Error, KafkaError, stops_the_broker
from protocol.waiting import Later, Pause, Waiting, begun, turn
from storage.log.log_config import LONG_MAX

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.controller.image import ClusterImage
    from broker.environment.scheduler import Clock
    from broker.network.turns import Turns
    from broker.replicas.partition import Partition
    from broker.replicas.partitions import Partitions
    from coordinator.commit_waiters import CommitWaiter
    from coordinator.persister import Persister
    from coordinator.share_partition.ports import ShareRuntime
    from protocol.messages.share_fetch import AcknowledgementBatch


# --- The settings by which a share group's records are delivered (Kafka: `ShareGroupConfigProvider`) --------

_DURATION = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:[.,](\d{0,9}))?S)?)?", re.IGNORECASE | re.ASCII
)


def share_settings(
    config: BrokerConfig, overrides: Mapping[str, str], *, has_dead_letters: bool = False
) -> ShareSettings:
    """Return the group's own settings, within the broker's bounds, or the broker's. `has_dead_letters` is
    True if the cluster has dead letter queues."""
    if not overrides:  # the usual case, and each fetch asks several times
        return ShareSettings(
            record_lock_duration_ms=config.get_int("group.share.record.lock.duration.ms"),
            delivery_count_limit=config.get_int("group.share.delivery.count.limit"),
            partition_max_record_locks=config.get_int("group.share.partition.max.record.locks"),
        )
    values = group_values(config, overrides)
    return ShareSettings(
        record_lock_duration_ms=group_number(values, "share.record.lock.duration.ms"),
        delivery_count_limit=group_number(values, "share.delivery.count.limit"),
        partition_max_record_locks=group_number(values, "share.partition.max.record.locks"),
        renew_acknowledge_enable=bool(values["share.renew.acknowledge.enable"]),
        auto_offset_reset=str(values["share.auto.offset.reset"]),
        read_committed=values["share.isolation.level"] == "read_committed",
        dead_letter_topic=str(values[TOPIC_NAME]) if has_dead_letters else "",
    )


def duration_ms(text: str) -> int:
    """Parse PnDTnHnMn.nS like Java's Duration. Fractions of a millisecond are cut off."""
    found = _DURATION.fullmatch(text)
    assert found is not None, f"{text} is legal where it is set"
    days, hours, minutes, seconds = (int(group or 0) for group in found.groups()[:4])
    fraction = int((found.group(5) or "").ljust(9, "0")[:9])
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction // 1_000_000


# --------------------------------------------------------------------------------------------------------------
# Where a share group begins in a partition that it has no state of (Kafka: `ShareFetchUtils.offsetFor…`).

_BY_DURATION = "by_duration:"


async def find_reset_offset(partition: Partition, reset: str, clock: Clock) -> int | KafkaError:
    """Find the offset by `share.auto.offset.reset`. Errors: NOT_LEADER_OR_FOLLOWER, OFFSET_NOT_AVAILABLE,
    KAFKA_STORAGE_ERROR."""
    role, log = partition.role, partition.log
    if not isinstance(role, Leader):
        return KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
    if reset == "earliest":
        return log.log_start_offset
    if reset == "latest":
        return KafkaError(Error.OFFSET_NOT_AVAILABLE) if role.high_watermark_lags else log.high_watermark
    since_ms = clock.now_ms() - duration_ms(reset.removeprefix(_BY_DURATION))
    try:
        found = await search_by_time(log, since_ms)
    except KafkaError as error:
        return error.as_value()
    if found is not None and found.offset < partition.log.high_watermark:
        return found.offset
    named = f"{partition.topic.topic_id_text}:{partition.topic.name}-{partition.index}"
    return KafkaError(
        Error.OFFSET_NOT_AVAILABLE, f"Offset for timestamp {since_ms} not found for topic partition: {named}"
    )


# --- One member's requests to many share partitions ---------------------------------------------------------
# These are acknowledgements, and the release of records when a session ends. With many share partitions, they
# take several turns of the loop, and others are served in between. That is like Kafka, which locks one share
# partition after the other. Each share partition is asked in one call. So another member's fetch, an expiring
# lock or the end of the leadership sees it before or after, never in between. A member's own requests all
# wait in one line; in Kafka, the connection's thread does that. So when a session ends, nothing is released
# before earlier acknowledgements are done, and a new session acquires nothing that the old one would then
# release.

A = TypeVar("A")

MOST_ASKED_IN_PASSING = 100
"""The share partitions to ask in one turn of the loop. Each takes some 60 µs, mostly for a write. There are
fewer if the turn was already long."""


class MemberLines:
    """The members' lines. `over` is called with a group when something in one of its lines is done."""

    def __init__(self, turn_is_over: Callable[[], bool], over: Callable[[str], None]) -> None:
        """`turn_is_over` returns True if the current turn of the loop has been long enough."""
        self._turn_is_over = turn_is_over
        self._over = over
        self._lines: dict[str, Lines[str]] = {}  # by group, then by member
        self._left: Lines[object] = {}  # by `left_by`

    def has_any(self, group_id: str) -> bool:
        """True while something of the group is in progress."""
        return group_id in self._lines

    async def ask_each(
        self,
        member: SessionKey,
        keys: Collection[ShareKey],
        ask: Callable[[ShareKey], None],
        *,
        left_by: object = None,
    ) -> None:
        """Call `ask` with each share partition. All calls are in this one if they fit into a turn and the
        member has nothing ahead. It runs to its end even if the client hangs up.

        `left_by` identifies an ended connection: requests with the same one run one at a time.
        """
        steps = self._asking_each(keys, ask)
        if left_by is not None:
            steps = in_line(self._left, left_by, steps)
        await self._in_line(member, steps)

    async def _asking_each(self, keys: Collection[ShareKey], ask: Callable[[ShareKey], None]) -> None:
        in_this_turn = 0
        for key in [*keys]:
            if in_this_turn == MOST_ASKED_IN_PASSING or self._turn_is_over():
                await turn()
                in_this_turn = 0
            ask(key)
            in_this_turn += 1

    def behind(self, member: SessionKey, steps: Waiting[A]) -> Waiting[A]:
        """Run the steps after everything that the member has requested before."""
        return self._in_line(member, steps) if member[1] in self._lines.get(member[0], ()) else steps

    async def _in_line(self, member: SessionKey, steps: Waiting[A]) -> A:
        group_id, member_id = member
        of_group = self._lines.setdefault(group_id, {})
        try:
            return await in_line(of_group, member_id, steps)
        finally:
            if not of_group:
                self._lines.pop(group_id, None)  # it may be gone if everything was given up
            self._over(group_id)


# --------------------------------------------------------------------------------------------------------------

log = logging.getLogger("barnabas.shares")

MANY_SHARE_PARTITIONS = 10_000
"""With so many, those of groups without any session are dropped, even if no connection has ended."""

DROPPED_BY = frozenset(
    {
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.FENCED_STATE_EPOCH,
        Error.GROUP_ID_NOT_FOUND,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Write errors after which the durable state is read again."""

AcknowledgedPartitions = dict[ShareKey, KafkaError | None]

QUIET_S = 10.0
"""How long to wait between log lines about failed writes that nobody waits for: an expired lock may cause
hundreds."""


class UnwrittenStates:
    """Logs failed writes of members' states that no member learns of: expired locks, and records that have
    reached their dead letter queue. The state stays valid in memory, until the next leader reads what was
    written."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._told_s = -QUIET_S
        self._untold = 0

    def tell(self, group_id: str, named: str, error: KafkaError) -> None:
        now_s = self._monotonic_s()
        if now_s - self._told_s < QUIET_S:
            self._untold += 1
            return
        before = f" ({self._untold} more since the last such line)" if self._untold else ""
        self._told_s, self._untold = now_s, 0
        log.warning("share partition %s of %s: can't write a state: %s%s", named, group_id, error, before)


class LedSharePartition:
    """A share partition, its partition, and the fetches that wait for it."""

    __slots__ = ("is_unused", "leader", "loss", "partition", "share", "waiting")

    def __init__(self, partition: Partition, leader: Leader) -> None:
        self.partition = partition
        self.leader = leader
        self.waiting = WaitingFetches()
        self.share: SharePartition
        self.loss: CommitWaiter | None = None
        self.is_unused = False
        """True if it is to be dropped once its dead letters are buried."""

    @property
    def is_led(self) -> bool:
        """True if the partition is still what it was when this was created."""
        return not self.partition.is_gone and self.partition.role is self.leader


class SharePartitionManager:
    """All share partitions, by group and partition, and all share sessions. What a session holds ends with
    it."""

    def __init__(
        self,
        partitions: Partitions,
        persister: Persister,
        timers: ShareRuntime,
        clock: Clock,
        share_settings_of: Callable[[str], ShareSettings],
        most_sessions: int,
        carry_out: Callable[[Waiting[None]], None],
        turn_is_over: Callable[[], bool],
        dead_letters: DeadLetterQueues | None = None,
    ) -> None:
        """`carry_out` runs steps that nobody waits for to their end, in turns. `turn_is_over` is as in
        MemberLines."""
        self._dead_letters = dead_letters
        self.sessions = ShareSessionCache(most_sessions, self._sessions_lost, self.forget)
        self.lines = MemberLines(turn_is_over, self._out_of_line)
        self._given_back_of: set[str] = set()
        """Groups to forget once their releases are done."""
        self._is_dropping_unused = False
        self.looking: Lines[str] = {}
        """By group: the fetches of many share partitions, see `DelayedShareFetch`."""
        self.settings_of = share_settings_of
        self._partitions = partitions
        self._persister = persister
        self._timers = timers
        self._clock = clock
        self.carry_out = carry_out
        self._turn_is_over = turn_is_over
        self._groups: dict[str, dict[ShareKey, LedSharePartition]] = {}
        self._count = 0
        self._unwritten = UnwrittenStates(clock.monotonic_s)

    def __len__(self) -> int:
        return self._count

    # --- finding --------------------------------------------------------------------------------------------

    def find(self, group_id: str, key: ShareKey) -> LedSharePartition | None:
        """Find a share partition. None if no member of the group has fetched the partition here yet."""
        led = self._groups.get(group_id, {}).get(key)
        if led is not None and not led.is_led:
            self.drop(led)
            return None
        return led

    def get(self, group_id: str, key: ShareKey) -> LedSharePartition:
        """Find or create a share partition. Raises KafkaError if this broker doesn't lead the partition:
        NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR."""
        led = self.find(group_id, key)
        if led is not None:
            return led
        topic = self._partitions.by_id.get(key[0])
        if topic is None:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
        partition = self._partitions.get(topic.name, key[1])
        leader = partition.leader()
        if self._count >= MANY_SHARE_PARTITIONS and not self._is_dropping_unused:
            self.carry_out(self._dropping_unused())
        led = LedSharePartition(partition, leader)
        queues = self._dead_letters
        led.share = SharePartition(
            group_id,
            key[0],
            key[1],
            leader.leader_epoch,
            runtime=self._timers,
            persister=self._persister,
            settings=partial(self.settings_of, group_id),
            reset_offset=partial(self._reset_offset, group_id, partition),
            changed=partial(self._moved, led),
            bury=bury_nothing if queues is None else partial(queues.bury, led),
            refused=partial(self._drop_where_told, led),
            unwritten=partial(self._unwritten.tell, group_id, _named(led)),
        )
        self._groups.setdefault(group_id, {})[key] = led
        self._count += 1
        led.loss = leader.when_committed(LONG_MAX, partial(self._no_longer_led, led))
        return led

    def _reset_offset(self, group_id: str, partition: Partition) -> Waiting[int | KafkaError]:
        return find_reset_offset(partition, self.settings_of(group_id).auto_offset_reset, self._clock)

    # --- dropping -------------------------------------------------------------------------------------------

    def _no_longer_led(self, led: LedSharePartition, error: KafkaError | None) -> None:
        """Drop it: nothing is ever committed at the largest offset, so the leadership has ended."""
        led.loss = None
        self.drop(led)

    def drop(self, led: LedSharePartition) -> None:
        """Drop a share partition and wake those who wait for it. The next fetch creates a new one. Does
        nothing if it was already dropped."""
        share = led.share
        key = (share.topic_id, share.partition)
        of_group = self._groups.get(share.group_id, {})
        if of_group.get(key) is not led:
            return
        del of_group[key]
        if not of_group:
            del self._groups[share.group_id]
        self._count -= 1
        share.fence()
        if led.loss is not None:
            led.leader.wait_no_more(led.loss)
            led.loss = None
        self.wake(led)

    def _drop_where_told(self, led: LedSharePartition, error: KafkaError) -> None:
        """Drop it if the error means that another node knows better."""
        if error.error in DROPPED_BY:
            log.info("dropping share partition %s of %s: %s", _named(led), led.share.group_id, error)
            self.drop(led)

    def forget(self, group_ids: Sequence[str]) -> None:
        """Drop the share partitions of groups without sessions here, after pending releases. If a member
        comes back meanwhile, the rest stays."""
        self._given_back_of.update(filter(self.lines.has_any, group_ids))
        self.carry_out(self._forgetting(group_ids))

    async def _forgetting(self, group_ids: Sequence[str]) -> None:
        for group_id in group_ids:
            for led in [*self._groups.get(group_id, {}).values()]:
                if self._turn_is_over() and not self._is_used(group_id):
                    await turn()
                if self._is_used(group_id):
                    break
                if led.share.burying:
                    led.is_unused = True  # otherwise what is in its line would reach the queue a second time
                else:
                    self.drop(led)

    def _is_used(self, group_id: str) -> bool:
        return self.sessions.has_any(group_id) or self.lines.has_any(group_id)

    def _out_of_line(self, group_id: str) -> None:
        if group_id in self._given_back_of and not self.lines.has_any(group_id):
            self._given_back_of.discard(group_id)
            self.forget([group_id])

    async def forget_all(self) -> None:
        """End all sessions without releasing anything: share groups aren't served any more. (Kafka:
        `onShareVersionToggle`.)"""
        self.sessions.clear()
        pause = Pause()
        for of_group in [*self._groups.values()]:
            for led in [*of_group.values()]:
                self.drop(led)
                if pause.is_due():
                    await turn()

    async def _dropping_unused(self) -> None:
        self._is_dropping_unused = True
        try:
            await self._forgetting([*self._groups])
        finally:
            self._is_dropping_unused = False

    # --- waking ---------------------------------------------------------------------------------------------

    def _moved(self, led: LedSharePartition) -> None:
        self.wake(led)
        if led.is_unused and not led.share.burying:
            led.is_unused = False
            if not self._is_used(led.share.group_id):
                self.drop(led)

    def wake(self, led: LedSharePartition) -> None:
        """Wake the fetches that wait for it: they may find something."""
        led.waiting.wake()

    # --- acknowledging --------------------------------------------------------------------------------------

    async def acknowledge(
        self, group_id: str, member_id: str, batches: Mapping[ShareKey, Sequence[AcknowledgementBatch]]
    ) -> AcknowledgedPartitions:
        """Acknowledge records. Returns each share partition's error, or None."""
        return await self._of_each(
            group_id, member_id, batches, lambda led, key: led.share.acknowledge(member_id, batches[key])
        )

    def release(
        self, group_id: str, member_id: str, keys: Collection[ShareKey], *, left_by: object = None
    ) -> None:
        """Release everything that the member holds of these. Nobody waits for it: what can't be written stays
        with the member until its lock expires. `left_by` is as in `MemberLines`."""

        async def release_each() -> None:
            await self._of_each(
                group_id, member_id, keys, lambda led, _: led.share.release(member_id), left_by=left_by
            )

        self.carry_out(release_each())

    async def _of_each(
        self,
        group_id: str,
        member_id: str,
        keys: Collection[ShareKey],
        ask: Callable[[LedSharePartition, ShareKey], Waiting[KafkaError | None]],
        *,
        left_by: object = None,
    ) -> AcknowledgedPartitions:
        asked: dict[ShareKey, Later[KafkaError | None]] = {}

        def ask_one(key: ShareKey) -> None:
            asked[key] = begun(self._ask_one(group_id, key, ask))

        await self.lines.ask_each((group_id, member_id), keys, ask_one, left_by=left_by)
        return {key: await later for key, later in asked.items()}

    async def _ask_one(
        self,
        group_id: str,
        key: ShareKey,
        ask: Callable[[LedSharePartition, ShareKey], Waiting[KafkaError | None]],
    ) -> KafkaError | None:
        led = self.find(group_id, key)
        if led is None:
            return KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN)
        try:
            return await ask(led, key)
        except Exception as error:
            # The others still have to be asked and answered.
            if stops_the_broker(error):
                raise
            log.error("a request to share partition %s of %s failed", _named(led), group_id, exc_info=error)
            return KafkaError(Error.UNKNOWN_SERVER_ERROR)

    # --- sessions -------------------------------------------------------------------------------------------

    def end_session(self, group_id: str, member_id: str) -> None:
        """End a session with the member's last request. What it has acquired is released, and nobody waits
        for that. Does nothing if the session has already ended."""
        session = self.sessions.remove((group_id, member_id))
        if session is not None:
            self.release(group_id, member_id, session.partitions)

    def _sessions_lost(self, sessions: Iterable[ShareSession]) -> None:
        """Release what the sessions of an ended connection hold; there may be thousands. As many as one turn
        takes are released at once, then one in each turn. All enter their members' lines at once, ahead of
        later requests."""
        self.carry_out(self._giving_back(sessions, left_by=object()))

    async def _giving_back(self, sessions: Iterable[ShareSession], left_by: object) -> None:
        for session in sessions:
            group_id, member_id = session.key
            self.release(group_id, member_id, session.partitions, left_by=left_by)


def manager_of(
    config: BrokerConfig,
    image: ClusterImage,
    partitions: Partitions,
    persister: Persister,
    timers: ShareRuntime,
    clock: Clock,
    turns: Turns,
    failed: Callable[[BaseException], None],
    dead_letters: DeadLetterQueues | None = None,
) -> SharePartitionManager:
    """Return a node's manager, which goes by the settings of the cluster's groups. `failed` gets broken
    invariants."""

    @lru_cache(100)  # each fetch asks several times
    def own_settings(
        generation: int, has_queues: bool, overrides: tuple[tuple[str, str], ...]
    ) -> ShareSettings:
        return share_settings(config, dict(overrides), has_dead_letters=has_queues)

    def settings_of(group_id: str) -> ShareSettings:
        overrides = image.configs.get((GROUP_RESOURCE, group_id), {})
        return own_settings(config.generation, has_dead_letter_queues(image), tuple(overrides.items()))

    def carry_out(steps: Waiting[None]) -> None:
        turns.carry_out(steps, failed)

    most_sessions = config.get_int("group.share.max.share.sessions")
    return SharePartitionManager(
        partitions,
        persister,
        timers,
        clock,
        settings_of,
        most_sessions,
        carry_out,
        lambda: turns.is_over,
        dead_letters,
    )


_UNKNOWN = "This server does not host this topic-partition."


def _named(led: LedSharePartition) -> str:
    return f"{led.partition.topic.name}-{led.partition.index}"

"""Consumers that are members of a group. They commit what they are assigned, under their identity, and come and go.

They don't read: a position in a partition is a number that grows. What a member may believe is compared with what the
others were told; see `GroupWork` and `Commits`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from protocol.errors import Error
from tests.simulation.groups import GroupWork, Life
from tests.simulation.offsets import commit_offset, fetch_offset
from tests.simulation.producers import CommittingProducer
from tests.simulation.wire_client import NoAnswer, WireClient
from tests.simulation.work import Place

SESSION_TIMEOUT_MS = 3_000
REBALANCE_TIMEOUT_MS = 4_000
"""Longer than a session: a member removed by either no longer had a session."""
HEARTBEAT_S = 0.8
PAUSE_S = 0.35

SETTINGS = (
    "group.min.session.timeout.ms=1000",
    "group.initial.rebalance.delay.ms=200",
    "group.consumer.min.session.timeout.ms=1000",
    f"group.consumer.session.timeout.ms={SESSION_TIMEOUT_MS}",
    "group.consumer.min.heartbeat.interval.ms=100",
    f"group.consumer.heartbeat.interval.ms={HEARTBEAT_S * 1000:.0f}",
    "group.streams.min.session.timeout.ms=1000",
    f"group.streams.session.timeout.ms={SESSION_TIMEOUT_MS}",
    "group.streams.min.heartbeat.interval.ms=100",
    f"group.streams.heartbeat.interval.ms={HEARTBEAT_S * 1000:.0f}",
    "group.streams.num.standby.replicas=1",
)

PUT_OUT = frozenset({Error.UNKNOWN_MEMBER_ID, Error.FENCED_MEMBER_EPOCH})
"""The errors that tell a member about its session's end."""


class Member(ABC):
    """One consumer at a time. When it has gone, another one takes its place."""

    def __init__(
        self, make_client: Callable[[str], WireClient], name: str, group: GroupWork, instance_id: str | None
    ) -> None:
        """`instance_id` is that of a static member."""
        self.client = make_client(name)
        self._make_client = make_client
        self.luck = self.client.luck
        self.group = group
        self.work = group.work
        self._producer = CommittingProducer(self.client, group.work, group.name)
        self._in_transactions = self.luck.choice((0, 0.2, 1))
        """How likely a commit is in a transaction."""
        self.instance_id = instance_id
        self.is_calm = False
        """True when nobody leaves any more."""
        self.is_retired = False
        """True when nobody replaces it any more."""
        self.is_quiet = False
        """True when nobody commits any more either."""
        self.commits_under_way = 0
        self.life = Life(0, instance_id)
        group.members += 1
        self._next_heartbeat_s = 0.0
        self._late = 0
        self._ghosts: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        try:
            while True:
                await asyncio.sleep(self.luck.uniform(0, 2))
                self.life = Life(self.life.number + 1, self.instance_id)
                self.hurry()
                self.begin()
                try:
                    await self._live()
                except NoAnswer:
                    # what is in flight arrives before the next one comes
                    await self.client.wait_out()
                self.life.is_over = True
                self.life.gives_up_all()
                self.client.close()
                if self.group.members > 1 and not self.is_calm and self.luck.random() < 0.15:
                    self.client.note("retires")
                    self.group.members -= 1
                    self.is_retired = True
                    break
            # those who are still at work
            await asyncio.gather(*self._ghosts)
        finally:
            for ghost in self._ghosts:
                ghost.cancel()

    async def _live(self) -> None:
        """Live until it leaves, or goes silently. Raises NoAnswer."""
        while True:
            try:
                await self.tend()
                await self._commit_something()
            except NoAnswer:
                await self.client.wait_out()
                self.lost_an_answer()
            await asyncio.sleep(min(self.luck.expovariate(1 / PAUSE_S), HEARTBEAT_S))
            fate = self.luck.random()
            if self.is_calm or fate > 0.09:
                continue
            if fate < 0.03:
                self._go_silently()
                return
            if fate < 0.06:
                self.work.count("members that left")
                self.life.gives_up_all()
                self.life.is_over = True
                await self.leave()
                return
            self.client.note("is away")
            self._leave_commits_behind()
            await asyncio.sleep(SESSION_TIMEOUT_MS / 1000 * self.luck.uniform(0.3, 2))

    def _go_silently(self) -> None:
        self.client.note("goes without a word")
        self.work.count("members that fell silent")
        self._leave_commits_behind()

    def _leave_commits_behind(self) -> None:
        """Send its commits late, as if it were only slow and not gone."""
        life = self.life
        if not life.owned:
            return
        self._late += 1
        client = self._make_client(f"{self.client.name}'s ghost {self._late}")
        ghost = asyncio.get_running_loop().create_task(self._commit_late(client, life, {**life.owned}))
        self._ghosts.add(ghost)
        ghost.add_done_callback(self._ghosts.discard)

    async def _commit_late(self, client: WireClient, life: Life, owned: dict[Place, int | None]) -> None:
        epoch = life.epoch
        producer = CommittingProducer(client, self.work, self.group.name)
        for place, position in owned.items():
            await asyncio.sleep(self.luck.uniform(0.1, 4))
            if self.is_calm:
                break
            try:
                await self._commit(producer, life, epoch, place, (position or 0) + 1)
            except NoAnswer:
                continue
        client.close()

    def complain_unless_two(self, what: str) -> None:
        self.group.complain_unless_two(self.life, what)

    def now_s(self) -> float:
        return self.client.now_s()

    def is_due(self) -> bool:
        """Return True if it is time for a heartbeat."""
        if self.now_s() < self._next_heartbeat_s:
            return False
        self._next_heartbeat_s = self.now_s() + HEARTBEAT_S
        return True

    def hurry(self) -> None:
        """Send the next heartbeat at once."""
        self._next_heartbeat_s = 0.0

    def was_heard(self, sent_s: float) -> None:
        """Note that a request sent then was answered: its session began again after it."""
        self.life.lease_s = max(self.life.lease_s, sent_s + SESSION_TIMEOUT_MS / 1000)

    def was_put_out(self, error: Error) -> None:
        """Note that it was told it is no longer a member."""
        self.work.count("members that were put out")
        if self.now_s() < self.life.lease_s:
            self.complain_unless_two(
                f"is put out by {error!r}, and its session goes until {self.life.lease_s:.6f}"
            )
        self.life.lease_s = -1.0

    # --- its partitions ---------------------------------------------------------------------------------------------

    def told(self, places: Iterable[Place]) -> None:
        """Note that it owns these from now on."""
        life = self.life
        places = sorted(places)
        self.client.note(f"owns {places} in {life.epoch}")
        life.owned = {place: life.owned.get(place) for place in places}
        life.held.update(places)
        self.group.given(life, places, self.now_s())

    async def _commit_something(self) -> None:
        life = self.life
        for place in [*life.owned]:
            if place in life.owned and life.owned[place] is None:
                await self._begin_at_committed(place)
        known = [place for place, position in life.owned.items() if position is not None]
        if not known or self.is_quiet or self.luck.random() < 0.4:
            return
        place = self.luck.choice(known)
        if self.luck.random() < 0.1:
            life.owned[place] = None
            return
        position = (life.owned[place] or 0) + self.luck.randint(1, 9)
        life.owned[place] = position
        error = await self._commit(self._producer, life, life.epoch, place, position)
        if error is not Error.NONE:
            self.refused(error)

    async def _begin_at_committed(self, place: Place) -> None:
        life = self.life
        error, offset, _ = await fetch_offset(
            self.client, self.work, self.group.name, place, self.as_reader_of_offsets()
        )
        if error is Error.NONE and place in life.owned:
            life.owned[place] = max(offset, 0)
        elif error in PUT_OUT:
            self.refused(error)

    async def _commit(
        self, producer: CommittingProducer, life: Life, epoch: int, place: Place, offset: int
    ) -> Error:
        """Raises NoAnswer."""
        self.commits_under_way += 1
        try:
            return await self._commit_now(producer, life, epoch, place, offset)
        finally:
            self.commits_under_way -= 1

    async def _commit_now(
        self, producer: CommittingProducer, life: Life, epoch: int, place: Place, offset: int
    ) -> Error:
        group, client = self.group, producer.client
        must_not = self.must_not_commit(life, epoch, place)
        # in calm times don't begin a transaction that could stay open until it times out
        in_transaction = not self.is_calm and self.luck.random() < self._in_transactions
        commits = group.commits(place)
        commit = commits.begin(offset, client.now_s(), client.name, in_transaction=in_transaction)
        member = (life.member_id, epoch, life.instance_id)
        if in_transaction:
            error = await producer.commit(place, commit, member)
        else:
            error = await commit_offset(client, group.name, place, commit, member)
        client.note(f"{life.name} in {epoch} commits {offset} for {place}: {error!r}")
        if error is Error.NONE:
            self.work.count("commits of members")
            if must_not:
                group.complain(life, f"commits {place} in {epoch}, though {must_not}")
        else:
            self.work.count("commits of members that were refused")
        return error

    # --- by protocol ------------------------------------------------------------------------------------------------

    @abstractmethod
    def must_not_commit(self, life: Life, epoch: int, place: Place) -> str:
        """Return why a commit sent now must be refused, or "" if it may be accepted."""

    @abstractmethod
    def begin(self) -> None:
        """Begin as a consumer that nobody knows."""

    @abstractmethod
    async def tend(self) -> None:
        """Join, or send a heartbeat if one is due. Raises NoAnswer."""

    @abstractmethod
    async def leave(self) -> None:
        """Leave the group. Raises NoAnswer."""

    @abstractmethod
    def refused(self, error: Error) -> None:
        """Handle a refused commit."""

    @abstractmethod
    def lost_an_answer(self) -> None:
        """Handle a lost answer: the last request may have been served or not."""

    @abstractmethod
    def as_reader_of_offsets(self) -> tuple[str | None, int]:
        """Return member id and epoch for an OffsetFetch."""

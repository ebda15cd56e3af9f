"""A share consumer. It joins, fetches, and does anything that is allowed with the records that it gets, or nothing."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from coordinator.share_partition.states import AcknowledgeType
from protocol.errors import Error
from protocol.messages.groups_share import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.simulation.members import HEARTBEAT_S, PUT_OUT, SESSION_TIMEOUT_MS
from tests.simulation.shares.share_session import Group, Kinds, ShareSession
from tests.simulation.wire_client import NoAnswer, WireClient
from tests.simulation.work import Place, Work

if TYPE_CHECKING:
    import random

LEAVES = -1
PAUSES_S = (0.1, 0.2, 0.2, 0.6)
"""Average times between two turns. Locks of slow members expire now and then."""
MOST_WAIT_MS = 400

ACCEPT, RELEASE, REJECT, RENEW, GAP = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.RENEW,
    AcknowledgeType.GAP,
)


class Leaders(ABC):
    """The leaders of partitions as one member knows them, and its clients for them."""

    @abstractmethod
    async def leader_of(self, place: Place) -> str:
        """Return the name of the leading broker. Raises NoAnswer."""

    @abstractmethod
    def client_at(self, broker: str) -> WireClient:
        """Return a new client, for one share session."""

    @abstractmethod
    def forget(self) -> None:
        """Forget the leaders that proved wrong."""


class ShareMember:
    """One consumer at a time. When it has gone, another one takes its place."""

    def __init__(self, client: WireClient, leaders: Leaders, group: Group, work: Work) -> None:
        self.client = client
        self.group = group
        self.work = work
        self.is_calm = False
        """True when nobody leaves any more, and everything is accepted."""
        self.member_id = ""
        self.epoch = 0
        self._leaders = leaders
        self._luck: random.Random = client.luck
        self._pause_s = self._luck.choice(PAUSES_S)
        self._lives = 0
        self.assigned: list[Place] = []
        self._next_heartbeat_s = 0.0
        self._says_all = False
        self._sessions: dict[str, ShareSession] = {}
        self._left_open: list[ShareSession] = []

    @property
    def holds_anything(self) -> bool:
        return any(of_place for session in self._sessions.values() for of_place in session.hand.values())

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._luck.uniform(0, 2))
            self._lives += 1
            self.member_id = f"{self.client.name}-{self._lives}"
            self.epoch = 0
            self.assigned = []
            self._sessions = {}
            self._next_heartbeat_s = 0.0
            await self._live()
            self.client.close()

    # --- a life ---------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        while True:
            await self._take_a_turn()
            await asyncio.sleep(min(self._luck.expovariate(1 / self._pause_s), 2 * HEARTBEAT_S))
            if self.is_calm:
                self._end_what_is_left()
                continue
            fate = self._luck.random()
            if fate < 0.01:
                self._go_silently()
                return
            if fate < 0.02:
                await self._leave()
                return
            if fate < 0.035:
                self.client.note("is away")
                self.work.count("share members that stood still")
                await asyncio.sleep(SESSION_TIMEOUT_MS / 1000 * self._luck.uniform(0.3, 2))
            elif fate < 0.05:
                await self._end_sessions()

    async def _take_a_turn(self) -> None:
        try:
            await self._heartbeat()
        except NoAnswer:
            self._next_heartbeat_s = 0.0
            self._says_all = True  # as Java's client does; otherwise it isn't told again what it has
        by_broker: dict[str, list[Place]] = {}
        try:
            for place in self.assigned:
                by_broker.setdefault(await self._leaders.leader_of(place), []).append(place)
        except NoAnswer:
            return
        for broker in sorted({*by_broker, *self._sessions}):
            session = self._sessions.get(broker)
            if session is None:
                session = self._sessions[broker] = self._session_at(broker)
            try:
                await self._use(session, by_broker.get(broker, []))
            except NoAnswer:
                self._leaders.forget()
            if session.finds_no_leader:
                self._leaders.forget()

    def _session_at(self, broker: str) -> ShareSession:
        client = self._leaders.client_at(broker)
        return ShareSession(self.group, self.member_id, broker, client, {})

    async def _use(self, session: ShareSession, places: list[Place]) -> None:
        """Raises NoAnswer."""
        kinds = self._kinds(session)
        if not session.is_open:
            if self._luck.random() < 0.5:
                session.hand.clear()  # as Java's client does; what stays may be its own or not
            kinds = {}
        alone = kinds and self._luck.random() < 0.4
        if alone:
            await self._acknowledged(session, kinds, session.acknowledge(kinds))
            kinds = {}
        if places or kinds:
            wait_ms = self._luck.choice((0, MOST_WAIT_MS))
            if not session.is_open:
                kinds = {}
            await self._acknowledged(session, kinds, session.fetch(places, kinds, max_wait_ms=wait_ms))

    async def _acknowledged(self, session: ShareSession, kinds: Kinds, asking: object) -> None:
        """Acknowledge offsets, and remove them from the hand, whatever the outcome. Some stay and are acknowledged
        again."""
        try:
            await asking  # type: ignore[misc]
        finally:
            for place, of_place in kinds.items():
                for offset, kind in of_place.items():
                    if kind != RENEW and (self.is_calm or self._luck.random() < 0.97):
                        session.lets_go(place, offset)

    def _kinds(self, session: ShareSession) -> Kinds:
        """Choose which of its offsets to acknowledge, and how."""
        luck = self._luck
        share = 1.0 if self.is_calm else luck.choice((0, 0.3, 1, 1))
        likes = luck.choice(
            ((ACCEPT,), (ACCEPT, RELEASE, REJECT), (RELEASE,), (ACCEPT, RENEW), (ACCEPT, ACCEPT, GAP))
        )
        kinds: Kinds = {}
        for place, hand in sorted(session.hand.items()):
            of_place = {}
            for offset, delivery in sorted(hand.items()):
                if luck.random() < share:
                    is_gap = delivery.value is None and luck.random() < 0.5
                    kind = GAP if is_gap else ACCEPT if self.is_calm else luck.choice(likes)
                    of_place[offset] = int(kind)
            if not self.is_calm and luck.random() < 0.05:
                of_place |= self._of_others(session, place)
            if of_place:
                kinds[place] = of_place
        return kinds

    def _of_others(self, session: ShareSession, place: Place) -> dict[int, int]:
        """Return offsets that it once held. By now they are done, or another member's, or refused with their
        neighbours."""
        past, hand = session.past.get(place, {}), session.hand.get(place, {})
        offsets = [offset for offset in sorted(past) if offset not in hand]
        found = self._luck.sample(offsets, min(len(offsets), self._luck.randint(1, 3)))
        self.work.count("acknowledgements of what one doesn't hold", len(found))
        return {offset: int(self._luck.choice((ACCEPT, RELEASE))) for offset in found}

    # --- membership -----------------------------------------------------------------------------------------

    async def _heartbeat(self) -> None:
        """Raises NoAnswer."""
        now_s = self.client.now_s()
        if now_s < self._next_heartbeat_s:
            return
        self._next_heartbeat_s = now_s + HEARTBEAT_S
        request = ShareGroupHeartbeatRequest(
            group_id=self.group.name, member_id=self.member_id, member_epoch=self.epoch
        )
        if self.epoch == 0 or self._says_all:
            request.subscribed_topic_names = self.group.topics
        answer: ShareGroupHeartbeatResponse = await self.client.ask(request, 1)
        error = Error(answer.error_code)
        if error is not Error.NONE:
            self.client.note(f"{self.member_id} in {self.epoch}: {error!r}")
            if error in PUT_OUT or error is Error.GROUP_ID_NOT_FOUND:
                self.work.count("share members that were put out")
                self.epoch = 0
            self._next_heartbeat_s = now_s
            return
        self._says_all = False
        if self.epoch == 0:
            self.work.count("share members that joined")
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.assigned = [
                self.group.place(topic.topic_id, index)
                for topic in answer.assignment.topic_partitions
                for index in topic.partitions
            ]
            self.client.note(f"is assigned {self.assigned} in {self.epoch}")

    # --- ends -----------------------------------------------------------------------------------------------

    def _go_silently(self) -> None:
        """Leave without a request. The connections end, or stay open for a long time."""
        self.client.note("goes without a word")
        self.work.count("share members that fell silent")
        for session in self._sessions.values():
            if self._luck.random() < 0.5:
                session.close()
            else:
                self._left_open.append(session)

    async def _leave(self) -> None:
        self.work.count("share members that left")
        await self._end_sessions()
        request = ShareGroupHeartbeatRequest(
            group_id=self.group.name, member_id=self.member_id, member_epoch=LEAVES
        )
        try:
            await self.client.ask(request, 1)
        except NoAnswer:
            self.client.note("has left without an answer")

    async def _end_sessions(self) -> None:
        """End each session with a last request, or by closing its connection."""
        for session in self._sessions.values():
            kinds = self._kinds(session)
            try:
                if session.is_open and self._luck.random() < 0.8:
                    await session.acknowledge(kinds, final=True)
                    self.work.count("share sessions ended")
            except NoAnswer:
                pass
            session.hand.clear()
            if self._luck.random() < 0.5:
                session.close()

    def _end_what_is_left(self) -> None:
        """Close the connections of members that have gone."""
        for session in self._left_open:
            session.close()
        self._left_open.clear()

"""What clients do, whatever happens meanwhile to their broker or brokers."""

from __future__ import annotations

import asyncio
import traceback
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

from protocol.errors import Error
from protocol.messages.metadata import FindCoordinatorRequest
from tests.simulation.classic_member import ClassicMember
from tests.simulation.consumer_member import ConsumerMember
from tests.simulation.groups import GroupWork
from tests.simulation.history import History
from tests.simulation.machine import World
from tests.simulation.members import Member
from tests.simulation.offsets import Committer, OffsetReader
from tests.simulation.producers import IdempotentProducer, TransactionalProducer
from tests.simulation.reader import Reader
from tests.simulation.shares.dead_letters import noted_where_given_up
from tests.simulation.shares.share_work import ShareWork
from tests.simulation.streams_member import StreamsMember
from tests.simulation.topics import create_topic, topic_ids
from tests.simulation.virtual_files import MachineDied
from tests.simulation.virtual_loop import VirtualLoop
from tests.simulation.wire_client import WireClient
from tests.simulation.work import MOST_TRANSACTIONAL, PLACES, Work

LONGEST_S = 600.0


@dataclass
class Result:
    """`deaths`: how machines died."""

    seed: int
    history: History
    anomalies: list[str]
    work: Work
    deaths: Enum
    virtual_s: float


class Amounts(NamedTuple):
    """How much each kind of client has to do: from and to."""

    batches: tuple[int, int] = (5, 25)
    transactions: tuple[int, int] = (3, 12)
    commits: tuple[int, int] = (5, 20)


class Course(ABC):
    replication_factor = 1
    amounts = Amounts()
    streams = 0.0
    """How likely there is a Kafka Streams group beside the others."""

    def __init__(self, loop: VirtualLoop, seed: int, work: Work) -> None:
        self.loop = loop
        self.world = World(loop, seed)
        self.luck = self.world.luck("course")
        self.work = work
        self.members: list[Member] = []
        self.shares: ShareWork | None = None
        """The share groups' work, if there are any."""
        self._belonging: list[asyncio.Task[None]] = []

    # --- what depends on the brokers ------------------------------------------------------------------------

    @abstractmethod
    def client(self, name: str) -> WireClient:
        """Return a new client."""

    @abstractmethod
    async def start_again(self) -> None:
        """Let all die and start without losing anything."""

    # --- from beginning to end ------------------------------------------------------------------------------

    def result(self, deaths: Enum) -> Result:
        """Return the result at the end."""
        world, work = self.world, self.work
        return Result(world.seed, world.history, work.anomalies, work, deaths, self.loop.time())

    async def run_through(self, course: Coroutine[Any, Any, None]) -> None:
        """Run the course, and turn everything that goes wrong into a complaint."""
        self.loop.set_exception_handler(self._uncaught)
        with noted_where_given_up() as given_up:
            if self.shares is not None:
                self.shares.given_up = given_up
            try:
                await course
            except Exception:
                self.work.complain(traceback.format_exc(limit=-6))

    def _uncaught(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not isinstance(error, MachineDied):
            self.work.complain(f"uncaught: {context.get('message')}: {error!r}")

    async def prepare(self, topic_settings: Mapping[str, Mapping[str, str]]) -> None:
        """Create topics, coordinators and groups."""
        admin = self.client("admin")
        for topic in dict.fromkeys(topic for topic, _ in PLACES):
            partitions = 1 + max(index for name, index in PLACES if name == topic)
            configs = topic_settings.get(topic, MappingProxyType({}))
            await create_topic(admin, topic, partitions, configs, self.replication_factor)
        for key, key_type in (("group-x", 0), ("producer-x", 1)):

            async def find(key: str = key, key_type: int = key_type) -> Error:
                answer = await admin.ask(FindCoordinatorRequest(key=key, key_type=key_type), 3)
                return Error(answer.error_code)

            assert await admin.insist(find) is Error.NONE
        self.members = self._groups_of(await topic_ids(admin, [*dict.fromkeys(topic for topic, _ in PLACES)]))
        admin.close()
        if self.shares is not None:
            await self.shares.prepare()

    def _groups_of(self, ids: dict[str, bytes]) -> list[Member]:
        luck = self.luck
        if self.shares is not None and luck.random() < 0.7:
            return []
        kinds: tuple[type[Member], ...] = luck.choice(
            ((ClassicMember,), (ConsumerMember,), (ClassicMember, ConsumerMember))
        )
        of_streams = self.world.luck("streams")
        if of_streams.random() < self.streams:
            kinds = (*kinds, StreamsMember)
        members: list[Member] = []
        for kind in kinds:
            name = f"{kind.__name__}s"
            group = self._group(name, ids)
            luck = of_streams if kind is StreamsMember else self.luck
            for number in range(luck.randint(1, 3)):
                instance_id = f"instance-{number}" if luck.random() < 0.4 else None
                members.append(kind(self.client, f"{name}-{number}", group, instance_id))
        return members

    def _group(self, name: str, ids: dict[str, bytes]) -> GroupWork:
        return GroupWork(self.work, name, PLACES, ids)

    def group_names(self) -> list[str]:
        """Return the names of groups with members."""
        return [*dict.fromkeys(member.group.name for member in self.members)]

    async def work_amid(self, faults: Coroutine[Any, Any, None]) -> None:
        """Return when all workers have done their work. Groups go on until `end_groups`."""
        readers = self._readers()
        watching = [reader.run() for reader in (*readers, OffsetReader(self.client("watcher"), self.work))]
        reading = [self.loop.create_task(each) for each in watching]
        belonging = [member.run() for member in self.members]
        if self.shares is not None:
            belonging += self.shares.belonging()
        self._belonging = [self.loop.create_task(each) for each in belonging]
        working = [self.loop.create_task(work) for work in self._working()]
        failing = self.loop.create_task(faults)
        _, late = await asyncio.wait(working, timeout=LONGEST_S)
        for _ in late:
            self.work.complain("a client doesn't come to its end")
        await end([*reading, *late])
        await self._end_faults(failing)
        for task in (*working, failing):
            if not task.cancelled() and task.exception() is not None:
                raise task.exception()  # type: ignore[misc]

    async def _end_faults(self, failing: asyncio.Task[None]) -> None:
        await end([failing])

    def _readers(self) -> list[Reader]:
        return [Reader(self.client(f"reader-{i}"), self.work, place) for i, place in enumerate(PLACES)]

    def _working(self) -> list[Coroutine[Any, Any, None]]:
        luck, work, amounts = self.luck, self.work, self.amounts
        working: list[Coroutine[Any, Any, None]] = []
        for number in range(luck.randint(1, 2)):
            idempotent = IdempotentProducer(self.client(f"idempotent-{number}"), work, PLACES)
            working.append(idempotent.run(luck.randint(*amounts.batches)))
        for number in range(luck.randint(1, MOST_TRANSACTIONAL)):
            transactional = TransactionalProducer(
                self.client(f"transactional-{number}"),
                work,
                PLACES,
                version=luck.choice((1, 2)),
                group=f"group-of-{number}",
            )
            working.append(transactional.run(luck.randint(*amounts.transactions)))
        committer = Committer(self.client("committer"), work, PLACES[0], "group-of-committer")
        working.append(committer.run(luck.randint(*amounts.commits)))
        if self.shares is not None:
            working += self.shares.working()
        return working

    def calm_down(self) -> None:
        """Stop all faults; nobody joins or leaves any more."""
        self.world.network.is_calm = True
        for member in self.members:
            member.is_calm = True
        if self.shares is not None:
            self.shares.calm_down()

    async def end_groups(self) -> None:
        await end(self._belonging)
        for task in self._belonging:
            if not task.cancelled() and task.exception() is not None:
                raise task.exception()  # type: ignore[misc]


async def end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

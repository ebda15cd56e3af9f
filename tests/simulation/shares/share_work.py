"""Share groups beside everything else that clients do, and what must be true of them at the end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from protocol.errors import Error
from protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from protocol.messages.groups_share import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    ShareGroupDescribeRequest,
)
from tests.simulation.members import HEARTBEAT_S, SESSION_TIMEOUT_MS
from tests.simulation.producers import IdempotentProducer, TransactionalProducer
from tests.simulation.reader import Reader
from tests.simulation.shares.dead_letters import PARTITIONS, Queue
from tests.simulation.shares.deleter import Deleter
from tests.simulation.shares.deliveries import Deliveries
from tests.simulation.shares.share_member import Leaders, ShareMember
from tests.simulation.shares.share_session import Group
from tests.simulation.topics import create_topic, topic_ids
from tests.simulation.wire_client import WireClient
from tests.simulation.work import PLACES, Place, Work

if TYPE_CHECKING:
    from broker.shares.share_partition_manager import LedSharePartition
    from tests.simulation.course import Course

GROUP_RESOURCE = 32
TICKETS: tuple[Place, ...] = (("tickets", 0), ("tickets", 1))
"""Beside the partitions that others read, too. Their records are deleted now and then."""
SETTLED_WITHIN_S = 60.0


def share_settings(luck: random.Random, partitions: int = 2) -> list[str]:
    """Return settings for brokers. `partitions`: those of `__share_group_state`."""
    return [
        "group.share.min.session.timeout.ms=1000",
        f"group.share.session.timeout.ms={SESSION_TIMEOUT_MS}",
        "group.share.min.heartbeat.interval.ms=100",
        f"group.share.heartbeat.interval.ms={HEARTBEAT_S * 1000:.0f}",
        "group.share.min.record.lock.duration.ms=1000",
        f"group.share.initialize.retry.interval.ms={luck.choice((3000, 30000))}",
        f"group.share.assignment.interval.ms={luck.choice((0, 1000))}",
        f"share.coordinator.state.topic.num.partitions={partitions}",
        f"share.coordinator.snapshot.update.records.per.snapshot={luck.choice((0, 3, 500))}",
        f"share.coordinator.state.topic.prune.interval.ms={luck.choice((2000, 300000))}",
        f"share.coordinator.cold.partition.snapshot.interval.ms={luck.choice((3000, 300000))}",
    ]


class ShareWork:
    """`term_of`, `leads`: see `Group`. `leaders`: a member's, by its name."""

    def __init__(
        self,
        course: Course,
        leaders: Callable[[str], Leaders],
        term_of: Callable[[str, str, Place], LedSharePartition | None],
        leads: Callable[[str, Place], bool],
        ids: dict[str, bytes],
    ) -> None:
        """`ids` will have those of all topics."""
        self.course = course
        self.ids = ids
        self.groups: list[Group] = []
        self.members: list[ShareMember] = []
        self._luck = course.world.luck("shares")
        self._leaders = leaders
        self._term_of = term_of
        self._leads = leads
        work = course.work
        self.tickets = Work(
            may_lose=work.may_lose,
            is_refused_now_and_then=work.is_refused_now_and_then,
            anomalies=work.anomalies,
            counts=work.counts,
        )
        self._deleter = Deleter(course.client("deleter"), TICKETS)
        self._committed: set[str] = set()
        """Groups that read only committed records."""
        self._everything: dict[Place, dict[int, bytes]] = {}
        self._told: dict[str, Any] = {}
        """Each group's description once everything had settled."""
        self._is_stable: dict[Place, dict[int, bytes]] = {}
        self.queues: list[Queue] = []
        self._of_queues = course.world.luck("dead letters")
        self.given_up: set[tuple[str, Place]] = set()
        """By group, the partitions with dead letters that were given up."""

    # --- at work --------------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        luck, admin = self._luck, self.course.client("share admin")
        await create_topic(admin, TICKETS[0][0], len(TICKETS), {}, self.course.replication_factor)
        names = [*dict.fromkeys(topic for topic, _ in (*PLACES, *TICKETS))]
        self.ids |= await topic_ids(admin, names)
        for number in range(luck.randint(1, 2)):
            topics = luck.choice((["tickets"], ["orders", "bills"], names))
            self.groups.append(await self._group(admin, f"shares-{number}", topics))
        for group in self.groups:
            for number in range(luck.randint(1, 3)):
                name = f"{group.name}-member-{number}"
                member = ShareMember(self.course.client(name), self._leaders(name), group, self.course.work)
                self.members.append(member)
        admin.close()

    async def _group(self, admin: WireClient, name: str, topics: list[str]) -> Group:
        luck = self._luck
        lock_ms, limit = luck.choice((1000, 1500, 3000)), luck.choice((2, 3, 5, 10))
        reset = luck.choice(("earliest", "earliest", "latest", "by_duration:PT24H"))
        if "tickets" in topics and reset.startswith("by_duration"):
            # A search by time ends below the log's start until retention has deleted that segment, as in Kafka.
            reset = "earliest"
        isolation = luck.choice(("read_uncommitted", "read_committed"))
        settings = {
            "share.auto.offset.reset": reset,
            "share.isolation.level": isolation,
            "share.delivery.count.limit": str(limit),
            "share.record.lock.duration.ms": str(lock_ms),
            "share.partition.max.record.locks": str(luck.choice((100, 2000))),
        }
        if isolation == "read_committed":
            self._committed.add(name)
        queue = await self._queue(admin, name)
        if queue is not None:
            settings |= {
                "errors.deadletterqueue.topic.name": queue,
                "errors.deadletterqueue.copy.record.enable": self._of_queues.choice(("true", "false")),
            }
        configs = [
            IncrementalAlterableConfig(name=key, config_operation=0, value=value)
            for key, value in settings.items()
        ]
        resource = IncrementalAlterConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=name, configs=configs
        )

        async def alter() -> Error:
            answer = await admin.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
            return Error(answer.responses[0].error_code)

        assert await admin.insist(alter) is Error.NONE
        admin.note(f"{name} of {topics}: {settings}")
        deliveries = Deliveries(
            name,
            lock_s=lock_ms / 1000,
            limit=limit,
            is_latest=reset == "latest",
            may_lose=self.course.work.may_lose,
        )
        if queue is not None:
            copies = settings["errors.deadletterqueue.copy.record.enable"] == "true"
            self.queues.append(Queue(queue, deliveries, copies))
        ids = {topic: self.ids[topic] for topic in topics}
        return Group(name, topics, ids, deliveries, self._term_of, self._leads)

    async def _queue(self, admin: WireClient, group: str) -> str | None:
        """Return the topic for records that the group rejects, if it has one."""
        if self._of_queues.random() < 0.3:
            return None
        name = f"dlq.{group}"
        configs = {"errors.deadletterqueue.group.enable": "true"}
        if self._of_queues.random() < 0.3:
            configs["max.message.bytes"] = "1500"  # a few per batch
        await create_topic(admin, name, PARTITIONS, configs, self.course.replication_factor)
        return name

    def working(self) -> list[Coroutine[Any, Any, None]]:
        luck, course, amounts = self._luck, self.course, self.course.amounts
        idempotent = IdempotentProducer(course.client("of-tickets"), self.tickets, TICKETS)
        transactional = TransactionalProducer(
            course.client("tickets-transactional"),
            self.tickets,
            TICKETS,
            version=luck.choice((1, 2)),
            group="group-of-tickets",
        )
        return [
            idempotent.run(luck.randint(*amounts.batches)),
            transactional.run(luck.randint(*amounts.transactions)),
            self._deleter.run(luck.choice((0, 1, 4))),
        ]

    def belonging(self) -> list[Coroutine[Any, Any, None]]:
        return [member.run() for member in self.members]

    def calm_down(self) -> None:
        for member in self.members:
            member.is_calm = True

    # --- at the end -----------------------------------------------------------------------------------------

    def _deleted(self, place: Place) -> int:
        return self._deleter.deleted.get(place, 0)

    def _places_of(self, group: Group) -> list[Place]:
        return [place for place in (*PLACES, *TICKETS) if place[0] in group.topics]

    async def settle(self) -> None:
        """Wait until all records are done with, and the broker knows it."""
        if self.course.work.may_lose:
            return
        await self._until_done()
        places = dict.fromkeys(place for group in self.groups for place in self._places_of(group))
        for place in places:
            work = self.tickets if place in TICKETS else self.course.work
            client = self.course.client(f"closer-{place[0]}-{place[1]}")
            await IdempotentProducer(client, work, [place]).run(1)
            client.close()
        await self._until_done()
        client = self.course.client("share describer")
        for group in self.groups:
            await self._check_lag(client, group)
        client.close()
        for queue in self.queues:
            await self._until_buried(queue)
        self._told = await self._describe()

    async def _until_done(self) -> None:
        await self._read()
        deadline_s = self.course.loop.time() + SETTLED_WITHIN_S
        while missing := [*self._missing()]:
            if self.course.loop.time() > deadline_s:
                self.course.work.complain(f"{len(missing)} aren't done with, {missing[0]} among them")
                return
            await asyncio.sleep(0.2)

    async def _until_buried(self, queue: Queue) -> None:
        """Wait until what is dead by now is in its queue."""
        begins = self._begins_of(queue)
        deadline_s = self.course.loop.time() + SETTLED_WITHIN_S
        while True:
            await self._read_queue(queue)
            missing = [*queue.missing(begins, self.given_up)]
            if not missing:
                return
            if self.course.loop.time() > deadline_s:
                self.course.work.complain(f"{len(missing)} aren't buried: {missing[0]}")
                return
            await asyncio.sleep(0.5)

    def _begins_of(self, queue: Queue) -> dict[Place, int]:
        return {place: self._deleted(place) for place in queue.deliveries.records}

    async def _read_queue(self, queue: Queue) -> None:
        client = self.course.client(f"reader of {queue.name}")
        client.reads_anywhere = False
        await queue.read(client)
        client.close()

    def _missing(self) -> list[str]:
        return [
            f"{group.name}, {place} at {offset}"
            for group in self.groups
            for place in self._places_of(group)
            for offset in self._read_by(group)[place]
            if offset >= self._deleted(place) and group.deliveries.is_due(place, offset)
        ] + [
            *(f"what {member.member_id} holds" for member in self.members if member.holds_anything),
            *(
                f"{place} of {group.name}, which nobody is assigned"
                for group in self.groups
                for place in self._places_of(group)
                if not any(place in member.assigned for member in self.members if member.group is group)
            ),
        ]

    def _read_by(self, group: Group) -> dict[Place, dict[int, bytes]]:
        return self._is_stable if group.name in self._committed else self._everything

    async def _read(self) -> None:
        for place in (*PLACES, *TICKETS):
            work = self.tickets if place in TICKETS else self.course.work
            for committed in (False, True):
                client = self.course.client(f"share-checker-{place}")
                client.reads_anywhere = False  # what the leader has counts: a follower learns of it late
                reader = Reader(client, work, place, committed=committed)
                found = await reader.read_all(from_start=True)
                (self._is_stable if committed else self._everything)[place] = found
                client.close()

    async def _check_lag(self, client: WireClient, group: Group) -> None:
        """Check that the group has nothing left, and that its durable state says so."""
        deadline_s = self.course.loop.time() + SETTLED_WITHIN_S
        places = self._places_of(group)
        unwritten = [
            place
            for place in places
            if group.deliveries.is_latest and group.deliveries.first_written(place) is None
        ]
        while True:
            lags = await self._lags(client, group)
            if lags | dict.fromkeys(unwritten, 0) == dict.fromkeys(places, 0):
                return
            if self.course.loop.time() > deadline_s:
                self.course.work.complain(f"{group.name} is done with all, and is behind by {lags}")
                return
            await asyncio.sleep(0.5)

    async def _lags(self, client: WireClient, group: Group) -> dict[Place, int]:
        request = DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group.name, topics=None)]
        )
        lags: dict[Place, int] = {}

        async def describe() -> Error:
            found = (await client.ask(request, 1)).groups[0]
            for topic in found.topics:
                for partition in topic.partitions:
                    if partition.error_code:
                        return Error(partition.error_code)
                    lags[topic.topic_name, partition.partition_index] = partition.lag
            return Error(found.error_code)

        error = await client.insist(describe)
        if error is not Error.NONE:
            self.course.work.complain(f"the offsets of {group.name} can't be described: {error!r}")
        return lags

    async def check_described(self) -> None:
        """Check that after a start the coordinators report the same as before."""
        again = await self._describe() if self._told else {}
        for name, told in self._told.items():
            if again.get(name) != told:
                self.course.work.complain(f"{name} is {again.get(name)} after a start; it was {told}")

    async def _describe(self) -> dict[str, Any]:
        """Return each group as its coordinator reports it."""
        client = self.course.client("share describer")
        told: dict[str, Any] = {}
        for group in self.groups:

            async def describe(group: Group = group) -> Error:
                [found] = (await client.ask(ShareGroupDescribeRequest(group_ids=[group.name]), 1)).groups
                found.members.sort(key=lambda member: member.member_id)
                for member in found.members:
                    member.assignment.topic_partitions.sort(key=lambda topic: topic.topic_name)
                told[group.name] = found
                return Error(found.error_code)

            error = await client.insist(describe)
            if error is not Error.NONE and not self.course.work.may_lose:
                self.course.work.complain(f"{group.name} can't be described: {error!r}")
        client.close()
        return told

    async def check(self) -> None:
        work = self.course.work
        await self._read()
        for group in self.groups:
            places = self._places_of(group)
            everything, committed = (
                {place: found[place] for place in places} for found in (self._everything, self._is_stable)
            )
            is_committed = group.name in self._committed
            begins = {place: self._deleted(place) for place in places}
            work.anomalies += group.deliveries.complaints(
                everything, committed if is_committed else None, begins
            )
            self._count(group)
        if work.may_lose:
            return
        for queue in self.queues:
            await self._read_queue(queue)
            begins = self._begins_of(queue)
            work.anomalies += queue.complaints(self._everything, begins)
            work.anomalies += queue.missing(begins, self.given_up)
            work.count("dead letters", len(queue.letters))
            work.count("dead letters written twice", sum(len(each) > 1 for each in queue.letters.values()))
        for sent in self.tickets.sent:
            if not sent.acknowledged or sent.offset is None or sent.offset < self._deleted(sent.place):
                continue
            if self._everything[sent.place].get(sent.offset) != sent.value:
                work.complain(f"{sent.place}: {sent.value!r} was acknowledged, and isn't at {sent.offset}")

    def _count(self, group: Group) -> None:
        for place, records in group.deliveries.records.items():
            for offset, of_record in records.items():
                self.course.work.count("deliveries to shares", len(of_record.deliveries))
                if group.deliveries.is_done(place, offset):
                    self.course.work.count("records done with by shares")
                else:
                    self.course.work.count("records of shares left at their limit")

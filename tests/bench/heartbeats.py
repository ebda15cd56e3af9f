"""Groups of 200 members with server-side assignment, of each protocol: how soon they settle, and what heartbeats cost.

The members of a group are one raw client, the same for both brokers. In the end each has one of 200 partitions, as a
consumer, a share consumer, or an instance of a streams application with its own process. Once all are at the same epoch
and nothing changes, they send the short heartbeats of their clients, and the broker has nothing to write.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from protocol.errors import Error
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest
from protocol.messages.groups_share import ShareGroupHeartbeatRequest
from protocol.messages.groups_streams import StreamsGroupHeartbeatRequest, Subtopology, TaskIds, Topology
from protocol.messages.metadata import FindCoordinatorRequest
from protocol.wire.schema import Message
from tests.bench.measures import IN_FLIGHT, PATIENCE_S, Pace, create_topic, delete_topic
from tests.bench.report import Row
from tests.support.wire import Client, request_frame

MEMBERS = 200
ROUNDS = 50
BETWEEN_ROUNDS_S = 0.02
LEAVE_EPOCH = -1
_COMING = (Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_COORDINATOR)
_NO_ERROR = bytes(2)
_ERROR_CODE = slice(9, 11)  # after correlation id, tags and throttle time, in the answers of all three

_numbers = itertools.count()


@dataclass(slots=True)
class Member:
    """assigned: what it has. owned: the same if it has to be reported, None if there is nothing new."""

    member_id: str
    epoch: int = 0
    assigned: Sequence[Any] = ()
    owned: Sequence[Any] | None = None


@dataclass(frozen=True, slots=True)
class Protocol:
    """How to make a heartbeat for one kind of group, and what a member reports from its answer."""

    version: int
    beat: Callable[[str, str, Member], Message]
    assigned: Callable[[Any], list[Any] | None]
    """Returns the answer's assignment: topics or subtopologies, each with its `partitions`."""


def _consumer_beat(group: str, topic: str, member: Member) -> Message:
    joins = member.epoch == 0
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member.member_id,
        member_epoch=member.epoch,
        rebalance_timeout_ms=300_000 if joins else -1,
        subscribed_topic_names=[topic] if joins else None,
        topic_partitions=[] if joins else member.owned,
    )


def _share_beat(group: str, topic: str, member: Member) -> Message:
    return ShareGroupHeartbeatRequest(
        group_id=group,
        member_id=member.member_id,
        member_epoch=member.epoch,
        subscribed_topic_names=[topic] if member.epoch == 0 else None,
    )


def _streams_beat(group: str, topic: str, member: Member) -> Message:
    joins = member.epoch == 0
    active: list[TaskIds] | None = [] if joins else member.owned
    others: list[TaskIds] | None = None if active is None else []
    return StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=member.member_id,
        member_epoch=member.epoch,
        rebalance_timeout_ms=300_000 if joins else -1,
        topology=Topology(epoch=0, subtopologies=[_of_source(topic)]) if joins else None,
        process_id=member.member_id if joins else None,
        client_tags=[] if joins else None,
        active_tasks=active,
        standby_tasks=others,
        warmup_tasks=others,
    )


def _of_source(topic: str) -> Subtopology:
    return Subtopology(subtopology_id="0", source_topics=[topic])


def _of_assignment(answer: Any) -> list[Any] | None:
    return None if answer.assignment is None else list(answer.assignment.topic_partitions)


CONSUMER = Protocol(0, _consumer_beat, _of_assignment)
SHARE = Protocol(1, _share_beat, _of_assignment)
STREAMS = Protocol(0, _streams_beat, lambda answer: answer.active_tasks)
PROTOCOLS = {"consumer": CONSUMER, "share": SHARE, "streams": STREAMS}

ROWS = [
    row
    for kind in PROTOCOLS
    for row in (
        Row(
            f"settle-{kind}",
            f"{MEMBERS} members settle, {kind} group",
            "s",
            less_is_better=True,
            decimals=2,
        ),
        Row(f"beats-{kind}", f"heartbeats, {MEMBERS} members, {kind} group", "/s"),
        Row(
            f"beats-{kind}-cpu",
            f"broker's processor time, {kind} group",
            "µs/heartbeat",
            less_is_better=True,
        ),
    )
]


class Group:
    """A group with all its members, on one connection."""

    def __init__(self, protocol: Protocol, bootstrap: str, topic: str, members: int = MEMBERS) -> None:
        self._protocol = protocol
        self._topic = topic
        self._client = Client.of(bootstrap)
        self._client.patience_s = PATIENCE_S
        self.name = f"heartbeats-{os.getpid()}-{next(_numbers)}"
        self.members = [Member(f"{self.name}-{number}") for number in range(members)]

    def settle(self) -> None:
        """Send heartbeats until each member has its share, all are at one epoch, and nothing changes.

        A member gives up at once what it must.
        """
        deadline_s = time.perf_counter() + PATIENCE_S
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.name])
        while self._client.ask(find, 4).coordinators[0].error_code or not self._round():
            assert time.perf_counter() < deadline_s, f"{self.name} doesn't settle"
            time.sleep(BETWEEN_ROUNDS_S)

    def beat(self, rounds: int) -> Pace:
        """Send `rounds` heartbeats of each member, with five unanswered at a time."""
        frames = [request_frame(self._beat(member), self._protocol.version) for member in self.members]
        client, in_flight = self._client, 0
        started_s = time.perf_counter()
        for frame in itertools.chain.from_iterable(itertools.repeat(frames, rounds)):
            if in_flight == IN_FLIGHT:
                self._take_answer()
            else:
                in_flight += 1
            client.send_bytes(frame)
        for _ in range(in_flight):
            self._take_answer()
        return Pace(rounds * len(frames), time.perf_counter() - started_s)

    def leave(self) -> None:
        for member in self.members:
            member.epoch, member.owned = LEAVE_EPOCH, None
            self._client.ask(self._beat(member), self._protocol.version)
        self._client.close()

    def _beat(self, member: Member) -> Message:
        return self._protocol.beat(self.name, self._topic, member)

    def _round(self) -> bool:
        """Send one heartbeat of each member. Return True if nothing changed."""
        quiet = True
        for member in self.members:
            answer = self._client.ask(self._beat(member), self._protocol.version)
            if answer.error_code in _COMING:
                return False
            assert answer.error_code == 0, answer
            assigned = self._protocol.assigned(answer)
            quiet = quiet and assigned is None and member.owned is None
            member.epoch, member.owned = answer.member_epoch, assigned
            if assigned is not None:
                member.assigned = assigned
        return quiet and self._agree()

    def _agree(self) -> bool:
        return len({member.epoch for member in self.members}) == 1 and all(
            member.assigned for member in self.members
        )

    def _take_answer(self) -> None:
        answer = self._client.next_frame()
        assert answer[_ERROR_CODE] == _NO_ERROR, bytes(answer)


_settled: dict[tuple[str, str, str], Group] = {}


def settle(bootstrap: str, topic: str) -> dict[str, float]:
    """Settle groups of all protocols, which `beats` uses further. Return the seconds that each took."""
    wide = _wide(topic)
    create_topic(bootstrap, wide, MEMBERS)
    figures = {}
    for kind, protocol in PROTOCOLS.items():
        group = Group(protocol, bootstrap, wide)
        started_s = time.perf_counter()
        group.settle()
        figures[f"settle-{kind}"] = time.perf_counter() - started_s
        _settled[bootstrap, topic, kind] = group
    return figures


def _wide(topic: str) -> str:
    return f"{topic}-wide"


def beats(kind: str) -> Callable[[str, str], Pace]:
    return lambda bootstrap, topic: _settled[bootstrap, topic, kind].beat(ROUNDS)


def leave(bootstrap: str, topic: str) -> dict[str, float]:
    """End the groups and delete their topic. Otherwise sessions would end during the next measurement."""
    for kind in PROTOCOLS:
        _settled.pop((bootstrap, topic, kind)).leave()
    delete_topic(bootstrap, _wide(topic))
    return {}

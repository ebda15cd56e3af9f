"""A member by the protocol of KIP-848, where the broker assigns, and waits until each has given up what it is to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from protocol.errors import Error
from protocol.messages.groups_consumer import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from tests.simulation.groups import Life
from tests.simulation.members import PUT_OUT, REBALANCE_TIMEOUT_MS, Member
from tests.simulation.work import Place

LEAVES = -1
LEAVES_FOR_A_WHILE = -2


class ConsumerMember(Member):
    version = 1
    """Of its heartbeats."""
    is_told_again = True
    """Whether who says all that it has is told what it is to have, even if that is nothing new."""
    _misses_something = False
    """Whether an answer was lost that may have said what it is to give up, and isn't told again."""
    _says_all = True
    _is_unsure = False
    """Whether an answer was lost, so that the broker may be ahead of what it knows."""
    _gives_up_s: float | None = None
    """When it will have given up what it is to."""
    _asked_s = 0.0
    """When its last heartbeat was sent, or the first one of those without an answer."""
    _owes_since_s: float | None = None
    """Since when, at the earliest, the broker waits for it to give something up."""

    def begin(self) -> None:
        self.life.member_id = f"{self.client.name}-{self.life.number}"
        self._is_unsure = False
        self._join_anew()

    def _join_anew(self) -> None:
        self._misses_something = False
        self.life.gives_up_all()
        self.life.epoch = 0
        self._says_all = True
        self._gives_up_s = self._owes_since_s = None
        self.hurry()

    async def tend(self) -> None:
        if self._gives_up_s is not None and self.now_s() >= self._gives_up_s:
            self._says_all = True
            self.hurry()
        if not self.is_due():
            return
        life, group = self.life, self.group
        sent_s, newest, lost, joins = self.now_s(), group.newest_epoch, group.lost(life), life.epoch == 0
        request = self._heartbeat()
        if not self._is_unsure:
            self._asked_s = sent_s
        answer = await self.client.ask(request, self.version)
        error = Error(answer.error_code)
        if error is not Error.NONE:
            self.refused(error)
            return
        if self._says_all and not self._misses_something:
            self._owes_since_s = None
        self.was_heard(sent_s)
        if answer.member_epoch < max(life.epoch, life.highest_epoch):
            self.complain_unless_two(f"is told epoch {answer.member_epoch}, and was in {life.highest_epoch}")
        if joins:
            self.work.count("joins")
            if answer.member_epoch < newest and self.instance_id is None:
                self.complain_unless_two(
                    f"joins in epoch {answer.member_epoch}, and {newest} was there before"
                )
        self._says_all = self._is_unsure = False
        life.epoch = answer.member_epoch
        life.highest_epoch = max(life.highest_epoch, life.epoch)
        told = self.assigned_by(answer)
        if told is not None:
            self._misses_something = False
            self._told(told)
        if not {*lost}.isdisjoint(life.owned):
            self.complain_unless_two(f"isn't told that {lost} are another's")

    def assigned_by(self, answer: Any) -> list[Place] | None:
        """None where nothing is said of it."""
        assignment: Assignment | None = answer.assignment
        return None if assignment is None else self._places(assignment.topic_partitions)

    def _told(self, places: list[Place]) -> None:
        before = {*self.life.owned}
        self.told(places)
        after = {*self.life.owned}
        if before - after:
            # what it has to give up takes it a while; then it says so
            self._gives_up_s = self.now_s() + self.luck.choice((0, self.luck.uniform(0, 2)))
            self._owes(self._asked_s)
        elif after - before:
            # it says that it has what is new
            self._says_all = True
            self.hurry()

    def _heartbeat(self) -> Any:
        if self._says_all:
            self.life.held = {*self.life.owned}
            self._gives_up_s = None
        return self.heartbeat(says_all=self._says_all)

    def heartbeat(self, *, says_all: bool) -> Any:
        """The request."""
        life = self.life
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group.name, member_id=life.member_id, member_epoch=life.epoch
        )
        if says_all:
            request.instance_id = self.instance_id
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
            request.subscribed_topic_names = self.group.topics
            request.topic_partitions = self._topic_partitions(life.owned)
        return request

    def _topic_partitions(self, places: Iterable[Place]) -> list[TopicPartitions]:
        by_topic: dict[bytes, list[int]] = {}
        for topic, index in places:
            by_topic.setdefault(self.group.topic_ids[topic], []).append(index)
        return [TopicPartitions(topic_id=topic_id, partitions=found) for topic_id, found in by_topic.items()]

    def _places(self, assigned: list[TopicPartitions]) -> list[Place]:
        names = {topic_id: name for name, topic_id in self.group.topic_ids.items()}
        return [(names[each.topic_id], index) for each in assigned for index in each.partitions]

    def refused(self, error: Error) -> None:
        self.client.note(f"{self.life.name} in {self.life.epoch}: {error!r}")
        self._says_all = True  # as Java's client does
        self.hurry()
        is_lost = error is Error.GROUP_ID_NOT_FOUND and self.work.may_lose
        if (
            error in PUT_OUT or is_lost
        ):  # a whole group may go with the power: its consumers are started anew then
            if is_lost or (error is Error.FENCED_MEMBER_EPOCH and self._is_unsure):
                self.life.lease_s = -1.0
            self.was_put_out(error)
            self._join_anew()

    def must_not_commit(self, life: Life, epoch: int, place: Place) -> str:
        if epoch == life.epoch and not self.group.is_replaced(life):
            return ""  # who is still in its epoch may, as in Kafka, though it has given up the partition meanwhile
        if self.group.owners[place] is not life:
            return "another one was given it"
        if epoch <= life.others.get(place, -1):
            return f"another one had it in {life.others[place]}"
        return "another one took its place" if self.group.is_replaced(life) else ""

    def says_all_at_once(self) -> None:
        """There is something that the broker waits to be told."""
        self._says_all = True
        self.hurry()

    def lost_an_answer(self) -> None:
        self._says_all = self._is_unsure = True
        self._misses_something = not self.is_told_again
        self._owes(self._asked_s if self._owes_since_s is None else self._owes_since_s)
        self.hurry()

    def was_heard(self, sent_s: float) -> None:
        super().was_heard(sent_s)
        if self._owes_since_s is not None:
            self._owes(self._owes_since_s)

    def _owes(self, since_s: float) -> None:
        """Who takes too long to give something up is put out, however often it is heard of."""
        self._owes_since_s = since_s
        self.life.lease_s = min(self.life.lease_s, since_s + REBALANCE_TIMEOUT_MS / 1000)

    def as_reader_of_offsets(self) -> tuple[str | None, int]:
        return self.life.member_id, self.life.epoch

    async def leave(self) -> None:
        for_a_while = self.instance_id is not None and self.luck.random() < 0.5
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group.name,
            member_id=self.life.member_id,
            member_epoch=LEAVES_FOR_A_WHILE if for_a_while else LEAVES,
            instance_id=self.instance_id,
        )
        await self.client.ask(request, 1)

"""A member by the protocol of KIP-848: the broker assigns, and waits until each member has given up what it must."""

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
    """The version of its heartbeats."""
    is_told_again = True
    """True if a member that reports everything it has always gets its assignment, even if nothing is new."""
    _misses_something = False
    """True if a lost answer may have said what to give up, and isn't repeated."""
    _says_all = True
    _is_unsure = False
    """True if an answer was lost, so the broker may be ahead of what it knows."""
    _gives_up_s: float | None = None
    """When it will have given up what it must."""
    _asked_s = 0.0
    """When its last heartbeat was sent, or the first one of those without an answer."""
    _owes_since_s: float | None = None
    """The earliest time since which the broker waits for it to give something up."""

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
        """Return the assignment, or None if the answer has none."""
        assignment: Assignment | None = answer.assignment
        return None if assignment is None else self._places(assignment.topic_partitions)

    def _told(self, places: list[Place]) -> None:
        before = {*self.life.owned}
        self.told(places)
        after = {*self.life.owned}
        if before - after:
            # it takes a while to give things up; then it reports that
            self._gives_up_s = self.now_s() + self.luck.choice((0, self.luck.uniform(0, 2)))
            self._owes(self._asked_s)
        elif after - before:
            # it reports that it has the new ones
            self._says_all = True
            self.hurry()

    def _heartbeat(self) -> Any:
        if self._says_all:
            self.life.held = {*self.life.owned}
            self._gives_up_s = None
        return self.heartbeat(says_all=self._says_all)

    def heartbeat(self, *, says_all: bool) -> Any:
        """Return the request."""
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
        ):  # a whole group may be lost with the power; then its consumers start again
            if is_lost or (error is Error.FENCED_MEMBER_EPOCH and self._is_unsure):
                self.life.lease_s = -1.0
            self.was_put_out(error)
            self._join_anew()

    def must_not_commit(self, life: Life, epoch: int, place: Place) -> str:
        if epoch == life.epoch and not self.group.is_replaced(life):
            return ""  # still in its epoch it may commit, as in Kafka, although it has given up the partition
        if self.group.owners[place] is not life:
            return "another one was given it"
        if epoch <= life.others.get(place, -1):
            return f"another one had it in {life.others[place]}"
        return "another one took its place" if self.group.is_replaced(life) else ""

    def says_all_at_once(self) -> None:
        """Send a full heartbeat at once: the broker waits for its report."""
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
        """A member that takes too long to give something up is removed, however often it is heard."""
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

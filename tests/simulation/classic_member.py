"""A member by the classic protocol, in which one of the members assigns."""

from __future__ import annotations

from protocol.errors import Error
from protocol.messages.groups import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    TopicPartition,
)
from protocol.wire.codec import decode, encode
from tests.simulation.groups import Life
from tests.simulation.members import PUT_OUT, REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS, Member
from tests.simulation.work import Place

PROTOCOL_TYPE = "consumer"
PROTOCOL = "turns"
VERSION = b"\0\0"
"""The version of the messages between consumers."""


class ClassicMember(Member):
    _has_joined = False

    def begin(self) -> None:
        self._has_joined = False

    def _join_again(self) -> None:
        """Give up everything, and join again."""
        self.life.owned.clear()
        self._has_joined = False

    async def tend(self) -> None:
        if not self._has_joined:
            await self._join()
        elif self.is_due():
            await self._heartbeat()

    async def _join(self) -> None:
        life = self.life
        life.gives_up_all()
        newest = self.group.newest_epoch
        subscription = ConsumerProtocolSubscription(topics=self.group.topics)
        protocol = JoinGroupRequestProtocol(name=PROTOCOL, metadata=VERSION + encode(subscription, 0))
        request = JoinGroupRequest(
            group_id=self.group.name,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=life.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[protocol],
        )
        answer = await self.client.ask(request, 9)
        error = Error(answer.error_code)
        if error is Error.NONE or error is Error.MEMBER_ID_REQUIRED:
            life.member_id = answer.member_id
        if error is not Error.NONE:
            self.refused(error)
            return
        life.epoch = answer.generation_id
        if life.epoch < newest:
            self.complain_unless_two(f"joined generation {life.epoch}, and {newest} was there before")
        self.work.count("joins")
        await self._sync(answer)

    async def _sync(self, joined: JoinGroupResponse) -> None:
        life = self.life
        assignments = []
        if joined.leader == life.member_id and not joined.skip_assignment:
            assignments = self._assign([member.member_id for member in joined.members])
        request = SyncGroupRequest(
            group_id=self.group.name,
            generation_id=life.epoch,
            member_id=life.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=assignments,
        )
        why_not = self._must_be_refused(life, life.epoch)
        answer = await self.client.ask(request, 5)
        error = Error(answer.error_code)
        if error is not Error.NONE:
            self.refused(error)
            return
        if why_not:
            self.complain_unless_two(f"is given its assignment, though {why_not}")
        self._has_joined = True
        assignment = decode(ConsumerProtocolAssignment, 0, answer.assignment, len(VERSION))
        places = [(each.topic, index) for each in assignment.assigned_partitions for index in each.partitions]
        self.group.of_generation(life, places)
        self.told(places)

    def _assign(self, member_ids: list[str]) -> list[SyncGroupRequestAssignment]:
        """Assign in turns, starting with a random member."""
        first = self.luck.randrange(len(member_ids))
        of_members: dict[str, list[TopicPartition]] = {member_id: [] for member_id in member_ids}
        for number, (topic, index) in enumerate(self.group.places):
            member_id = member_ids[(first + number) % len(member_ids)]
            of_members[member_id].append(TopicPartition(topic=topic, partitions=[index]))
        return [
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=VERSION + encode(ConsumerProtocolAssignment(assigned_partitions=assigned), 0),
            )
            for member_id, assigned in of_members.items()
        ]

    async def _heartbeat(self) -> None:
        life, sent_s = self.life, self.now_s()
        why_not = self._must_be_refused(life, life.epoch)
        request = HeartbeatRequest(
            group_id=self.group.name,
            generation_id=life.epoch,
            member_id=life.member_id,
            group_instance_id=self.instance_id,
        )
        error = Error((await self.client.ask(request, 4)).error_code)
        if error is not Error.NONE:
            self.refused(error)
            return
        self.was_heard(sent_s)
        if why_not:
            self.complain_unless_two(f"isn't told that {why_not}")

    def refused(self, error: Error) -> None:
        self.client.note(f"{self.life.name} in {self.life.epoch}: {error!r}")
        if error in PUT_OUT:
            self.was_put_out(error)
            self.life.member_id = ""
            self._join_again()
        elif error is Error.ILLEGAL_GENERATION or error is Error.REBALANCE_IN_PROGRESS:
            self._join_again()

    def _must_be_refused(self, life: Life, epoch: int) -> str:
        if epoch < self.group.newest_epoch:
            return f"generation {self.group.newest_epoch} was there before"
        return "another one took its place" if self.group.is_replaced(life) else ""

    def must_not_commit(self, life: Life, epoch: int, place: Place) -> str:
        return self._must_be_refused(life, epoch)

    def lost_an_answer(self) -> None:
        """A member that isn't sure joins again, at the latest when it is told to."""

    def as_reader_of_offsets(self) -> tuple[str | None, int]:
        return None, -1

    async def leave(self) -> None:
        if self.life.member_id:
            leaving = MemberIdentity(member_id=self.life.member_id, group_instance_id=self.instance_id)
            await self.client.ask(LeaveGroupRequest(group_id=self.group.name, members=[leaving]), 5)

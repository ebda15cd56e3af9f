"""Groups of every kind, with members and offsets."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from protocol.errors import Error
from protocol.messages.groups import (
    ConsumerProtocolSubscription,
    DeleteGroupsRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest
from protocol.messages.groups_streams import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from protocol.wire.codec import encode
from tests.simulation.restarts.nodes import GROUP, Nodes
from tests.simulation.restarts.wishes import TOPICS, Wish, Wishes, wish

SIMPLE = ("g", "h")
"""Groups whose offsets are committed without being a member."""
CLASSIC, CONSUMER, STREAMS = "j", "k", "w"
LONG_MS = 1_800_000
"""The longest possible session, so that none ends by itself."""
DAY_MS = 86_400_000
LEAVES = -1


class GroupWishes(Wishes):
    def __init__(self, nodes: Nodes, luck: random.Random) -> None:
        super().__init__(nodes, luck)
        self._member_id, self._generation = "", -1
        self._epochs: dict[str, int] = {}
        """The epochs of members by the newer protocols."""
        self._assigned: dict[str, Any] = {}

    def made(self) -> Sequence[tuple[int, Callable[[], Wish]]]:
        return (
            (10, self._commit),
            (3, self._delete_offsets),
            (2, self._delete_group),
            (3, self._join_classic),
            (1, self._leave_classic),
            (5, self._consumer_heartbeat),
            (3, self._streams_heartbeat),
        )

    async def _ask(self, group_id: str, request: Any, version: int) -> Any:
        return await self.nodes.ask(request, version, await self.nodes.coordinator_of(group_id, GROUP))

    # --- offsets --------------------------------------------------------------------------------------------

    def _commit(self) -> Wish:
        luck, (name, at) = self.luck, self.place
        group_id = luck.choice((*SIMPLE, CLASSIC))
        version = luck.choice((2, 4, 4, 7, 9, 10))
        member = (self._member_id, self._generation) if group_id == CLASSIC else ("", -1)

        async def commit() -> None:
            topic = OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=luck.randrange(1_000),
                        committed_leader_epoch=luck.choice((-1, 0, 3)),
                        committed_metadata=luck.choice(("", "m", None)),
                    )
                    for index in {0, at}
                ],
            )
            if version == 10:
                known = (await self.nodes.topics()).get(name)
                topic.topic_id = bytes(16) if known is None else known.topic_id
            request = OffsetCommitRequest(
                group_id=group_id,
                member_id=member[0],
                generation_id_or_member_epoch=member[1],
                retention_time_ms=luck.choice((-1, DAY_MS)) if version < 5 else -1,
                topics=[topic],
            )
            await self._ask(group_id, request, version)

        return wish("commit", commit, group_id)

    def _delete_offsets(self) -> Wish:
        group_id, (name, index) = self.luck.choice((*SIMPLE, CLASSIC, CONSUMER)), self.place
        topic = OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index)]
        )
        request = OffsetDeleteRequest(group_id=group_id, topics=[topic])
        return wish("delete offsets", lambda: self._ask(group_id, request, 0), group_id)

    def _delete_group(self) -> Wish:
        group_id = self.luck.choice((*SIMPLE, CLASSIC, CONSUMER, STREAMS))
        request = DeleteGroupsRequest(groups_names=[group_id])
        return wish("delete group", lambda: self._ask(group_id, request, 2), group_id)

    # --- members --------------------------------------------------------------------------------------------

    def _join_classic(self) -> Wish:
        """Join and sync as the only member, which leads. It counts as joined and assigned once its generation is in the
        log."""
        subscription = ConsumerProtocolSubscription(topics=[self.topic])
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"\0\0" + encode(subscription, 0))

        async def join() -> None:
            request = JoinGroupRequest(
                group_id=CLASSIC,
                session_timeout_ms=LONG_MS,
                rebalance_timeout_ms=5_000,
                member_id=self._member_id,
                protocol_type="consumer",
                protocols=[protocol],
            )
            answer = await self._ask(CLASSIC, request, 9)
            if answer.error_code == Error.MEMBER_ID_REQUIRED:
                request.member_id = answer.member_id
                answer = await self._ask(CLASSIC, request, 9)
            if answer.error_code != Error.NONE:
                self._member_id = ""
                return
            self._member_id, self._generation = answer.member_id, answer.generation_id
            assignment = SyncGroupRequestAssignment(member_id=self._member_id, assignment=b"assigned")
            synced = SyncGroupRequest(
                group_id=CLASSIC,
                generation_id=self._generation,
                member_id=self._member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[assignment],
            )
            await self._ask(CLASSIC, synced, 5)

        return wish("join", join, CLASSIC)

    def _leave_classic(self) -> Wish:
        request = LeaveGroupRequest(group_id=CLASSIC, members=[MemberIdentity(member_id=self._member_id)])
        return wish("leave", lambda: self._ask(CLASSIC, request, 5), CLASSIC)

    def _consumer_heartbeat(self) -> Wish:
        member_id = self.luck.choice(("one", "two"))
        epoch = self._epochs.get(member_id, 0)
        if epoch > 0 and self.luck.random() < 0.2:
            epoch = LEAVES
        names = self.luck.sample(TOPICS, self.luck.randint(1, 3))
        regex = self.luck.choice((None, None, "a|b"))

        async def beat() -> None:
            request = ConsumerGroupHeartbeatRequest(
                group_id=CONSUMER,
                member_id=member_id,
                member_epoch=epoch,
                rebalance_timeout_ms=LONG_MS if epoch == 0 else -1,
                subscribed_topic_names=names if epoch == 0 or regex is None else None,
                subscribed_topic_regex=regex if epoch >= 0 else None,
                topic_partitions=[] if epoch == 0 else self._assigned.get(member_id),
            )
            answer = await self._ask(CONSUMER, request, 1)
            self._epochs[member_id] = max(answer.member_epoch, 0) if answer.error_code == Error.NONE else 0
            if answer.assignment is not None:
                self._assigned[member_id] = answer.assignment.topic_partitions

        return wish("heartbeat of a consumer", beat, CONSUMER)

    def _streams_heartbeat(self) -> Wish:
        member_id = "streams-one"
        epoch = self._epochs.get(member_id, 0)
        if epoch > 0 and self.luck.random() < 0.2:
            epoch = LEAVES
        topology = Topology(
            epoch=0,
            subtopologies=[
                Subtopology(
                    subtopology_id="0",
                    source_topics=[TOPICS[0]],
                    state_changelog_topics=[TopicInfo(name="w-changelog")],
                )
            ],
        )

        async def beat() -> None:
            request = StreamsGroupHeartbeatRequest(
                group_id=STREAMS, member_id=member_id, member_epoch=epoch, rebalance_timeout_ms=LONG_MS
            )
            if epoch == 0:
                request.topology, request.process_id = topology, "process"
            if epoch >= 0:
                tasks: list[TaskIds] = [] if epoch == 0 else self._assigned.get(member_id, [])
                request.active_tasks, request.standby_tasks, request.warmup_tasks = tasks, [], []
            answer = await self._ask(STREAMS, request, 0)
            self._epochs[member_id] = max(answer.member_epoch, 0) if answer.error_code == Error.NONE else 0
            if answer.active_tasks is not None:
                self._assigned[member_id] = answer.active_tasks

        return wish("heartbeat of Kafka Streams", beat, STREAMS, "w-changelog")

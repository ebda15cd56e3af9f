"""Share groups: members, their acknowledgements, and changes of offsets."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from protocol.errors import Error
from protocol.messages.groups import DeleteGroupsRequest
from protocol.messages.groups_share import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    ShareGroupHeartbeatRequest,
)
from protocol.messages.share_fetch import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    FetchPartition,
    FetchTopic,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)
from tests.simulation.restarts.nodes import GROUP, Nodes
from tests.simulation.restarts.wishes import TOPICS, Wish, Wishes, wish

SHARE = "s"
MEMBER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
LEAVES = -1
ACCEPT, RELEASE, REJECT = 1, 2, 3


class ShareWishes(Wishes):
    def __init__(self, nodes: Nodes, luck: random.Random) -> None:
        super().__init__(nodes, luck)
        self._epoch = 0

    def made(self) -> Sequence[tuple[int, Callable[[], Wish]]]:
        return (
            (6, self._heartbeat),
            (8, self._fetch_and_acknowledge),
            (4, self._alter_offsets),
            (1, self._delete_offsets),
            (1, self._delete_group),
        )

    async def _ask(self, request: Any, version: int) -> Any:
        return await self.nodes.ask(request, version, await self.nodes.coordinator_of(SHARE, GROUP))

    def _heartbeat(self) -> Wish:
        epoch = LEAVES if self._epoch > 0 and self.luck.random() < 0.3 else self._epoch
        names = self.luck.sample(TOPICS, self.luck.randint(1, 3))
        return wish("heartbeat of a share consumer", lambda: self._beat(epoch, names), SHARE)

    async def _beat(self, epoch: int, names: list[str]) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=SHARE, member_id=MEMBER_ID, member_epoch=epoch, subscribed_topic_names=names
        )
        answer = await self._ask(request, 1)
        self._epoch = max(answer.member_epoch, 0) if answer.error_code == Error.NONE else 0

    def _fetch_and_acknowledge(self) -> Wish:
        """Fetch in a session of one request, and one acknowledgement that ends it."""
        name, index = self.place
        kind = self.luck.choice((ACCEPT, ACCEPT, RELEASE, REJECT))

        async def fetch() -> None:
            await self._beat(self._epoch, [*TOPICS])
            await self.nodes.pause(0.5)  # so that the states are initialized
            known = (await self.nodes.topics()).get(name)
            if known is None:
                return
            leader = await self.nodes.leader_of(name, index)
            asked = FetchTopic(topic_id=known.topic_id, partitions=[FetchPartition(partition_index=index)])
            request = ShareFetchRequest(
                group_id=SHARE,
                member_id=MEMBER_ID,
                share_session_epoch=0,
                max_wait_ms=100,
                min_bytes=1,
                max_records=10,
                batch_size=10,
                topics=[asked],
            )
            answer = await self.nodes.ask(request, 1, leader)
            batches = [
                AcknowledgementBatch(
                    first_offset=each.first_offset, last_offset=each.last_offset, acknowledge_types=[kind]
                )
                for topic in answer.responses
                for partition in topic.partitions
                for each in partition.acquired_records
            ]
            done = AcknowledgePartition(partition_index=index, acknowledgement_batches=batches)
            last = ShareAcknowledgeRequest(
                group_id=SHARE,
                member_id=MEMBER_ID,
                share_session_epoch=LEAVES,
                topics=[AcknowledgeTopic(topic_id=known.topic_id, partitions=[done])] if batches else [],
            )
            await self.nodes.ask(last, 1, leader)

        return wish("share", fetch, SHARE)

    def _alter_offsets(self) -> Wish:
        name, index = self.place
        partition = AlterShareGroupOffsetsRequestPartition(
            partition_index=index, start_offset=self.luck.randrange(6)
        )
        topic = AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=[partition])
        request = AlterShareGroupOffsetsRequest(group_id=SHARE, topics=[topic])
        return wish("alter share offsets", lambda: self._ask(request, 0), SHARE)

    def _delete_offsets(self) -> Wish:
        topic = DeleteShareGroupOffsetsRequestTopic(topic_name=self.topic)
        request = DeleteShareGroupOffsetsRequest(group_id=SHARE, topics=[topic])
        return wish("delete share offsets", lambda: self._ask(request, 0), SHARE)

    def _delete_group(self) -> Wish:
        request = DeleteGroupsRequest(groups_names=[SHARE])
        return wish("delete group", lambda: self._ask(request, 2), SHARE)

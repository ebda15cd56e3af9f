"""DescribeShareGroupOffsets (90), versions 0 and 1 (KIP-932): the positions of share groups in partitions.

v1: how many records are left (KIP-1226). Any broker answers for topics that the request names. Only the coordinator
of a group knows all its topics.

A conscious difference: this asks nobody about a partition that doesn't exist. Kafka asks for half a minute, and then
gives the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from broker.network.pieces import answered
from broker.security.authorizer import AUTHORIZATION_FAILED, DESCRIBE, GROUP, TOPIC
from coordinator.persister import NO_COMPLETE_COUNT, NO_START_OFFSET, ShareStateSummary
from protocol.errors import Error, KafkaError
from protocol.messages.groups_share import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from protocol.waiting import Later, turn

if TYPE_CHECKING:
    from broker.controller.metadata_log import MetadataLog
    from broker.coordination.groups import Groups
    from broker.coordination.latest_offsets import LatestOffsets
    from broker.handlers.node_ports import BrokerPorts
    from broker.network.context import RequestContext
    from broker.network.turns import Turns
    from broker.security.authorizer import Authorizer
    from coordinator.persister import Persister

UNKNOWN_LEADER_EPOCH = 0

_UNINITIALIZED = ShareStateSummary()


async def handle(
    node: BrokerPorts,
    context: RequestContext,
    request: DescribeShareGroupOffsetsRequest,
) -> DescribeShareGroupOffsetsResponse:
    described = _Described(
        node.metadata,
        node.latest_offsets,
        node.groups,
        node.share_persister,
        node.authorizer,
        node.turns,
        context,
    )
    return await described.of_all(request)


class _Described:
    """One request's answer."""

    def __init__(
        self,
        metadata: MetadataLog,
        latest_offsets: LatestOffsets,
        groups: Groups,
        persister: Persister,
        authorizer: Authorizer,
        turns: Turns,
        context: RequestContext,
    ) -> None:
        self._image = metadata.image
        self._latest_offsets = latest_offsets
        self._groups = groups
        self._persister = persister
        self._turns = turns
        self._may = partial(authorizer.allows, context)

    async def of_all(self, request: DescribeShareGroupOffsetsRequest) -> DescribeShareGroupOffsetsResponse:
        response = DescribeShareGroupOffsetsResponse()
        for group in answered(request.groups, attrgetter("group_id")):
            answer = DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id)
            try:
                await self._fill(answer, group)
            except KafkaError as error:
                answer.topics = []
                answer.error_code, answer.error_message = error.error, error.message
            response.groups.append(answer)
            if self._turns.is_over:
                await turn()
        return response

    async def _fill(
        self, answer: DescribeShareGroupOffsetsResponseGroup, group: DescribeShareGroupOffsetsRequestGroup
    ) -> None:
        """Add the topics of a group. Raises KafkaError if it concerns the whole group.

        A group without an id may name only topics that don't exist: for others Kafka's persister refuses to ask."""
        if not self._groups.serves_share_groups:
            raise KafkaError(Error.UNSUPPORTED_VERSION)
        if not self._may(DESCRIBE, GROUP, group.group_id):
            raise KafkaError(Error.GROUP_AUTHORIZATION_FAILED)
        if group.topics is None:
            found = await self._initialized(group.group_id)
            for name, indexes in found.items():
                # other requests are served in between, and may delete a topic
                if self._may(DESCRIBE, TOPIC, name) and name in self._image.topics:
                    topic = await self._topic(group.group_id, name, indexes)
                    answer.topics.append(topic)
            return
        unknown = []
        hidden = []
        for asked in group.topics:
            if self._turns.is_over:
                await turn()
            if not self._may(DESCRIBE, TOPIC, asked.topic_name):
                hidden.append(_without_state(asked, Error.TOPIC_AUTHORIZATION_FAILED))
            elif asked.topic_name not in self._image.topics:
                unknown.append(_without_state(asked, Error.NONE))
            elif not group.group_id:
                raise KafkaError(Error.UNKNOWN_SERVER_ERROR, "A group has to have an id.")
            else:
                topic = await self._topic(group.group_id, asked.topic_name, asked.partitions)
                answer.topics.append(topic)
        answer.topics += unknown
        answer.topics += hidden

    async def _initialized(self, group_id: str) -> dict[str, list[int]]:
        """All partitions of the group, by topic name. Raises KafkaError as `Groups.shard_of`."""
        found = await self._groups.ask(
            group_id, lambda shard: shard.share_groups.offsets.initialized(group_id)
        )
        if isinstance(found, KafkaError):
            raise KafkaError(found.error, found.message or "The coordinator isn't here.")
        topics = self._image.topics_by_id
        return {topics[topic_id].name: indexes for topic_id, indexes in found.items() if topic_id in topics}

    async def _topic(
        self, group_id: str, name: str, indexes: Sequence[int]
    ) -> DescribeShareGroupOffsetsResponseTopic:
        known = self._image.topics[name]
        topic_id = known.topic_id
        answer = DescribeShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id)
        asked: list[tuple[int, ShareStateSummary | KafkaError | Later[ShareStateSummary | KafkaError]]] = []
        for index in dict.fromkeys(indexes):
            if index in known.partitions:
                asked.append((index, self._persister.read_summary(group_id, topic_id, index, -1).answer()))
            else:
                asked.append((index, _UNINITIALIZED))
            if self._turns.is_over:
                await turn()
        for index, summary in asked:
            if isinstance(summary, Later):
                summary = await summary
            result = await self._partition(name, index, summary)
            answer.partitions.append(result)
            if self._turns.is_over:
                await turn()
        return answer

    async def _partition(
        self, name: str, index: int, summary: ShareStateSummary | KafkaError
    ) -> DescribeShareGroupOffsetsResponsePartition:
        """The result for one partition. If the share coordinator refuses, it has no offset and no error."""
        result = DescribeShareGroupOffsetsResponsePartition(
            partition_index=index, start_offset=NO_START_OFFSET, leader_epoch=UNKNOWN_LEADER_EPOCH
        )
        if isinstance(summary, KafkaError):
            return result
        result.start_offset, result.leader_epoch = summary.start_offset, summary.leader_epoch
        count = summary.delivery_complete_count
        if summary.start_offset == NO_START_OFFSET or count == NO_COMPLETE_COUNT:
            return result
        latest = await self._latest_offsets.ask(name, index)
        if isinstance(latest, KafkaError):
            return DescribeShareGroupOffsetsResponsePartition(
                partition_index=index, error_code=latest.error, error_message=latest.message
            )
        result.lag = latest - summary.start_offset - count
        return result


def _without_state(
    asked: DescribeShareGroupOffsetsRequestTopic, error: Error
) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=asked.topic_name,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=index,
                start_offset=NO_START_OFFSET,
                error_code=error,
                error_message=AUTHORIZATION_FAILED.get(error),
            )
            for index in asked.partitions
        ],
    )

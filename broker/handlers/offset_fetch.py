"""OffsetFetch (9), versions 1 to 10.

v2: null means all topics, and the group has an error field; v5: leader epochs; v6: flexible; v7: require_stable
(KIP-447); v8: several groups at once (KIP-709); v9: member id and epoch, which only consumer groups check; v10: topic
ids instead of names.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.network.pieces import MOST_OF_PIECE, EntryList, Repeats, in_pieces, is_long
from broker.security.authorizer import DESCRIBE, GROUP, TOPIC
from coordinator.group.offsets.store import INVALID_OFFSET
from protocol.errors import Error, KafkaError
from protocol.messages.groups import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from protocol.waiting import together, turn
from protocol.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.controller.metadata_log import MetadataLog
    from broker.coordination.groups import Groups
    from broker.handlers.node_ports import GroupPorts
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer
    from coordinator.group.shard import GroupShard

GROUP_ERROR_VERSION = 2
BATCH_VERSION = 8
TOPIC_ID_VERSION = 10

_TOPICS_OF_GROUP = EntryList("topics", "topics", "partition_indexes", "partitions", ("name", "topic_id"))


async def handle(
    node: GroupPorts, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    fetch = _Fetch(
        node.groups, node.metadata, node.authorizer, context, Repeats(), require_stable=request.require_stable
    )
    if context.api_version >= BATCH_VERSION:
        if len(request.groups) > MOST_OF_PIECE or any(map(fetch.is_long, request.groups)):
            return OffsetFetchResponse(groups=await _in_pieces(fetch, request.groups))
        answers = await together([fetch.answer(group) for group in fetch.answered(request.groups)])
        return OffsetFetchResponse(groups=answers)
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    asked = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    if fetch.is_long(asked):
        (answer,) = await _in_pieces(fetch, [asked])
    else:
        answer = await fetch.answer(asked)
    return _of_one_group(asked, answer, context.api_version)


async def _in_pieces(
    fetch: _Fetch, groups: Sequence[OffsetFetchRequestGroup]
) -> list[OffsetFetchResponseGroup]:
    """The answers group by group, and a group's topics piece by piece."""
    answers = []
    for group in fetch.answered(groups):
        is_long = fetch.is_long(group)
        asked = fetch.named(group) if is_long else group
        if is_long and asked.topics:  # else the client may see none of them
            answers.append(await in_pieces(asked, _TOPICS_OF_GROUP, fetch.answer))
        else:
            answers.append(await fetch.answer(asked))
            if len(answers) % MOST_OF_PIECE == 0:
                await turn()
    return answers


def _of_one_group(
    asked: OffsetFetchRequestGroup, answer: OffsetFetchResponseGroup, version: int
) -> OffsetFetchResponse:
    """The answer in its form before v8."""
    if answer.error_code != Error.NONE and version < GROUP_ERROR_VERSION:
        error = Error(answer.error_code)
        answer.error_code = Error.NONE
        answer.topics = [_refused(topic, error) for topic in asked.topics or ()]
    return OffsetFetchResponse(
        error_code=answer.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in answer.topics
        ],
    )


@dataclass(slots=True)
class _Fetch:
    """One request, group by group."""

    groups: Groups
    metadata: MetadataLog
    authorizer: Authorizer
    context: RequestContext
    repeats: Repeats
    require_stable: bool

    def answered(self, groups: Sequence[OffsetFetchRequestGroup]) -> Sequence[OffsetFetchRequestGroup]:
        """The groups to answer. A group that names no topics isn't answered if it is repeated too often."""
        return [group for group in groups if group.topics is not None or self.repeats.admits(group.group_id)]

    def is_long(self, asked: OffsetFetchRequestGroup) -> bool:
        """True if the answer takes several turns: many partitions are named, or the group has many offsets."""
        if asked.topics is not None:
            return is_long(asked, _TOPICS_OF_GROUP)
        return self._held(asked.group_id) > MOST_OF_PIECE

    def _held(self, group_id: str) -> int:
        try:
            return self.groups.shard_of(group_id).offsets.held(group_id)
        except KafkaError:
            return 0

    def named(self, asked: OffsetFetchRequestGroup) -> OffsetFetchRequestGroup:
        """A request for all offsets, turned into one that names those of the group that the client may see."""
        if asked.topics is not None:
            return asked
        image = self.metadata.image
        by_id = self.context.api_version >= TOPIC_ID_VERSION
        offsets = self.groups.shard_of(asked.group_id).offsets.of_group(asked.group_id)
        named = copy.copy(asked)
        named.topics = [
            OffsetFetchRequestTopics(
                name=name,
                topic_id=image.topics[name].topic_id if by_id else ZERO_UUID,
                partition_indexes=[*partitions],
            )
            for name, partitions in offsets.items()
            if self._may_see(name) and (name in image.topics or not by_id)
        ]
        return named

    async def answer(self, asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        """A group's answer. It has the error if there is one."""
        group_id = asked.group_id
        answer = OffsetFetchResponseGroup(group_id=group_id)
        if not self.authorizer.allows(self.context, DESCRIBE, GROUP, group_id):
            answer.error_code = Error.GROUP_AUTHORIZATION_FAILED
            return answer
        known: list[OffsetFetchRequestTopics] | None = None
        refused: list[OffsetFetchResponseTopics] = []
        if asked.topics is not None:
            known, refused = self._known(group_id, asked.topics)

        def question(shard: GroupShard) -> list[OffsetFetchResponseTopics]:
            shard.check_fetch(group_id, asked.member_id, asked.member_epoch)
            if known is None:
                return self._all_topics(shard, group_id)
            return shard.fetch_offsets(group_id, known, require_stable=self.require_stable)

        found = await self.groups.ask(group_id, question)
        if isinstance(found, KafkaError):
            answer.error_code = found.error
        else:
            answer.topics = found + refused
        return answer

    def _all_topics(self, shard: GroupShard, group_id: str) -> list[OffsetFetchResponseTopics]:
        """The offsets of all topics that the client may see; by id, only of topics that exist."""
        topics = [
            topic
            for topic in shard.fetch_all_offsets(group_id, require_stable=self.require_stable)
            if self._may_see(topic.name)
        ]
        if self.context.api_version < TOPIC_ID_VERSION:
            return topics
        image = self.metadata.image
        topics = [topic for topic in topics if topic.name in image.topics]
        for topic in topics:
            topic.topic_id = image.topics[topic.name].topic_id
        return topics

    def _known(
        self, group_id: str, asked: list[OffsetFetchRequestTopics]
    ) -> tuple[list[OffsetFetchRequestTopics], list[OffsetFetchResponseTopics]]:
        """The topics to ask the coordinator for, by name, and the answers for the others."""
        image = self.metadata.image
        by_id = self.context.api_version >= TOPIC_ID_VERSION
        known = []
        refused = []
        for wanted in asked:
            if not by_id:
                wanted.topic_id = ZERO_UUID
            elif wanted.topic_id in image.topics_by_id:
                wanted.name = image.topics_by_id[wanted.topic_id].name
            else:
                refused.append(_refused(wanted, Error.UNKNOWN_TOPIC_ID))
                continue
            if self._may_see(wanted.name):
                self._take_repeats(group_id, wanted)
                known.append(wanted)
            else:
                refused.append(_refused(wanted, Error.TOPIC_AUTHORIZATION_FAILED))
        return known, refused

    def _take_repeats(self, group_id: str, topic: OffsetFetchRequestTopics) -> None:
        """Drop partitions that are repeated too often: each offset may come with some kilobytes of metadata."""
        name = topic.name
        topic.partition_indexes = [
            index for index in topic.partition_indexes if self.repeats.admits((group_id, name, index))
        ]

    def _may_see(self, topic: str) -> bool:
        return self.authorizer.allows(self.context, DESCRIBE, TOPIC, topic)


def _refused(topic: OffsetFetchRequestTopics, error: Error) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=INVALID_OFFSET, metadata="", error_code=error
            )
            for index in topic.partition_indexes
        ],
    )

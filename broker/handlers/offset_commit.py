"""OffsetCommit (8), versions 2 to 10.

v2 to v4: a retention time, for records of the older format that expire by themselves; v6: leader epochs; v7: static
members; v8: flexible; v9: GROUP_ID_NOT_FOUND; v10: topic ids instead of names.

Topics and partitions that don't exist are answered without asking the coordinator; where nothing else is left, group
and member aren't looked at.

The offsets of a request are one batch, as in Kafka, however many they are: they are checked and made ready in turns of
the loop, and written and applied in one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import TYPE_CHECKING

from broker.network.turns import runs_to_its_end
from broker.security.authorizer import GROUP, READ, TOPIC
from coordinator.group.offsets.commit import STAGED_PER_TURN, Committer, NewOffset, StagedOffsets
from protocol.errors import NO_ERROR, Error, KafkaError
from protocol.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.waiting import Pause, turn

if TYPE_CHECKING:
    from broker.controller.image import TopicImage
    from broker.handlers.node_ports import GroupPorts
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer
    from coordinator.group.shard import GroupShard

TOPIC_ID_VERSION = 10


class _Answers:
    """The answer as it grows.

    Kafka puts what it refuses by itself together by topic and merges the coordinator's answer into that; where it
    refuses nothing, the coordinator's answer goes out as it is, a topic that was named twice in it twice.
    """

    def __init__(self, *, by_id: bool) -> None:
        self.topics: list[OffsetCommitResponseTopic] = []
        self.awaited: list[tuple[OffsetCommitRequestTopic, list[int]]] = []
        """The partitions that the coordinator is asked for, by topic."""
        self._by_id = by_id
        self._found: dict[str | bytes, OffsetCommitResponseTopic] = {}

    def refuse(self, asked: OffsetCommitRequestTopic, index: int, error: Error) -> None:
        topic = self._found.get(self._key(asked))
        if topic is None:
            topic = OffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id)
            self.topics.append(topic)
            self._found[self._key(asked)] = topic
        topic.partitions.append(OffsetCommitResponsePartition(partition_index=index, error_code=error))

    def await_all(self, request: OffsetCommitRequest) -> None:
        self.awaited = [
            (asked, [each.partition_index for each in asked.partitions]) for asked in request.topics
        ]

    async def response(self, found: Sequence[Error] | KafkaError) -> OffsetCommitResponse:
        """With the coordinator's answer: an error for each of `awaited`, or one for all."""
        errors = repeat(found.error) if isinstance(found, KafkaError) else iter(found)
        pause = Pause(STAGED_PER_TURN)
        for asked, indexes in self.awaited:
            partitions = self._partitions(asked)
            for index in indexes:
                partitions.append(
                    OffsetCommitResponsePartition.of(partition_index=index, error_code=next(errors))
                )
                if pause.is_due():
                    await turn()
        return OffsetCommitResponse.of(topics=self.topics)

    def _partitions(self, asked: OffsetCommitRequestTopic) -> list[OffsetCommitResponsePartition]:
        """Where those of a topic are answered."""
        topic = self._found.get(self._key(asked)) if self._found else None
        if topic is None:
            topic = OffsetCommitResponseTopic.of(name=asked.name, topic_id=asked.topic_id, partitions=[])
            self.topics.append(topic)
            if self._found:
                self._found[self._key(asked)] = topic
        return topic.partitions

    def _key(self, asked: OffsetCommitRequestTopic) -> str | bytes:
        return asked.topic_id if self._by_id else asked.name


@runs_to_its_end
async def handle(
    node: GroupPorts,
    context: RequestContext,
    request: OffsetCommitRequest,
) -> OffsetCommitResponse:
    staged = StagedOffsets(
        request.group_id,
        node.clock.now_ms(),
        max_metadata=node.groups.max_offset_metadata,
        retention_ms=request.retention_time_ms,
    )
    image, authorizer = node.metadata.image, node.authorizer
    by_id = context.api_version >= TOPIC_ID_VERSION
    answers = _Answers(by_id=by_id)
    if not authorizer.allows(context, READ, GROUP, request.group_id):
        answers.await_all(request)
        return await answers.response(KafkaError(Error.GROUP_AUTHORIZATION_FAILED))
    pause = Pause(STAGED_PER_TURN)
    for asked in request.topics:
        topic = image.topics_by_id.get(asked.topic_id) if by_id else image.topics.get(asked.name)
        error = _error_of(asked, topic, authorizer, context, by_id=by_id)
        known: list[int] = []
        for wanted in asked.partitions:
            if pause.is_due():
                await turn()
            index = wanted.partition_index
            if error or topic is None:
                answers.refuse(asked, index, error)
            elif index not in topic.partitions:
                answers.refuse(asked, index, Error.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                known.append(index)
                staged.add(
                    NewOffset(
                        topic.name,
                        topic.topic_id,
                        index,
                        wanted.committed_offset,
                        leader_epoch=wanted.committed_leader_epoch,
                        metadata=wanted.committed_metadata,
                    )
                )
        if known:
            answers.awaited.append((asked, known))
    if not answers.awaited:
        return OffsetCommitResponse(topics=answers.topics)
    committer = Committer(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
    )

    def question(shard: GroupShard) -> list[Error]:
        return shard.commit_offsets(committer, staged, api_version=context.api_version)

    found = await node.groups.ask(request.group_id, question)
    return await answers.response(found)


def _error_of(
    asked: OffsetCommitRequestTopic,
    topic: TopicImage | None,
    authorizer: Authorizer,
    context: RequestContext,
    *,
    by_id: bool,
) -> Error:
    """What is wrong with the whole topic."""
    if topic is None and by_id:
        return Error.UNKNOWN_TOPIC_ID
    if not authorizer.allows(context, READ, TOPIC, asked.name if topic is None else topic.name):
        return Error.TOPIC_AUTHORIZATION_FAILED
    return NO_ERROR if topic is not None else Error.UNKNOWN_TOPIC_OR_PARTITION

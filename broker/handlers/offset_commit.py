"""OffsetCommit (8), versions 2 to 10.

v2 to v4: a retention time, for records of the older format that expire by themselves; v6: leader epochs; v7: static
members; v8: flexible; v9: GROUP_ID_NOT_FOUND; v10: topic ids instead of names.

Topics and partitions that don't exist are answered without asking the coordinator; where nothing else is left, group
and member aren't looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.authorizer import GROUP, READ, TOPIC
from coordinator.group.offsets.commit import Committer, NewOffset
from protocol.errors import Error, KafkaError
from protocol.messages.groups_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from broker.controller.metadata_log import MetadataLog
    from broker.coordination.groups import Groups
    from broker.network.context import RequestContext
    from broker.network.later import Later
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

    def refuse_all(self, asked: OffsetCommitRequestTopic, error: Error) -> None:
        for wanted in asked.partitions:
            self.refuse(asked, wanted.partition_index, error)

    def response(self, found: list[Error] | KafkaError) -> OffsetCommitResponse:
        """With the coordinator's answer: an error for each of `awaited`, or one for all."""
        if isinstance(found, KafkaError):
            found = [found.error] * sum(len(indexes) for _, indexes in self.awaited)
        errors = iter(found)
        for asked, indexes in self.awaited:
            self._add(
                asked,
                [
                    OffsetCommitResponsePartition.of(partition_index=index, error_code=next(errors))
                    for index in indexes
                ],
            )
        return OffsetCommitResponse.of(topics=self.topics)

    def _add(self, asked: OffsetCommitRequestTopic, partitions: list[OffsetCommitResponsePartition]) -> None:
        topic = self._found.get(self._key(asked))
        if topic is None:
            self.topics.append(
                OffsetCommitResponseTopic.of(name=asked.name, topic_id=asked.topic_id, partitions=partitions)
            )
            if self._found:
                self._found[self._key(asked)] = self.topics[-1]
        else:
            topic.partitions += partitions

    def _key(self, asked: OffsetCommitRequestTopic) -> str | bytes:
        return asked.topic_id if self._by_id else asked.name


def handle(
    groups: Groups,
    metadata: MetadataLog,
    authorizer: Authorizer,
    context: RequestContext,
    request: OffsetCommitRequest,
) -> OffsetCommitResponse | Later[OffsetCommitResponse]:
    if not authorizer.allows(context, READ, GROUP, request.group_id):
        return _all_refused(request, Error.GROUP_AUTHORIZATION_FAILED)
    by_id = context.api_version >= TOPIC_ID_VERSION
    image = metadata.image
    answers = _Answers(by_id=by_id)
    offsets: list[NewOffset] = []
    for asked in request.topics:
        topic = image.topics_by_id.get(asked.topic_id) if by_id else image.topics.get(asked.name)
        if topic is None and by_id:
            answers.refuse_all(asked, Error.UNKNOWN_TOPIC_ID)
            continue
        name = asked.name if topic is None else topic.name
        if not authorizer.allows(context, READ, TOPIC, name):
            answers.refuse_all(asked, Error.TOPIC_AUTHORIZATION_FAILED)
            continue
        if topic is None:
            answers.refuse_all(asked, Error.UNKNOWN_TOPIC_OR_PARTITION)
            continue
        known: list[int] = []
        for wanted in asked.partitions:
            index = wanted.partition_index
            if index not in topic.partitions:
                answers.refuse(asked, index, Error.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            known.append(index)
            offsets.append(
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
    if not offsets:
        return OffsetCommitResponse(topics=answers.topics)
    committer = Committer(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
    )

    def question(shard: GroupShard) -> list[Error]:
        return shard.commit_offsets(
            committer,
            offsets,
            api_version=context.api_version,
            retention_ms=request.retention_time_ms,
        )

    return groups.answer(request.group_id, question, answers.response)


def _all_refused(request: OffsetCommitRequest, error: Error) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
